"""Headers: format and size from the first bytes, and a reason for all that is not taken."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.images.header import (
    BadImage,
    ImageHeader,
    check_image,
    decoding_branches,
    decoding_bytes,
    decoding_ratio,
    ends_early,
    read_header,
)
from schemas.spec.images import Exact, ImageOptions, Shorter
from tests.support.image_files import GRADIENT, bmp, gif, jpeg_header, png

PIXELS = np.zeros((3, 5, 3), np.uint8)
FRAME = np.ones((3, 5), np.uint8)
EXIF = b"\xff\xe1\x00\x10" + b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01" + bytes(5)  # a frame header that is only data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(png(PIXELS), ("png", 3, 5, False), id="png"),
        pytest.param(bmp(PIXELS), ("bmp", 3, 5, False), id="bmp"),
        pytest.param(bmp(PIXELS, size=(-3, 5)), ("bmp", 3, 5, False), id="bmp from the top"),
        pytest.param(gif([FRAME]), ("gif", 3, 5, False), id="gif"),
        pytest.param(gif([FRAME], comment=b"\x2c" * 700), ("gif", 3, 5, False), id="gif behind a comment"),
        pytest.param(jpeg_header(3, 5), ("jpeg", 3, 5, False), id="jpeg"),
        pytest.param(jpeg_header(3, 5, before=EXIF), ("jpeg", 3, 5, False), id="jpeg with EXIF"),
        pytest.param(
            jpeg_header(3, 5, before=b"\xff" * 5 + EXIF[1:]), ("jpeg", 3, 5, False), id="jpeg with fill bytes"
        ),
        pytest.param(jpeg_header(3, 5, coding=2), ("jpeg", 3, 5, True), id="progressive jpeg"),
        pytest.param(jpeg_header(3, 5, scan=1), ("jpeg", 3, 5, True), id="jpeg of several scans"),
    ],
)
def test_header(data: bytes, expected: tuple[str, int, int, bool]) -> None:
    header = read_header(data)
    assert (header.format, header.height, header.width, header.buffered) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"hello, world", "not_an_image"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "unsupported_format"),
        (b"\0\0\0\x1cftypheic", "unsupported_format"),
        (b"<svg xmlns=", "unsupported_format"),
        (png(PIXELS)[:20], "truncated_image"),
        (png(PIXELS).replace(b"IHDR", b"JHDR"), "bad_header"),
        (png(PIXELS, size=(0, 5)), "bad_header"),
        (gif([FRAME])[:9], "truncated_image"),
        (gif([FRAME])[:15], "truncated_image"),
        (gif([FRAME]).replace(b"\x2c", b"\x77", 1), "bad_header"),
        (bmp(PIXELS)[:30], "truncated_image"),
        (bmp(PIXELS, bits=1), "unsupported_format"),
        (bmp(PIXELS, compression=1), "unsupported_format"),
        (bmp(PIXELS, size=(3, -5)), "bad_header"),
        (jpeg_header(3, 5)[:8], "truncated_image"),
        (jpeg_header(3, 5, bits=12), "unsupported_format"),
        (jpeg_header(3, 5, coding=3), "unsupported_format"),
        (jpeg_header(0, 5), "bad_header"),
        (jpeg_header(3, 5, coding=2) + b"\xff\xda\0" * 600, "too_many_scans"),
        (jpeg_header(3, 5, scan=1) + b"\xff\xda\0" * 600, "too_many_scans"),
        (jpeg_header(3, 5, before=b"\xff\xe1\0\2" * 20_000), "bad_header"),
        (jpeg_header(3, 5, before=b"\xff\xd0" * 20_000), "bad_header"),
        (gif([FRAME], comment=b"x" * 255 * 300_000), "too_many_blocks"),
        (gif([FRAME]).replace(b"\x2c", b"\x21\xfe\0" * 150_000 + b"\x2c", 1), "too_many_blocks"),
        (b"\xff\xd8\xff\xe0\x00\x00", "bad_header"),
        (b"\xff\xd8\xff\xd9", "bad_header"),
    ],
)
def test_a_file_that_is_not_taken_has_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as caught:
        read_header(data)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "data", [png(GRADIENT), bmp(GRADIENT), gif([FRAME] * 3, comment=b"hi"), jpeg_header(9, 9, before=EXIF)]
)
def test_a_header_cut_anywhere_is_read_or_refused(data: bytes) -> None:
    for end in range(len(data)):
        try:
            assert read_header(data[:end]) == read_header(data) or end
        except BadImage as bad:
            assert bad.reason in ("empty_file", "not_an_image", "truncated_image")  # noqa: PT017


OPTIONS = ImageOptions(resize=Shorter(shorter=8), crop=(8, 8), max_pixels=10_000)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png(PIXELS, size=(101, 100)), "too_many_pixels"),
        (gif([FRAME], size=(60_000, 65_535)), "too_many_pixels"),
        (
            gif([FRAME], size=(60_000, 65_535))[:40],
            "too_many_pixels",
        ),  # which is worth more than that it is cut as well
        (bmp(PIXELS, size=(2_000_000, 3_000_000)), "too_many_pixels"),
        (jpeg_header(50_000, 50_000), "too_many_pixels"),
        (png(PIXELS, size=(1, 10_000)), "too_elongated"),
        (png(PIXELS, size=(5_000, 2)), "too_elongated"),
        (bmp(PIXELS, size=(10, 10)), "truncated_image"),
        (gif([FRAME])[:-3], "truncated_image"),
    ],
)
def test_limits(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as caught:
        check_image(data, OPTIONS)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("height", "width", "resize", "ratio"),
    [
        (4000, 6000, Exact(exact=(256, 256)), 4),
        (4096, 4096, Exact(exact=(256, 256)), 8),
        (4095, 9999, Exact(exact=(256, 256)), 4),
        (9999, 1023, Exact(exact=(256, 256)), 1),
        (9999, 1024, Exact(exact=(256, 256)), 2),
        (3000, 4000, Shorter(shorter=187), 8),
        (3000, 4000, Shorter(shorter=188), 4),
        (300, 400, Shorter(shorter=224), 1),
        (100, 100, Exact(exact=(256, 256)), 1),
    ],
)
def test_a_jpeg_is_decoded_at_a_scale_that_leaves_twice_the_target(height, width, resize, ratio) -> None:
    options = ImageOptions(resize=resize, crop=(8, 8))
    assert decoding_ratio(ImageHeader("jpeg", height, width), options) == ratio
    assert decoding_ratio(ImageHeader("png", height, width), options) == 1


def test_memory_is_told_before_decoding() -> None:
    whole, quarter = (ImageOptions(resize=Exact(exact=(side, side))) for side in (1024, 256))
    photo, progressive = jpeg_header(4000, 6000), jpeg_header(4000, 6000, coding=2)
    assert 24e6 * 3 < decoding_bytes(check_image(photo, whole), whole) < 24e6 * 12
    assert decoding_bytes(check_image(progressive, whole), whole) > 24e6 * 9
    assert decoding_bytes(check_image(photo, quarter), quarter) < 24e6
    assert decoding_bytes(check_image(progressive, quarter), quarter) > 24e6 * 8


@pytest.mark.parametrize(
    ("data", "branches"),
    [
        (jpeg_header(600, 600), ("jpeg 1/1",)),
        (jpeg_header(4000, 6000, coding=2), ("jpeg 1/4", "jpeg of several scans")),
        (png(PIXELS), ("png",)),
        (bmp(PIXELS), ("bmp",)),
        (gif([FRAME]), ("gif",)),
    ],
)
def test_the_parts_of_the_decoder_that_an_image_goes_through(data: bytes, branches: tuple[str, ...]) -> None:
    options = ImageOptions(resize=Exact(exact=(400, 400)))
    assert decoding_branches(read_header(data), options) == branches


@pytest.mark.parametrize(
    ("data", "cut"),
    [
        (png(PIXELS), False),
        (png(PIXELS)[:-12], True),
        (jpeg_header(3, 5) + b"abc\xff\xd9", False),
        (
            jpeg_header(3, 5, before=EXIF + b"\xff\xe2\x00\x04\xff\xd9") + b"abc",
            True,
        ),  # that of a thumbnail does not count
    ],
)
def test_the_mark_at_the_end(data: bytes, cut: bool) -> None:
    assert ends_early(read_header(data), data) is cut
