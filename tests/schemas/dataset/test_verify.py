"""What verification finds in files and in records."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas import storage
from schemas.dataset import open_dataset
from schemas.dataset.check_records import RecordCheck
from schemas.dataset.checks import ReadProgress
from schemas.dataset.records import StoredFeature
from schemas.dataset.verify import total_bytes, verify_dataset
from schemas.errors import MillraceError
from schemas.spec.images import Exact, ImageOptions, Shorter
from tests.support.dataset_faults import (
    FAULTS,
    Expected,
    Written,
    flip,
    write_csv,
    write_images,
)

KINDS: dict[str, Callable[[Path], Written]] = {
    "csv-gzip": lambda folder: write_csv(folder, compression="gzip"),
    "images-gzip": lambda folder: write_images(folder, "jpeg", compression="gzip"),
}


@pytest.fixture(scope="module", params=["csv", "images", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS)])
def written(request, tmp_path_factory, people_dataset: Written, image_dataset: Written) -> Written:
    """A valid dataset. Not to be changed."""
    if request.param in KINDS:
        return KINDS[request.param](tmp_path_factory.mktemp(request.param))
    return people_dataset if request.param == "csv" else image_dataset


@pytest.fixture
def damaged(written: Written, tmp_path: Path) -> Written:
    """A copy to do damage to."""
    shutil.copytree(written.path, tmp_path / "out")
    return Written(tmp_path / "out", written.manifest)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_is_named_and_nothing_else_is(damaged: Written, fault: Callable[[Written], Expected]) -> None:
    expected = fault(damaged)
    problems = damaged.problems()
    assert len(problems) == len(expected), [str(problem) for problem in problems]
    for problem, (path, kind, message) in zip(problems, expected, strict=True):
        assert problem.path.endswith(path)
        assert re.fullmatch(kind, problem.kind)
        assert re.search(message, problem.message), problem.message


def test_a_valid_dataset_has_no_problems_and_every_byte_and_record_is_read(written: Written) -> None:
    tally = ReadProgress()
    assert verify_dataset(str(written.path), tally=tally) == []
    assert tally.bytes == total_bytes(written.manifest)
    assert tally.rows == written.manifest.written
    assert tally.files == len(written.manifest.contents)


def test_any_bit_that_flips_in_any_file_is_found(damaged: Written) -> None:
    draw = random.Random(1)
    files = [file.path for file in damaged.manifest.files if file.bytes]
    for path in [shard.path for split in damaged.manifest.splits for shard in damaged.shards(split)] + files:
        whole = (damaged.path / path).read_bytes()
        flip(damaged.path / path, draw.randrange(len(whole)))
        assert path in {problem.path for problem in damaged.problems()}
        (damaged.path / path).write_bytes(whole)
    assert damaged.problems() == []


def test_an_interrupted_verification_ends(written: Written) -> None:
    tally = ReadProgress()

    def interrupt(**amounts: int) -> None:
        raise KeyboardInterrupt

    tally.add = interrupt  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        verify_dataset(str(written.path), tally=tally)
    assert tally.stop.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("written", ["csv-gzip"], indirect=True)
def test_a_dataset_in_a_bucket_is_verified(written: Written, bucket: str) -> None:
    for path in written.path.rglob("*"):
        if path.is_file():
            storage.write_bytes(f"{bucket}/out/{path.relative_to(written.path)}", path.read_bytes())
    assert open_dataset(f"{bucket}/out").run == written.manifest.run
    assert verify_dataset(f"{bucket}/out") == []
    first, second = written.shards()[:2]
    storage.write_bytes(f"{bucket}/out/{first.path}", (written.path / second.path).read_bytes())
    storage.delete(f"{bucket}/out/{second.path}")
    assert [(p.path, p.kind) for p in verify_dataset(f"{bucket}/out")] == [
        (first.path, "swapped"),
        (second.path, "missing"),
    ]


FEATURES = (
    StoredFeature("age", "float32"),
    StoredFeature("bag", "int64", None),
    StoredFeature("city", "int64", low=0, high=4),
    StoredFeature("id", "string"),
    StoredFeature("point", "float32", (3,), finite=True),
)
GOOD: dict[str, list[Any]] = {"age": [1.5], "bag": [1, 2], "city": [4], "id": [b"k"], "point": [1.0, 2.0, 3.0]}


def example(features: dict[str, list[Any]]) -> bytes:
    """A serialized `tf.Example`; a list's first value says what it is a list of."""

    def feature(values: list[Any]) -> tf.train.Feature:
        match values:
            case [bytes(), *_]:
                return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
            case [float(), *_]:
                return tf.train.Feature(float_list=tf.train.FloatList(value=values))
            case [int(), *_]:
                return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        return tf.train.Feature()

    return tf.train.Example(
        features=tf.train.Features(feature={name: feature(values) for name, values in features.items()})
    ).SerializeToString()


