"""What is wrong with one image of a request fails no other, and what is right with all of them takes the direct way."""

from __future__ import annotations

import io
import random

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from tests.support.drawn_datasets import striped
from tests.support.image_files import bmp, gif, png
from trainer.export.image_receivers import is_ordinary, load_ingest, map_ignoring_errors, map_isolated

PIXELS = striped("lying", 1)
GRID = np.indices((50, 70)).sum(0) // 6 % 2


def jpeg(pixels: np.ndarray, **options: object) -> bytes:
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).save(out, "JPEG", **options)
    return out.getvalue()


def large(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 255, (height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def images(stripes):
    return stripes.image_schema.images


@pytest.fixture(scope="module")
def ordinary(images):
    """Which of some files take the direct way."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        files = tf.compat.v1.placeholder(tf.string, [None])
        looked_at = map_ignoring_errors(files, lambda data: is_ordinary(data, images), tf.TensorSpec([], tf.bool))
        run = session.make_callable(looked_at, [files])

        def found(*data: bytes) -> list[bool]:
            decoded = dict(zip(*(part.tolist() for part in run(list(data))), strict=True))
            return [decoded.get(place, False) for place in range(len(data))]

        yield found


def test_jpegs_and_pngs_of_ordinary_sizes_take_the_direct_way(ordinary):
    files = [
        jpeg(PIXELS),
        jpeg(PIXELS, progressive=True),
        jpeg(PIXELS, subsampling=0),
        jpeg(PIXELS[..., 0]),
        png(PIXELS),
        jpeg(large(600, 800)),
    ]
    assert ordinary(*files) == [True] * len(files)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        gif([GRID]),
        bmp(PIXELS),
        jpeg(PIXELS)[:-200],
        png(PIXELS)[:-200],
        jpeg(PIXELS)[:20],
        png(PIXELS)[:20],
        png(PIXELS[:1, :1], size=(60_000, 60_000)),
        png(PIXELS[:1, :1], size=(0, 5)),
        jpeg(large(10, 200)),
        jpeg(PIXELS) + b"\xff\xda" * 600,
    ],
    ids=lambda data: data[:8].hex() + f" {len(data)}",
)
def test_all_else_takes_the_way_on_which_it_may_fail(ordinary, data):
    assert ordinary(jpeg(PIXELS), data, png(PIXELS)) == [True, False, True]


@pytest.mark.slow
def test_what_takes_the_direct_way_never_fails_there(ordinary, stripes):
    """Otherwise one image would fail its whole request. Damaged files, some of which decoders accept."""
    draw = random.Random(7)
    whole = [jpeg(PIXELS), jpeg(PIXELS, progressive=True), png(PIXELS), jpeg(large(90, 70), quality=30)]
    damaged = []
    for _ in range(1500):
        changed = bytearray(draw.choice(whole))
        for _ in range(draw.choice([1, 1, 2, 20])):
            changed[draw.randrange(len(changed))] = draw.randrange(256)
        damaged.append(bytes(changed[: draw.choice([len(changed), len(changed), draw.randrange(1, len(changed))])]))
    sure = [data for data, taken in zip(damaged, ordinary(*damaged), strict=True) if taken]
    assert 100 < len(sure) < 1400
    record = load_ingest(stripes).record
    for data in sure:
        record(tf.constant(data))


def test_both_ways_give_the_same(images, stripes):
    good = [jpeg(PIXELS), png(PIXELS), jpeg(large(60, 80))]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        ingest = load_ingest(stripes)
        files = tf.compat.v1.placeholder(tf.string, [None])

        def length(data: tf.Tensor) -> tf.Tensor:
            return tf.strings.length(ingest.record(data)["image/encoded"])

        result = map_isolated(files, length, tf.TensorSpec([], tf.int32), images)
        direct, taken = session.run(result, {files: good})
        beside, of_these = session.run(result, {files: [good[0], b"bad", *good[1:], gif([GRID])]})
        nothing = session.run(result, {files: [b"bad", b""]})
        none = session.run(result, {files: []})
    assert taken.all()
    assert of_these.tolist() == [True, False, True, True, True]
    assert beside[:3].tolist() == direct.tolist()
    assert len(beside) == 4
    assert nothing[1].tolist() == [False, False]
    assert [len(part) for part in (nothing[0], *none)] == [0, 0, 0]
