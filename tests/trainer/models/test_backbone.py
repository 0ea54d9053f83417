"""A network from a file: its values and its function in the Estimator's graph, what is trained, and what is refused."""

from __future__ import annotations

import functools
import json
import shutil
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from schemas.errors import MillraceError, UsageError
from tests.support.replicas import run_with_replicas
from tests.support.training import TrainedModel, run
from trainer import predict, verify
from trainer.estimator import tf_estimator
from trainer.models.backbone import SCOPE, Backbone, build, read_backbone, scaled
from trainer.models.hyperparameters import PIXELS, BackboneHparams
from trainer.spec.hparams import parse_hparams
from trainer.spec.task_spec import ImageTaskSpec

pytestmark = pytest.mark.long

NETWORKS = ("mobilenet", "three")  # the latter by Keras 3's export, which cannot be trained


def disturbed(model: Any) -> Any:
    """The model, with statistics and factors of batch norm as after a training."""
    rng = np.random.default_rng(1)
    for variable in model.variables:
        if len(variable.shape) == 1:  # of batch norm, or a bias
            variable.assign(rng.uniform(0.7, 1.3, variable.shape))
    return model


def small(package: Any, *, size: int | None = None) -> Any:
    """A convolution with batch norm and dropout, by `tf.keras` or Keras 3."""
    layers = package.layers
    x = images = layers.Input((size, size, 3))
    for layer in (layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="norm"), layers.Dropout(0.3)):
        x = layer(x)
    return disturbed(package.Model(images, x))


def save(model: Any, path: Path) -> None:
    model.save(path, save_format="tf")


def mobilenet() -> Any:
    """MobileNetV2 for images of any size, with statistics and factors of batch norm as after a training."""
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.applications.MobileNetV2(input_shape=(None, None, 3), alpha=0.35, include_top=False, weights=None)
    return disturbed(model)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """SavedModels of `NETWORKS` and of a small network by Keras 2, and what they give for some images."""
    folder = tmp_path_factory.mktemp("files")
    model, two, three = mobilenet(), small(tf.keras), small(keras)
    save(model, folder / "mobilenet")
    save(two, folder / "two")
    three.export(folder / "three", verbose=False)
    np.savez(folder / "images.npz", images := np.random.default_rng(2).uniform(-1, 1, (4, 96, 96, 3)).astype("float32"))
    vectors = {n: m(images, training=False) for n, m in (("mobilenet", model), ("two", two), ("three", three))}
    np.savez(folder / "vectors.npz", **{name: np.asarray(y).mean(axis=(1, 2)) for name, y in vectors.items()})
    (folder / "mobilenet.trained").write_text(str(len(model.trainable_variables)))
    return folder


def images_of(files: Path) -> np.ndarray:
    return np.load(files / "images.npz")["arr_0"]


def of_file(files: Path, name: str) -> np.ndarray:
    return np.asarray(np.load(files / "vectors.npz")[name])


@functools.cache
def read_once(path: Path, size: tuple[int, int], trainable: bool) -> Backbone:
    return read_backbone(str(path), size=size, trainable=trainable)


class Graph:
    """A graph of an Estimator: the network's vectors, and a session in which a training begins or goes on."""

    def __init__(
        self, path: Path, images: np.ndarray, *, trainable: bool, training: bool, checkpoint: str = ""
    ) -> None:
        backbone = read_once(path, images.shape[1:3], trainable)
        with tf.Graph().as_default() as graph:
            self.vectors, scaffold = backbone(tf.constant(images), training=training)
            self.trainable = tf.compat.v1.trainable_variables()
            self.variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
            self.gradients = (
                tf.gradients(tf.reduce_sum(self.vectors**2), self.trainable) if training and trainable else []
            )
            self.session = tf.compat.v1.Session(graph=graph)
            if checkpoint:
                tf.compat.v1.train.Saver().restore(self.session, checkpoint)
                return
            self.session.run(tf.compat.v1.global_variables_initializer())
            self.unread = self.values()
            scaffold.init_fn(self.session)

    def values(self) -> dict[str, np.ndarray]:
        return dict(self.session.run(self.variables))