def without(name: str) -> dict[str, list[Any]]:
    return {key: values for key, values in GOOD.items() if key != name}


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (without("age"), "'age' holds 0 values, expected 1"),
        (GOOD | {"age": []}, "'age' holds 0 values, expected 1"),
        (GOOD | {"age": [3]}, "'age' holds int64, expected float32"),
        (GOOD | {"id": [3.0]}, "'id' holds float32, expected string"),
        (GOOD | {"bag": [b"a"]}, "'bag' holds string, expected int64"),
        (GOOD | {"point": [1.0, 2.0]}, "'point' holds 2 values, expected 3"),
        (GOOD | {"city": [1, 2]}, "'city' holds 2 values, expected 1"),
        (GOOD | {"point": [1.0, float("nan"), 3.0]}, "'point' is nan, which is not a finite number"),
        (GOOD | {"point": [1.0, 2.0, float("-inf")]}, "'point' is -inf, which is not a finite number"),
        (GOOD | {"city": [5]}, "'city' is 5, expected 0 to 4"),
        (GOOD | {"city": [-1]}, "'city' is -1, expected 0 to 4"),
        (GOOD | {"more": [1]}, "holds 'more', which is not a feature of this dataset"),
        ({}, "'age' holds 0 values, expected 1"),
    ],
)
@pytest.mark.parametrize("among", [0, 1, 50])
def test_a_record_that_does_not_fit_the_schema_is_found_among_others(features, message, among):
    records = [example(GOOD)] * among + [example(features)] + [example(GOOD)] * among
    ((place, what),) = RecordCheck(FEATURES)(records).items()
    assert place == among
    assert what.startswith(message)


@pytest.mark.parametrize("bag", [[], [7], None])
def test_a_feature_of_any_length_may_be_empty_or_absent(bag):
    good = without("bag") if bag is None else GOOD | {"bag": bag}
    assert RecordCheck(FEATURES)([example(good)] * 3) == {}


def test_every_record_that_is_wrong_is_named_in_order():
    records = [example(GOOD | {"city": [i]}) for i in range(10)] + [b"\xff", example(without("id"))]
    faults = RecordCheck(FEATURES)(records)
    assert list(faults) == [*range(5, 10), 10, 11]
    assert faults[10].startswith("is not a tf.Example")


PIXELS = np.zeros((4, 6, 3), np.uint8)
JPEG = tf.io.encode_jpeg(PIXELS).numpy()
IMAGE_FEATURES = (
    StoredFeature("image/class/label", "int64", low=0, high=1),
    StoredFeature("image/class/text", "string"),
    StoredFeature("image/encoded", "string"),
    StoredFeature("image/filename", "string"),
    StoredFeature("image/format", "string"),
    StoredFeature("image/height", "int64", low=1),
    StoredFeature("image/width", "int64", low=1),
)
IMAGE: dict[str, list[Any]] = {
    "image/class/label": [1],
    "image/class/text": [b"dog"],
    "image/encoded": [JPEG],
    "image/filename": [b"dog/1.jpg"],
    "image/format": [b"JPEG"],
    "image/height": [4],
    "image/width": [6],
}
AS_JPEG = ImageOptions(resize=Exact(exact=(4, 6)))
AS_RAW = ImageOptions(resize=Shorter(shorter=4), crop=(4, 4), store="raw")
RAW: dict[str, list[Any]] = IMAGE | {"image/encoded": [PIXELS.tobytes()], "image/format": [b"RAW"]}


