"""Whole jobs on image files: every image stored or rejected, and what is stored is what the ingest graph makes."""

from __future__ import annotations

import collections
import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from PIL import Image

from beam_jobs.images import source
from beam_jobs.images.source import image_list
from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.dataset.statistics import read_statistics
from schemas.dataset.verify import verify_dataset
from schemas.errors import UsageError
from schemas.rejects import Reject
from schemas.storage import Listing, list_files
from tests.support.datasets import rejects_of, written
from tests.support.image_files import draw, write_folders
from tests.support.written_records import examples

FOLDERS = "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, store: raw}\n"
TRAIN = "split: {train: 1, eval: 0, test: 0}\n"
FIXED = "channels: {means: [123, 117, 104]}"  # nothing is measured, which makes a job quicker
ALL_TRAIN = FOLDERS.replace("store", f"{FIXED}, store") + TRAIN


def run(folder: Path, schema: str, *inputs: str, output: str = "out", **changes: Any) -> OpenDataset:
    return written(folder, schema, *inputs, output=str(folder / output), **changes)


def rejects_by_name(dataset: OpenDataset) -> dict[str, Reject]:
    return {Path(r.source).name: r for r in rejects_of(dataset)}


def parity_records(dataset: OpenDataset, name: str) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(f"{dataset.run_dir}/{name}")


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, OpenDataset]:
    """60 drawn images and four files that are not to be stored."""
    folder = tmp_path_factory.mktemp("shapes")
    write_folders(folder / "raw", per_class=30)
    disc = folder / "raw" / "disc"
    whole = tf.io.encode_png(draw(0, 5)).numpy()
    (disc / "cut.png").write_bytes(whole[: len(whole) // 2])
    (disc / "empty.jpg").write_bytes(b"")
    (disc / "text.jpg").write_bytes(b"this is no image")
    huge = whole[:16] + (60_000).to_bytes(4, "big") * 2 + whole[24:]  # a header that promises 3.6 gigapixels
    (disc / "huge.png").write_bytes(huge)
    return folder, run(folder, FOLDERS, str(folder / "raw/*/*"), max_reject_fraction=1.0)


def test_every_image_is_stored_or_rejected_with_its_reason(shapes):
    _, dataset = shapes
    assert (dataset.manifest.read, dataset.manifest.written, dataset.manifest.rejected) == (64, 60, 4)
    assert dataset.manifest.classes == ("bar", "disc")
    reasons = {name: r.reason for name, r in rejects_by_name(dataset).items()}
    assert reasons["empty.jpg"] == "empty_file"
    assert reasons["text.jpg"] == "not_an_image"
    assert reasons["huge.png"] == "too_many_pixels"
    assert reasons["cut.png"] in ("truncated_image", "undecodable_image")
    for reject in rejects_by_name(dataset).values():
        assert (reject.stage, reject.column, reject.raw) == ("ingest", None, reject.source.encode())


def test_records_follow_the_imagenet_convention(shapes):
    _, dataset = shapes
    stored = [e for s in dataset.splits for e in examples(dataset, s)]
    for example in stored:
        assert example["image/format"] == [b"RAW"]
        assert (example["image/height"], example["image/width"]) == ([24], [32])
        assert len(example["image/encoded"][0]) == 24 * 32 * 3
        text = example["image/class/text"][0].decode()
        assert dataset.manifest.classes[example["image/class/label"][0]] == text
        assert example["image/filename"][0].decode().startswith(text + "/")
    assert len({e["image/filename"][0] for e in stored}) == 60


def test_the_saved_ingest_graph_makes_the_stored_record_of_the_raw_file(shapes):
    folder, dataset = shapes
    ingest = tf.saved_model.load(str(Path(dataset.run_dir) / layout.INGEST_FN)).signatures["serving_default"]
    for example in examples(dataset, "eval"):
        path = folder / "raw" / example["image/filename"][0].decode()
        made = ingest(image_bytes=tf.constant([path.read_bytes()]))
        assert made["image/encoded"].numpy()[0] == example["image/encoded"][0]


def test_the_transform_normalises_by_the_train_splits_channels(shapes):
    _, dataset = shapes
    pixels = np.concatenate(
        [np.frombuffer(e["image/encoded"][0], np.uint8).reshape(-1, 3) for e in examples(dataset, "train")]
    )
    output = tft.TFTransformOutput(dataset.run_dir)
    made = output.transform_raw_features({"pixels": tf.constant(pixels, tf.float32)}, drop_unused_features=True)
    normal = made["pixels"].numpy()
    assert np.abs(normal.mean(axis=0)).max() < 1e-3
    assert np.abs(normal.std(axis=0) - 1).max() < 1e-3


def test_the_statistics_are_those_of_the_files_and_of_the_stored_pixels(shapes):
    folder, dataset = shapes
    statistics = read_statistics(dataset.path)
    features = {item["name"]: item["splits"] for item in statistics["features"]}
    for split in dataset.splits:
        stored = examples(dataset, split)
        files = [folder / "raw" / e["image/filename"][0].decode() for e in stored]
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(Image.open(path)) for path in files]
            formats = collections.Counter(image.format.lower() for image in opened)
            sides = [image.size for image in opened]
        split_statistics = {name: splits[split] for name, splits in features.items()}
        assert {top["value"]: top["count"] for top in split_statistics["image/file/format"]["top_values"]} == formats
        labels = collections.Counter(e["image/class/text"][0].decode() for e in stored)
        assert {top["value"]: top["count"] for top in split_statistics["image/class/text"]["top_values"]} == labels
        assert {(50, 40)} == set(sides)
        assert [split_statistics[name]["max"] for name in ("image/file/width", "image/file/height")] == [50, 40]
        sizes = [path.stat().st_size for path in files]
        assert (split_statistics["image/file/bytes"]["min"], split_statistics["image/file/bytes"]["max"]) == (
            min(sizes),
            max(sizes),
        )
        assert split_statistics["image/file/bytes"]["mean"] == pytest.approx(np.mean(sizes))
        pixels = [np.frombuffer(e["image/encoded"][0], np.uint8).reshape(-1, 3) for e in stored]
        brightness = [image.mean() for image in pixels]
        assert split_statistics["image/brightness"]["mean"] == pytest.approx(np.mean(brightness), rel=1e-6)


def test_parity_holds_raw_files_beside_their_records(shapes):
    _, dataset = shapes
    raw, stored = (
        [tf.train.Example.FromString(r.numpy()) for r in parity_records(dataset, name)]
        for name in (layout.PARITY_RAW, layout.PARITY_TRANSFORMED)
    )
    assert len(raw) == len(stored) == 60
    for a, b in zip(raw, stored, strict=True):
        assert a.features.feature["label"] == b.features.feature["image/class/text"]


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory) -> OpenDataset:
    """12 drawn images of which nothing was measured."""
    folder = tmp_path_factory.mktemp("fixed")
    write_folders(folder / "raw", per_class=6)
    return run(folder, ALL_TRAIN, str(folder / "raw/*/*"))