class TestFunction:
    @pytest.mark.parametrize("name", NETWORKS)
    def test_frozen_layers_give_what_the_file_gives_in_training_too(self, files, name):
        graph = Graph(files / name, images_of(files), trainable=False, training=True)
        before = graph.values()
        np.testing.assert_allclose(graph.session.run(graph.vectors), of_file(files, name), atol=1e-5)
        assert graph.trainable == []
        assert all(np.isnan(v).all() for v in graph.unread.values())  # no value that might be taken for the file's
        for variable, value in graph.values().items():
            np.testing.assert_array_equal(value, before[variable])

    def test_trained_layers_are_those_that_the_file_trains(self, files):
        graph = Graph(files / "mobilenet", images_of(files), trainable=True, training=True)
        before = graph.values()
        vectors, gradients = graph.session.run([graph.vectors, graph.gradients])
        assert len(graph.trainable) == len(gradients) == int((files / "mobilenet.trained").read_text())
        assert all(np.isfinite(g).all() for g in gradients)
        assert np.abs(vectors - of_file(files, "mobilenet")).max() > 0.01  # by the batch's statistics
        moved = {v for v, value in graph.values().items() if (value != before[v]).any()}
        averages = {v for v in before if v.endswith(("moving_mean", "moving_variance"))}
        assert moved == averages
        assert {v.op.name for v in graph.trainable} == set(before) - averages

    def test_layers_that_the_file_freezes_stay_so(self, tmp_path):
        model = small(tf.keras)
        model.get_layer("norm").trainable = False
        images = np.random.default_rng(1).uniform(size=(4, 8, 8, 3)).astype("float32")
        save(model, tmp_path / "m")
        graph = Graph(tmp_path / "m", images, trainable=True, training=True)
        before = graph.values()
        graph.session.run(graph.vectors)
        assert [v.op.name for v in graph.trainable] == [f"{SCOPE}/conv/kernel", f"{SCOPE}/conv/bias"]
        assert all((value == before[variable]).all() for variable, value in graph.values().items())

    def test_a_vector_is_taken_as_it_is_and_constants_are_kept(self, tmp_path):
        class Module(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.kernel, self.shift = tf.Variable(tf.ones([3, 2])), tf.constant([1.0, 2.0])

            @tf.function(input_signature=[tf.TensorSpec([None, None, None, 3])])
            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                return tf.reduce_sum(x, [1, 2]) @ self.kernel + self.shift

        module = Module()
        tf.saved_model.save(module, str(tmp_path))
        images = np.random.default_rng(1).uniform(size=(4, 8, 8, 3)).astype("float32")
        graph = Graph(tmp_path, images, trainable=True, training=True)
        np.testing.assert_allclose(graph.session.run(graph.vectors), module(images), rtol=1e-5)
        assert len(graph.trainable) == 1


@pytest.mark.parametrize(("pixels", "mode"), [("-1..1", "tf"), ("torch", "torch"), ("caffe", "caffe")])
def test_pixels_are_scaled_as_keras_scales_them(pixels, mode):
    images = np.random.default_rng(1).integers(0, 256, (2, 5, 4, 3), np.uint8)
    expected = tf.keras.applications.imagenet_utils.preprocess_input(images.astype("float32"), mode=mode)
    np.testing.assert_allclose(scaled(tf.constant(images), pixels), expected, atol=1e-4)
    assert {float(tf.reduce_max(scaled(tf.constant([[[[255, 0, 0]]]]), name))) for name in ("0..1", "0..255")} == {
        1,
        255,
    }
    assert set(PIXELS) == {"-1..1", "0..1", "0..255", "torch", "caffe"}


def train(dataset, model_dir: Path, path: Path, *argv: str, steps: int = 2, trainable: bool = False) -> int:
    hparams = ("--hparams", f"path={path}", "pixels=-1..1", f"trainable={trainable}", *argv)
    return run(
        dataset, model_dir, *hparams, "--save_checkpoints_steps", f"{min(steps, 20)}", model="backbone", steps=steps
    )


def value(model_dir: Path, name: str, step: int) -> np.ndarray:
    return np.asarray(tf.train.load_variable(f"{model_dir}/model.ckpt-{step}", name))


def begun(model_dir: Path, path: Path, images: np.ndarray, step: int = 0) -> np.ndarray:
    """The vectors that the network of a checkpoint gives."""
    checkpoint = f"{model_dir}/model.ckpt-{step}"
    graph = Graph(path, images, trainable=False, training=False, checkpoint=checkpoint)
    return graph.session.run(graph.vectors)


@pytest.fixture(scope="module")
def frozen(colors, files, tmp_path_factory) -> Path:
    """40 steps over frozen layers."""
    folder = tmp_path_factory.mktemp("frozen")
    shutil.copytree(files / "two", folder / "network")
    argv = ("dropout=0", "learning_rate=0.05", "--deterministic")
    assert train(colors, folder / "model", folder / "network", *argv, steps=40) == 0
    return folder


@pytest.mark.slow
class TestTraining:
    def test_an_export_predicts_what_the_network_and_the_layer_give(self, colors, frozen, tmp_path):
        """Without the file, from the bytes of image files."""
        (frozen / "network").rename(tmp_path / "network")
        export = TrainedModel(frozen / "model").export
        step = json.loads((export.parent / "best.json").read_text())["global_step"]
        raw = sorted((Path(colors.path).parent / "raw").glob("*/[0-3].png"))
        out = tmp_path / "out.jsonl"
        argv = ["--saved_model", str(export), "--input", *map(str, raw), "--output", str(out), "--quiet"]
        assert predict.main(argv) == 0
        (tmp_path / "network").rename(frozen / "network")
        pixels = np.stack([np.asarray(PIL.Image.open(path)) for path in raw])[:, 2:34, 2:34].astype("float32")
        vectors = tf.keras.models.load_model(frozen / "network")(pixels / 127.5 - 1, training=False).numpy()
        kernel, bias = (value(frozen / "model", f"classifier/{part}", step) for part in ("kernel", "bias"))
        expected = tf.nn.softmax(vectors.mean(axis=(1, 2)) @ kernel + bias).numpy()
        answers = {a["source"]: a for a in map(json.loads, out.read_text().splitlines())}
        for path, probabilities in zip(raw, expected, strict=True):
            predicted = list(answers[str(path)]["top_5"].values())
            np.testing.assert_allclose(predicted, np.sort(probabilities)[::-1][:5], atol=1e-3)

    def test_the_file_is_found_from_any_folder_and_missed_by_name(self, colors, frozen, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(frozen)
        assert train(colors, tmp_path / "model", Path("network")) == 0
        monkeypatch.chdir(tmp_path)
        check = ["--data_dir", colors.path, "--saved_model", str(TrainedModel(tmp_path / "model").export), "--trust"]
        assert verify.main(check) == 0
        (frozen / "network").rename(tmp_path / "network")
        assert verify.main(check) == 2
        (tmp_path / "network").rename(frozen / "network")
        message = f"path={frozen}/network: no folder with saved_model.pb; expected "
        assert message in (err := capsys.readouterr().err)
        assert "if it was moved, put it back there" in err

    def test_trained_layers_begin_with_the_file_move_and_go_on(self, colors, files, tmp_path, capsys):
        model = tmp_path / "model"
        assert train(colors, model, files / "two", trainable=True) == 0
        np.testing.assert_allclose(begun(model, files / "two", images_of(files)), of_file(files, "two"), atol=1e-5)
        kernel, mean = f"{SCOPE}/conv/kernel", f"{SCOPE}/norm/moving_mean"
        for name in (kernel, mean):
            assert (value(model, name, 0) != value(model, name, 2)).any()
        assert (
            run(colors, model, "--trust", model="backbone", steps=4) == 0
        )  # with the file, values and settings of the checkpoint
        assert "as " in capsys.readouterr().err
        momentum = f"{kernel}/Adam"
        assert (value(model, momentum, 2) != value(model, momentum, 4)).any()
        assert np.abs(value(model, kernel, 4) - value(model, kernel, 2)).max() < 0.02

    def test_replicas_begin_with_the_file(self, colors, files, tmp_path):
        """Of two devices, with frozen layers and with trained ones."""
        fixed = ["--data_dir", colors.path, "--model", "backbone", "--max_steps", "2", "--batch_size", "16", "--quiet"]
        fixed += ["--strategy", "mirrored", "--logical_cpus", "2", "--save_checkpoints_steps", "2", "--no_report"]
        commands = [
            ["trainer.task", *fixed, "--model_dir", str(tmp_path / str(trainable)), "--hparams"]
            + [f"path={files / 'two'}", "pixels=-1..1", f"trainable={trainable}"]
            for trainable in (False, True)
        ]
        for trainable, report in zip((False, True), run_with_replicas(commands), strict=True):
            assert report["code"] == 0, report["err"]
            model_dir = tmp_path / str(trainable)
            vectors = begun(model_dir, files / "two", images_of(files))
            np.testing.assert_allclose(vectors, of_file(files, "two"), atol=1e-5)
            before, after = (value(model_dir, f"{SCOPE}/norm/moving_mean", step) for step in (0, 2))
            assert (before != after).any() == trainable

    def test_a_warm_start_goes_before_the_file(self, colors, files, frozen, tmp_path, capsys):
        other = tmp_path / "other"
        model = tf.keras.models.load_model(files / "two")
        model.get_layer("conv").kernel.assign(np.full(model.get_layer("conv").kernel.shape, 0.5))
        save(model, other)
        warm = ("--warm_start_from", str(frozen / "model"))
        assert train(colors, tmp_path / "model", other, *warm) == 0
        assert "warm start: 8 of 8 variables" in capsys.readouterr().err
        name = f"{SCOPE}/conv/kernel"
        np.testing.assert_array_equal(value(tmp_path / "model", name, 0), value(frozen / "model", name, 40))


class TestRefused:
    @staticmethod
    def refused(path: Path, *, trainable: bool = False) -> str:
        with pytest.raises(UsageError) as refused:
            read_backbone(str(path), size=(32, 32), trainable=trainable)
        assert str(refused.value).startswith(f"path={path}: ")
        return str(refused.value)

    def test_no_folder_of_a_saved_model(self, tmp_path):
        (tmp_path / "m.keras").write_bytes(b"PK")
        for path in (tmp_path / "none", tmp_path, tmp_path / "m.keras"):
            assert "no folder with saved_model.pb; expected the folder of a TF2 SavedModel" in self.refused(path)

    def test_images_of_another_size(self, tmp_path):
        save(small(tf.keras, size=24), tmp_path / "m")
        message = self.refused(tmp_path / "m")
        assert "takes images [?, 24, 24, 3], but the dataset's are [?, 32, 32, 3]. Give " in message

    def test_outputs_that_are_no_vector(self, tmp_path):
        x = inputs = tf.keras.layers.Input((32, 32, 3))
        for name, outputs, message in [
            ("two", [x, x], "gives float32 [?, 32, 32, 3], float32 [?, 32, 32, 3]; expected one output"),
            ("rank", tf.keras.layers.Reshape([-1, 3])(x), "gives float32 [?, 1024, 3]; expected one output"),
        ]:
            save(tf.keras.Model(inputs, outputs), tmp_path / name)
            assert message in self.refused(tmp_path / name)

    def test_inputs_that_are_no_images(self, tmp_path):
        inputs = [tf.keras.layers.Input((32, 32, 3)) for _ in range(2)]
        save(tf.keras.Model(inputs, tf.keras.layers.Add()(inputs)), tmp_path / "m")
        assert "; expected images, float32 [batch, height, width, 3]" in self.refused(tmp_path / "m")

    def test_a_saved_model_without_a_call(self, tmp_path):
        tf.saved_model.save(tf.Module(), str(tmp_path))
        assert "has neither a call nor the signature 'serving_default'" in self.refused(tmp_path)

    def test_a_saved_model_of_tensorflow_1(self, tmp_path):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            builder = tf.compat.v1.saved_model.Builder(str(tmp_path / "m"))
            builder.add_meta_graph_and_variables(session, ["serve"])
            builder.save()
        with pytest.raises(MillraceError, match=r"saved_model.pb: is not a TensorFlow 2 SavedModel"):
            read_backbone(str(tmp_path / "m"), size=(32, 32), trainable=False)

    def test_layers_that_cannot_be_trained(self, files, tmp_path):
        assert "has only a signature, which knows no training" in self.refused(files / "three", trainable=True)
        model = small(tf.keras)
        model.trainable = False
        save(model, tmp_path / "m")
        assert "all layers are frozen in the file" in self.refused(tmp_path / "m", trainable=True)

    def test_a_graph_that_writes(self, tmp_path):
        class Module(tf.Module):
            @tf.function(input_signature=[tf.TensorSpec([None, 32, 32, 3])])
            def __call__(self, x: tf.Tensor) -> tf.Tensor:
                tf.io.write_file(str(tmp_path / "evil"), "x")
                return x

        tf.saved_model.save(Module(), str(tmp_path / "m"))
        assert "holds the op WriteFile" in self.refused(tmp_path / "m")
        assert not (tmp_path / "evil").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "hparams", "message"),
    [
        ("colors", (), "model 'backbone': give --hparams path=...; expected the folder of a TF2 SavedModel ("),
        ("colors", ("path=/nowhere",), "model 'backbone': give --hparams pixels=...; "),
        ("colors", ("path=/nowhere", "pixels=0..1"), "path=/nowhere: no folder with saved_model.pb"),
        ("late", ("path=/nowhere", "pixels=0..1"), "model 'backbone' reads images; for rows use: linear, "),
    ],
)
def test_the_command_refuses(request, tmp_path, capsys, data, hparams, message):
    argv = ("--hparams", *hparams) if hparams else ()
    assert run(request.getfixturevalue(data), tmp_path / "model", *argv, model="backbone") == 2
    assert message in capsys.readouterr().err


def test_refuses_parameter_servers(tmp_path, monkeypatch):
    cluster = {"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    config = tf_estimator.RunConfig(model_dir=str(tmp_path))
    with pytest.raises(UsageError, match="--strategy parameter_server: "):
        build(cast(ImageTaskSpec, None), BackboneHparams(path="x", pixels="0..1"), config)


def test_hyper_parameters_are_checked_before_anything_is_read():
    with pytest.raises(UsageError, match=r"pixels=0..2: expected one of -1..1: Keras's MobileNet"):
        parse_hparams(BackboneHparams, ["path=x", "pixels=0..2"], model="backbone")