@pytest.mark.parametrize(
    ("options", "record", "message"),
    [
        (AS_JPEG, IMAGE, ""),
        (AS_RAW, RAW, ""),
        (AS_JPEG, IMAGE | {"image/format": [b"PNG"]}, "'image/format' is b'PNG', expected b'JPEG'"),
        (AS_RAW, IMAGE, "'image/format' is b'JPEG', expected b'RAW'"),
        (AS_JPEG, IMAGE | {"image/height": [5]}, "an image of 5 x 6 pixels, which is not the size that `resize` gives"),
        (AS_RAW, RAW | {"image/height": [5]}, "an image of 5 x 6 pixels, which is not the size that `resize` gives"),
        (AS_RAW, RAW | {"image/width": [7]}, "'image/encoded' holds 72 bytes for 4 x 7 pixels"),
        (AS_JPEG, IMAGE | {"image/encoded": [b"GIF89a"]}, "'image/encoded' is not an image"),
        (AS_JPEG, IMAGE | {"image/encoded": [JPEG[:-2]]}, "'image/encoded' ends early"),
        (
            AS_JPEG,
            IMAGE | {"image/encoded": [tf.io.encode_jpeg(PIXELS[:3]).numpy()]},
            "'image/encoded' holds a jpeg of 3 x 6 pixels, expected a jpeg of 4 x 6",
        ),
        (AS_JPEG, IMAGE | {"image/class/label": [2]}, "'image/class/label' is 2, expected 0 to 1"),
        (AS_JPEG, IMAGE | {"image/class/text": [b"cat"]}, "is of class 1, 'dog', but says b'cat'"),
    ],
)
def test_an_invalid_stored_image_is_found(options, record, message):
    check = RecordCheck(IMAGE_FEATURES, options, ("cat", "dog"))
    faults = check([example(RAW if options is AS_RAW else IMAGE), example(record)])
    assert list(faults) == ([1] if message else [])
    assert message in faults.get(1, "")


@pytest.fixture
def data(people_dataset: Written, tmp_path: Path) -> Written:
    """A copy to put links into."""
    return Written(Path(shutil.copytree(people_dataset.path, tmp_path / "out")), people_dataset.manifest)


Put = Callable[[Path, Path], None]


def link(path: Path, target: Path) -> None:
    """Moves what is at a path elsewhere, and has a link lead to it."""
    shutil.move(path, target)
    path.symlink_to(target)


def nowhere(path: Path, _: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


# What becomes a link, relative to the dataset; where what was there is moved, relative to the run; and how.
LINKS = {
    "a shard outside": ("SHARD", "../../elsewhere", link),
    "a shard inside": ("SHARD", "moved.tfrecord", link),
    "a shard that leads nowhere": ("SHARD", "", nowhere),
    "the run": ("RUN", "../../elsewhere", link),
    "the transform": ("RUN/transform_fn", "../../elsewhere", link),
    "a folder of the transform": ("RUN/transform_fn/variables", "../../elsewhere", link),
    "the schema": ("RUN/schema.yaml", "../../elsewhere", link),
}


@pytest.mark.parametrize(("name", "target", "put"), LINKS.values(), ids=LINKS)
def test_verify_reports_a_link_and_no_reader_follows_it(data: Written, name: str, target: str, put: Put) -> None:
    path = name.replace("SHARD", data.shards()[1].path).replace("RUN", data.manifest.run)
    put(data.path / path, Path(os.path.normpath(data.run / target)))
    problems = [problem for problem in data.problems() if problem.kind != "extra"]
    assert [(problem.path, problem.kind) for problem in problems] == [(path, "link")]
    assert "is a link to " in problems[0].message
    with pytest.raises(MillraceError, match=f"{path}: is a link to .* or write the dataset again"):
        open_dataset(str(data.path))


@pytest.mark.parametrize("name", ["assets", "assets.extra", "more"])
def test_an_unlisted_link_to_a_folder_is_found_and_no_graph_is_loaded_beside_it(data: Written, name: str) -> None:
    """`os.walk` does not go into it, so that its files are in no list."""
    elsewhere = data.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "saved_model.cpb").write_bytes(b"x")
    link = data.run / "transform_fn" / name
    shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(elsewhere)
    assert (f"{data.manifest.run}/transform_fn/{name}", "link") in [(p.path, p.kind) for p in data.problems()]
    with pytest.raises(MillraceError, match=f"transform_fn/{name}: is a link to "):
        _ = open_dataset(str(data.path)).graphs_dir


def test_a_graph_that_becomes_a_link_while_the_dataset_is_open(data: Written) -> None:
    dataset = open_dataset(str(data.path))
    link(data.run / "transform_fn", data.path.parent / "elsewhere")
    with pytest.raises(MillraceError, match=r"transform_fn: is a link to .* No graph is loaded through a link"):
        _ = dataset.graphs_dir


def test_a_pipe_in_a_files_place_does_not_stop_verify(data: Written) -> None:
    for path in (data.path / data.shards()[0].path, data.run / "schema.pbtxt", data.run / "schema.yaml"):
        path.unlink()
        os.mkfifo(path)
    problems = {(p.path, p.kind) for p in data.problems()}
    assert {(data.shards()[0].path, "unreadable"), (f"{data.manifest.run}/schema.pbtxt", "unreadable")} <= problems