@pytest.mark.slow
def test_fixed_means_are_taken_as_they_are(fixed):
    dataset = fixed
    output = tft.TFTransformOutput(dataset.run_dir)
    made = output.transform_raw_features({"pixels": tf.constant([[123.0, 118.0, 0.0]])}, drop_unused_features=True)
    assert made["pixels"].numpy().tolist() == [[0.0, 1.0, -104.0]]


@pytest.mark.parametrize(("folders", "notes"), [(("train", "val"), 1), (("train", "more"), 0)])
def test_folders_of_splits_that_are_mixed_are_pointed_out(folders, notes):
    paths = [f"photos/{folder}/{label}/1.jpg" for folder in folders for label in ("ants", "bees")]
    listed = image_list(storage.Listing((path, None) for path in paths))
    assert [note[:53] for note in listed.notes] == ["the folders train, val look like splits, but their im"] * notes


@pytest.mark.slow
def test_a_list_of_paths_and_labels(tmp_path):
    write_folders(tmp_path / "raw", per_class=6)
    lines = [f"{p.relative_to(tmp_path / 'raw')},{p.parent.name}" for p in sorted((tmp_path / "raw").glob("*/*"))]
    lines += ["../secret.png,disc", "/etc/passwd,disc", "gs://b/x.png,disc", "disc/nowhere.png,disc"]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    schema = "name: s\nformat: image_folder\nimages: {listing: csv, root: raw, resize: {exact: [8, 8]}, "
    schema += f"{FIXED}}}\n{TRAIN}"
    dataset = run(tmp_path, schema, str(tmp_path / "list.csv"), max_reject_fraction=1.0)
    assert (dataset.manifest.read, dataset.manifest.written) == (16, 12)
    reasons = [(c.stage, c.reason, c.rows) for c in dataset.manifest.counts if c.outcome == "rejected"]
    assert ("list", "path_outside_root", 3) in reasons
    assert sum(rows for *_, rows in reasons) == 4
    rejects = rejects_by_name(dataset)
    assert rejects["nowhere.png"].raw == b"disc/nowhere.png,disc"
    assert (rejects["list.csv"].raw, rejects["list.csv"].column) == (b"gs://b/x.png,disc", "path")


