"""The figures that docs/benchmarks.md gives, on the real data, by the commands that a user types: `make figures`.

Minutes of training, so that they are left out of `make test`.
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas.samples.images import png

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "schemas"
pytestmark = pytest.mark.figures


def command(module: str, *args: object) -> None:
    """Runs `python -m module args` and shows what it says."""
    subprocess.run([sys.executable, "-m", module, *map(str, args)], check=True, cwd=ROOT)


def preprocess(schema: Path, inputs: list[Path], output: Path) -> dict[str, Any]:
    """Runs the job, with every record accounted for and none rejected. Returns the manifest."""
    command("beam_jobs.preprocess", "--schema", schema, "--input", *inputs, "--output", output, "--quiet")
    manifest: dict[str, Any] = json.loads((output / "manifest.json").read_text())
    assert (manifest["read"], manifest["rejected"]) == (manifest["written"], 0)
    return manifest


def train(data: Path, model_dir: Path, model: str, *, steps: int, seed: int = 1, args: tuple[str, ...] = ()) -> Any:
    """Trains. Returns the metrics of the last evaluation."""
    common = ("--data_dir", data, "--model_dir", model_dir, "--model", model, "--max_steps", steps, "--seed", seed)
    command("trainer.task", *common, *args)
    return json.loads((model_dir / "evaluations.json").read_text())[-1]


def test_covertype_dnn(real_data: Path, tmp_path: Path) -> None:
    preprocess(SCHEMAS / "covertype.yaml", [real_data / "covertype" / "covertype_100k.csv.gz"], tmp_path / "data")
    assert train(tmp_path / "data", tmp_path / "model", "dnn", steps=5000)["accuracy"] >= 0.88


def test_census_wide_deep(real_data: Path, tmp_path: Path) -> None:
    files = [real_data / "census" / name for name in ("adult.data", "adult.test")]
    preprocess(SCHEMAS / "census.yaml", files, tmp_path / "data")
    assert train(tmp_path / "data", tmp_path / "model", "wide_deep", steps=1000)["auc"] >= 0.9


def test_mnist_softmax_from_csv_and_from_png(real_data: Path, tmp_path: Path) -> None:
    digits = real_data / "mnist" / "mnist_10k.csv.gz"
    preprocess(SCHEMAS / "mnist_csv.yaml", [digits], tmp_path / "csv")
    assert train(tmp_path / "csv", tmp_path / "csv_model", "softmax", steps=1000)["accuracy"] >= 0.9
    with gzip.open(digits, "rt") as file:
        for i, row in enumerate(list(csv.reader(file))[1:]):
            path = tmp_path / "png" / row[0] / f"{i:05d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.array(row[1:], np.uint8).reshape(28, 28, 1)
            path.write_bytes(png(pixels.repeat(3, axis=2)))
    manifest = preprocess(SCHEMAS / "mnist_png.yaml", [tmp_path / "png/*/*"], tmp_path / "images")
    assert manifest["written"] == 10_000
    # A digit in the mirror is another one.
    args = ("--augment", "flip=false", "--batch_size", "512")
    assert train(tmp_path / "images", tmp_path / "png_model", "softmax", steps=1000, args=args)["accuracy"] >= 0.9


def test_squeezenext_learns_200_photos(real_data: Path, tmp_path: Path) -> None:
    """Crop and flip in training, the centre crop in evaluation: on the same 200 photos."""
    assert preprocess(SCHEMAS / "cats_dogs.yaml", [real_data / "images/*/*"], tmp_path / "all")["written"] == 600
    schema = tmp_path / "200.yaml"
    shares = ("train: 0.8, eval: 0.1, test: 0.1", "train: 1, eval: 0, test: 0")
    schema.write_text((SCHEMAS / "cats_dogs.yaml").read_text().replace(*shares))
    files = [f for label in ("cats", "dogs") for f in sorted((real_data / "images" / label).iterdir())[:100]]
    assert preprocess(schema, files, tmp_path / "data")["written"] == 200
    args = ("--eval_split", "train", "--batch_size", "32")
    assert train(tmp_path / "data", tmp_path / "model", "squeezenext", steps=1500, args=args)["accuracy"] >= 0.95


def plain_net(task_spec: Any, hparams: Any) -> Any:
    """A plain Keras net of as many parameters as `squeezenext`: 3x3 convolutions with batch norm, and a dense layer."""
    import tensorflow as tf

    layers = tf.keras.layers
    x = image = layers.Input((*task_spec.size, 3), name="image")
    for channels in PLAIN_CHANNELS:
        x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(channels, 3, 2, "same", use_bias=False)(x)))
    classes = layers.Dense(len(task_spec.classes), "softmax")(layers.GlobalAveragePooling2D()(x))
    model = tf.keras.Model(image, classes)
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


PLAIN_CHANNELS = (40, 80, 160, 320)


def test_photos_by_the_built_in_nets_beside_a_plain_one(real_data: Path, tmp_path: Path) -> None:
    """Top-1 of photos that no training has seen, with default settings: mean and spread of three seeds."""
    schema, shares = tmp_path / "photos.yaml", ("train: 0.8, eval: 0.1, test: 0.1", "train: 0.6, eval: 0.2, test: 0.2")
    schema.write_text((SCHEMAS / "cats_dogs.yaml").read_text().replace(*shares))
    preprocess(schema, [real_data / "images/*/*"], tmp_path / "data")
    accuracies_by_model: dict[str, list[float]] = {}
    for model in ("softmax", "squeezenext", "convnet", "tests.test_figures:plain_net"):
        for seed in (1, 2, 3):
            folder = tmp_path / f"{model.rpartition(':')[2]}-{seed}"
            args = ("--data_dir", tmp_path / "data", "--model_dir", folder, "--model", model, "--seed", seed)
            command("trainer.task", *args, "--evaluate_test", "--no_report", "--quiet")
            accuracies_by_model.setdefault(model, []).append(
                json.loads((folder / "metrics-test.json").read_text())["metrics"]["accuracy"]
            )
    for model, accuracies in accuracies_by_model.items():
        print(f"photos, top-1 of the test split: {model} {np.mean(accuracies):.3f} +- {np.std(accuracies):.3f}")


def test_face_pairs_tell_people_apart_that_they_have_never_seen(real_data: Path, tmp_path: Path) -> None:
    preprocess(SCHEMAS / "faces.yaml", [real_data / "lfw/*/*"], tmp_path / "data")
    areas = [
        train(tmp_path / "data", tmp_path / f"model-{seed}", "face_pairs", steps=FACE_STEPS, seed=seed)["auc"]
        for seed in (1, 2, 3)
    ]
    assert np.mean(areas) >= 0.72
    assert np.mean(areas) >= 0.05 + pixel_distance_auc(tmp_path / "data")


FACE_STEPS = 1500


def pixel_distance_auc(data: Path) -> float:
    """The AUC of calling two faces the same by how near their pixels are, over the pairs of the split eval."""
    from schemas.dataset import open_dataset
    from schemas.profile.roc import roc_areas
    from trainer.data.input_fn import input_fn
    from trainer.data.input_options import InputOptions

    labels, distances = [], []
    for features, same in input_fn(open_dataset(str(data)), "eval", mode="eval", options=InputOptions(batch_size=64)):
        difference = features["left"].numpy().astype(np.float32) - features["right"].numpy()
        distances.append(np.sqrt((difference**2).sum(axis=(1, 2, 3))))
        labels.append(same.numpy())
    return float(roc_areas(-np.concatenate(distances), np.concatenate(labels), 2)[1])
