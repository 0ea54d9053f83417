"""Schemas of folders of images, and such a schema compared with other images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from schemas.errors import UsageError
from schemas.init.check import render
from schemas.init.images import are_images, check_images, infer_images
from schemas.spec.images import Exact, ImageFolderSchema, Shorter
from schemas.spec.loader import parse_schema
from tests.support.image_files import png


def draw(folder: Path, classes: dict[str, int], *, height: int = 40, width: int = 60) -> list[str]:
    rng = np.random.default_rng(1)
    for name, count in classes.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            shape = (height + i % 3 * (height > 32), width, 3)
            (folder / name / f"{i}.png").write_bytes(png(rng.integers(0, 256, shape, dtype=np.uint8)))
    return sorted(str(path) for path in folder.rglob("*.png"))


def schema_of(text: str) -> ImageFolderSchema:
    schema = parse_schema(text.encode(), "written", for_job=True)
    assert isinstance(schema, ImageFolderSchema)
    return schema


def test_classes_sizes_and_a_size_for_the_model(tmp_path):
    paths = draw(tmp_path / "pets", {"cat": 60, "dog": 50}, height=100, width=150)
    inferred = infer_images(paths)
    schema = schema_of(inferred.text)
    assert (schema.name, schema.label.values, inferred.rows) == ("pets", ("cat", "dog"), 110)
    assert isinstance(schema.images.resize, Shorter)
    assert (schema.images.resize.shorter, schema.images.crop) == (72, (64, 64))
    assert schema.split.splits == ("train", "eval", "test")
    assert "# Classes: cat 55 %, dog 45 %." in inferred.text
    assert "# Formats: png 100 %." in inferred.text
    assert inferred.notes == ()


def test_small_images_of_one_size_are_taken_as_they_are(tmp_path):
    schema = schema_of(infer_images(draw(tmp_path, {"0": 30, "1": 30}, height=28, width=28)).text)
    assert isinstance(schema.images.resize, Exact)
    assert (schema.images.resize.exact, schema.images.store, schema.images.crop) == ((28, 28), "raw", None)
    assert schema.label.values == ("0", "1")
    assert schema.split.splits == ("train", "eval")


def test_what_will_be_rejected_is_said(tmp_path):
    draw(tmp_path, {"a": 12, "b": 12})
    (tmp_path / "a" / "note.png").write_bytes(b"hello")
    (tmp_path / "b" / "empty.png").write_bytes(b"")
    inferred = infer_images(sorted(map(str, tmp_path.rglob("*.png"))))
    assert [note.split(",")[0] for note in inferred.notes] == [
        "1 image of 26 will be rejected as not_an_image",
        "1 image of 26 will be rejected as empty_file",
    ]
    schema_of(inferred.text)


def test_many_small_folders_may_be_identities(tmp_path):
    text = infer_images(draw(tmp_path, {f"p{i:02d}": 2 for i in range(20)})).text
    assert "image_pairs" in text
    assert schema_of(text).split.splits == ("train",)  # 40 images


def test_a_single_class_and_unreadable_images(tmp_path):
    with pytest.raises(UsageError, match="one class; expected a folder for each class"):
        infer_images(draw(tmp_path / "one", {"a": 3}))
    for name in ("x", "y"):
        (tmp_path / "bad" / name).mkdir(parents=True)
        (tmp_path / "bad" / name / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(UsageError, match="none of 2 images can be read"):
        infer_images(sorted(map(str, (tmp_path / "bad").rglob("*.png"))))


def test_images_are_told_from_tables(tmp_path):
    (tmp_path / "t.png").write_text("a,b\n1,2\n")
    (tmp_path / "empty.png").write_bytes(b"")
    table, empty = str(tmp_path / "t.png"), str(tmp_path / "empty.png")
    assert not are_images([table])
    assert are_images([empty, *draw(tmp_path / "i", {"a": 3})])


def test_a_schema_and_other_images(tmp_path):
    schema = schema_of(infer_images(draw(tmp_path / "old", {"a": 30, "b": 30, "c": 30})).text)
    paths = draw(tmp_path / "new", {"a": 5, "b": 5})
    found, _ = check_images(schema, paths)
    assert (found.loses, found.absent, found.read) == (False, ("c",), 10)
    paths = draw(tmp_path / "new", {"d": 2})
    Path(paths[0]).write_bytes(b"no image")
    found, told = check_images(schema, paths)
    assert found.loses
    lines = list(render(found, schema, "s.yaml"))
    assert lines[0].startswith("rejected: 2 images (17 %), label_not_in_values; first ")
    assert lines[-1] == "s.yaml would lose images: 9 of 12 images would be written"
    assert "classes that do not occur: c" in lines
    assert told["lost"] == 3
    assert [(each["reason"], each["images"]) for each in told["rejected"]] == [
        ("label_not_in_values", 2),
        ("not_an_image", 1),
    ]