@pytest.mark.slow
def test_a_split_by_folder_keeps_each_class_in_one_split(tmp_path):
    people = [f"p{person}" for person in range(12)]
    for person, name in enumerate(people):
        (tmp_path / "raw" / name).mkdir(parents=True)
        for i in range(3):
            (tmp_path / "raw" / name / f"{i}.png").write_bytes(
                tf.io.encode_png(draw(person % 2, 100 * person + i)).numpy()
            )
    schema = FOLDERS + "split: {by: folder, train: 0.6, eval: 0.4, test: 0}\n"
    dataset = run(tmp_path, schema, str(tmp_path / "raw/*/*"))
    by_split = {s: collections.Counter(e["image/class/text"][0] for e in examples(dataset, s)) for s in dataset.splits}
    assert not by_split["train"].keys() & by_split["eval"].keys()
    assert by_split["train"] + by_split["eval"] == collections.Counter({name.encode(): 3 for name in people})
    assert verify_dataset(dataset.path) == []


@pytest.mark.slow
def test_a_file_is_read_once_and_may_change_or_go_behind_the_job(tmp_path, monkeypatch):
    write_folders(tmp_path / "raw", per_class=6)
    files = {str(p): p.read_bytes() for p in sorted((tmp_path / "raw").glob("*/*"))}
    read_bytes = storage.read_bytes

    def read_and_lose(path: str) -> bytes:
        data = read_bytes(path)
        if path in files:
            os.unlink(path) if path.endswith("1.png") else Path(path).write_bytes(b"another file by now")
        return data

    monkeypatch.setattr(storage, "read_bytes", read_and_lose)
    dataset = run(tmp_path, ALL_TRAIN, str(tmp_path / "raw/*/*"))
    assert (dataset.manifest.written, dataset.manifest.rejected) == (12, 0)
    raw_examples = [tf.train.Example.FromString(r.numpy()) for r in parity_records(dataset, layout.PARITY_RAW)]
    assert len(raw_examples) == len(list(parity_records(dataset, layout.PARITY_TRANSFORMED))) == 12
    assert {e.features.feature["image"].bytes_list.value[0] for e in raw_examples} == set(files.values())


@pytest.mark.parametrize(
    ("schema", "pattern", "message"),
    [
        (FOLDERS, "nowhere/*", "no file matches this pattern"),
        (FOLDERS, "raw/disc/*", "has only the class 'disc'"),
    ],
)
def test_what_cannot_become_a_data_set_is_told_before_any_work(tmp_path, schema, pattern, message):
    write_folders(tmp_path / "raw", per_class=2)
    with pytest.raises(UsageError, match=message):
        run(tmp_path, schema, str(tmp_path / pattern))


