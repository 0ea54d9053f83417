"""Bytes that belong to nothing between a JPEG's segments: skipped up to the next marker, as every decoder does."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import tensorflow as tf

from beam_jobs.images.ingest import stored_and_pixels
from schemas.images.header import BadImage, check_image, read_header
from schemas.spec.images import Exact, ImageOptions
from tests.support.image_files import draw

IMAGES = ImageOptions(resize=Exact(exact=(24, 32)))
JUNK = (
    b"\0",
    b"junk",
    b"\xff",
    b"\xff\xff\xff",
    b"\xff\0",
    b"\xff\0" * 1000,
    bytes(range(255)) * 400,
)  # the last: 100 KB without a 0xff


def segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Place and marker of each segment up to the first scan's."""
    place = 2
    while True:
        yield place, data[place + 1]
        if data[place + 1] == 0xDA:
            return
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")


def drawn(**options: object) -> bytes:
    out = io.BytesIO()
    PIL.Image.fromarray(draw(0, 1, height=40, width=56)).save(out, "JPEG", comment=b"a comment", **options)
    return out.getvalue()


def jpegs(real_data: Path) -> Iterator[bytes]:
    yield drawn()
    yield drawn(progressive=True)
    for folder in ("cats", "dogs"):
        yield from (path.read_bytes() for path in sorted((real_data / "images" / folder).glob("*.jpg"))[:2])
    yield (real_data / "nasty_images" / "hopper_orientation_6.jpg").read_bytes()


@pytest.mark.slow
def test_it_is_read_as_if_it_were_not_there(real_data: Path) -> None:
    ingest = stored_and_pixels(IMAGES)
    inserted = 0
    for data in jpegs(real_data):
        header = check_image(data, IMAGES)
        stored, pixels = ingest(np.array(data, object))
        for place, _ in list(segments(data))[1:]:
            for junk in JUNK:
                damaged = data[:place] + junk + data[place:]
                assert check_image(damaged, IMAGES) == header
                again, same = ingest(np.array(damaged, object))
                assert np.array_equal(same, pixels)
                assert again == stored
                with PIL.Image.open(io.BytesIO(damaged)) as opened:
                    opened.load()
                    assert opened.size == (header.width, header.height)
                inserted += 1
    assert inserted > 200


@pytest.mark.parametrize("junk", JUNK[:2])
def test_behind_the_first_two_bytes_it_is_no_image_for_anybody(junk: bytes) -> None:
    """A format is told by three bytes."""
    data = drawn()
    damaged = data[:2] + junk + data[2:]
    with pytest.raises(BadImage, match="not_an_image"):
        read_header(damaged)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not_an_image"):
        stored_and_pixels(IMAGES)(np.array(damaged, object))
    with pytest.raises(PIL.UnidentifiedImageError):
        PIL.Image.open(io.BytesIO(damaged))


@pytest.mark.parametrize("rest", [b"", b"\0" * 10_000_000, b"\xff" * 10_000_000, b"\xff\0" * 5_000_000])
def test_without_another_marker_it_ends_early(rest: bytes) -> None:
    """Searched in one go, whatever its length."""
    with pytest.raises(BadImage, match="truncated_image"):
        read_header(b"\xff\xd8\xff\xfe\0\x02" + rest)


def test_more_segments_than_any_camera_writes_are_refused() -> None:
    with pytest.raises(BadImage, match="more than 10,000 segments"):
        read_header(b"\xff\xd8" + b"\xff\xfe\0\x02junk" * 20_000)
