"""Stored records that are not as their schema says, and what is said of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset.check_records import RecordCheck, StoredImages
from schemas.dataset.records import StoredFeature
from schemas.spec.images import Exact, ImageFolderSchema, ImageOptions, Shorter

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
    ("features", "said"),
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
def test_a_record_that_does_not_fit_the_schema_is_found_among_others(features, said, among):
    records = [example(GOOD)] * among + [example(features)] + [example(GOOD)] * among
    ((place, what),) = RecordCheck(FEATURES)(records).items()
    assert place == among
    assert what.startswith(said)


@pytest.mark.parametrize("bag", [[], [7], None])
def test_a_feature_of_any_length_may_be_empty_or_absent(bag):
    good = without("bag") if bag is None else GOOD | {"bag": bag}
    assert RecordCheck(FEATURES)([example(good)] * 3) == {}


def test_values_that_are_not_finite_pass_unless_the_manifest_promises_otherwise():
    assert RecordCheck(FEATURES)([example(GOOD | {"age": [float("nan")]})]) == {}


def test_every_record_that_is_wrong_is_named_in_order():
    records = [example(GOOD | {"city": [i]}) for i in range(10)] + [b"\xff", example(without("id"))]
    found = RecordCheck(FEATURES)(records)
    assert list(found) == [*range(5, 10), 10, 11]
    assert found[10].startswith("is not a tf.Example")


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
    ("options", "record", "said"),
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
def test_an_invalid_stored_image_is_found(options, record, said):
    schema = ImageFolderSchema(name="pets", format="image_folder", images=options)
    check = RecordCheck(IMAGE_FEATURES, StoredImages(schema, ("cat", "dog")))
    found = check([example(RAW if options is AS_RAW else IMAGE), example(record)])
    assert list(found) == ([1] if said else [])
    assert said in found.get(1, "")