def test_a_list_of_which_no_line_is_taken_tells_why(tmp_path):
    write_folders(tmp_path / "raw", per_class=1)
    (tmp_path / "list.csv").write_text("disc/000.jpg;disc\nbar/000.jpg;bar\n")
    schema = FOLDERS.replace("images: {", "images: {listing: csv, root: raw, ")
    with pytest.raises(
        UsageError, match="lists no images, and refuses 2 such as: line 1: 1 field, expected path,label"
    ):
        run(tmp_path, schema, str(tmp_path / "list.csv"))


@pytest.mark.slow
def test_new_images_go_through_an_existing_transform(shapes, tmp_path):
    _, first = shapes
    write_folders(tmp_path / "raw", per_class=4)
    for path in (tmp_path / "raw").glob("*/*"):
        path.write_bytes(tf.io.encode_png(np.full((30, 30, 3), 200, np.uint8)).numpy())
    second = run(tmp_path, FOLDERS + TRAIN, str(tmp_path / "raw/*/*"), transform_from=first.path)
    probe = {"pixels": tf.constant([[1.0, 2.0, 3.0]])}
    made = [
        tft.TFTransformOutput(d.run_dir).transform_raw_features(probe, drop_unused_features=True)["pixels"].numpy()
        for d in (first, second)
    ]
    assert (made[0] == made[1]).all()


@pytest.mark.slow
def test_a_transform_fits_however_the_same_images_are_listed(fixed, tmp_path):
    write_folders(tmp_path / "raw", per_class=6)
    first = fixed
    listed = "disc/001.png,disc\nbar/001.png,bar\n"
    (tmp_path / "list.csv").write_text(listed)
    by_list = ALL_TRAIN.replace("images: {", "images: {listing: csv, root: raw, max_pixels: 1000000, ")
    second = run(tmp_path, by_list, str(tmp_path / "list.csv"), output="more", transform_from=first.path)
    assert (second.manifest.written, second.manifest.transform_from) == (2, first.run)
    (tmp_path / "list.csv").write_text(listed + "disc/002.png,ring\n")
    with pytest.raises(UsageError, match=r"has the classes bar, disc, and not bar, disc, ring .*values: \[bar, disc\]"):
        run(tmp_path, by_list, str(tmp_path / "list.csv"), output="other", transform_from=first.path)
    smaller = by_list.replace("[24, 32]", "[24, 30]")
    with pytest.raises(UsageError, match="was written with other `images`"):
        run(tmp_path, smaller, str(tmp_path / "list.csv"), output="other", transform_from=first.path)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """Twenty-five names in two folders, three of them bad, of which four are in memory at once."""
    monkeypatch.setattr(source, "AT_ONCE", 4)
    for i in range(25):
        folder = tmp_path / ["cat", "dog"][i % 2]
        folder.mkdir(exist_ok=True)
        name = b"bad-%d\xff.png" % i if i % 10 == 3 else b"bad\n%d.png" % i if i == 8 else b"%d.png" % i
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"x" * i)
    return list_files([f"{tmp_path}/*/*"])[0]


def test_images_and_rejects_are_those_of_the_folders(files):
    listed = image_list(files)
    assert (listed.images, listed.classes, listed.bytes) == (21, ("cat", "dog"), sum(range(25)))
    bundles = list(listed.bundles())
    assert [bundle.first for bundle in bundles][:2] == [0, len(bundles[0].paths)]
    assert max(len(bundle.paths) for bundle in bundles) <= 4
    paths = [path for bundle in bundles for path in bundle.paths]
    assert len(set(paths)) == 21
    for bundle in bundles:
        for path, name, label in zip(bundle.paths, bundle.names, bundle.labels, strict=True):
            assert path.endswith(f"/{name}")
            assert name.partition("/")[0] == label
    rejects = [reject for batch in listed.rejects() for reject in batch]
    assert {reject.reason for reject in rejects} == {"bad_name"}
    assert len({reject.offset for reject in rejects}) == len(rejects) == 4
    everything = [file.path for file in files]
    assert {os.fsencode(everything[reject.offset]) for reject in rejects} == {reject.raw for reject in rejects}
