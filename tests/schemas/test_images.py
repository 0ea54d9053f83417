"""Headers: format and size from the first bytes, and a reason for all that is not taken."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from schemas.errors import UsageError
from schemas.images.header import (
    BadImage,
    ImageHeader,
    check_image,
    decoding_bytes,
    decoding_ratio,
    ends_early,
    read_header,
)
from schemas.images.listing import list_csv, list_folders, plain
from schemas.rejects import Reject
from schemas.spec.images import Exact, ImageOptions, Shorter
from tests.support.image_files import BMP, GIF, GRADIENT, jpeg_header, png

PIXELS = np.zeros((3, 5, 3), np.uint8)
EXIF = b"\xff\xe1\x00\x10" + b"\xff\xc0\x00\x11\x08\x00\x01\x00\x01" + bytes(5)  # a frame header that is only data


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(png(PIXELS), ("png", 3, 5, False), id="png"),
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
        (b"RIFF\0\0\0\0WEBPVP8 ", "unsupported_format"),
        (b"\0\0\0\x1cftypheic", "unsupported_format"),
        (GIF, "unsupported_format"),
        (BMP, "unsupported_format"),
        (b"BMW, 320d", "not_an_image"),
        (b"<svg xmlns=", "unsupported_format"),
        (png(PIXELS)[:20], "truncated_image"),
        (png(PIXELS).replace(b"IHDR", b"JHDR"), "bad_header"),
        (png(PIXELS, size=(0, 5)), "bad_header"),
        (jpeg_header(3, 5)[:8], "truncated_image"),
        (jpeg_header(3, 5, bits=12), "unsupported_format"),
        (jpeg_header(3, 5, coding=3), "unsupported_format"),
        (jpeg_header(0, 5), "bad_header"),
        (jpeg_header(3, 5, coding=2) + b"\xff\xda\0" * 600, "too_many_scans"),
        (jpeg_header(3, 5, scan=1) + b"\xff\xda\0" * 600, "too_many_scans"),
        (jpeg_header(3, 5, before=b"\xff\xe1\0\2" * 20_000), "bad_header"),
        (b"\xff\xd8\xff\xe0\x00\x00", "bad_header"),
        (b"\xff\xd8\xff\xd9", "bad_header"),
    ],
)
def test_a_file_that_is_not_taken_has_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as caught:
        read_header(data)
    assert caught.value.reason == reason


def test_another_format_is_named_with_those_that_are_read_and_how_to_convert_it() -> None:
    with pytest.raises(
        BadImage, match=r"found GIF; expected JPEG or PNG\. Convert the file, such as with Pillow: Image"
    ):
        read_header(GIF)


@pytest.mark.parametrize("data", [png(GRADIENT), jpeg_header(9, 9, before=EXIF)])
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
        (jpeg_header(50_000, 50_000), "too_many_pixels"),
        (png(PIXELS, size=(1, 10_000)), "too_elongated"),
        (png(PIXELS, size=(5_000, 2)), "too_elongated"),
    ],
)
def test_limits(data: bytes, reason: str) -> None:
    with pytest.raises(BadImage) as caught:
        check_image(data, OPTIONS)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("height", "width", "resize", "ratio"),  # for twice the target, and for no less than it
    [
        (4000, 6000, Exact(exact=(256, 256)), (4, 8)),
        (4096, 4096, Exact(exact=(256, 256)), (8, 8)),
        (4095, 9999, Exact(exact=(256, 256)), (4, 8)),
        (9999, 1024, Exact(exact=(256, 256)), (2, 4)),
        (3000, 4000, Shorter(shorter=187), (8, 8)),
        (3000, 4000, Shorter(shorter=188), (4, 8)),
        (511, 800, Exact(exact=(256, 256)), (1, 1)),
        (100, 100, Exact(exact=(256, 256)), (1, 1)),
    ],
)
def test_a_jpeg_is_decoded_at_a_scale_that_leaves_enough_of_it(height, width, resize, ratio) -> None:
    default, least = ImageOptions(resize=resize, crop=(8, 8)), ImageOptions(resize=resize, crop=(8, 8), downscale=1)
    header = ImageHeader("jpeg", height, width)
    assert (decoding_ratio(header, default), decoding_ratio(header, least)) == ratio
    assert decoding_ratio(ImageHeader("png", height, width), least) == 1


def test_memory_is_told_before_decoding() -> None:
    whole, quarter = (ImageOptions(resize=Exact(exact=(side, side))) for side in (1024, 256))
    photo, progressive = jpeg_header(4000, 6000), jpeg_header(4000, 6000, coding=2)
    assert 24e6 * 3 < decoding_bytes(check_image(photo, whole), whole) < 24e6 * 12
    assert decoding_bytes(check_image(progressive, whole), whole) > 24e6 * 9
    assert decoding_bytes(check_image(photo, quarter), quarter) < 24e6
    assert decoding_bytes(check_image(progressive, quarter), quarter) > 24e6 * 8


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


def test_a_folder_is_a_label() -> None:
    listing = list_folders(["/photos/cat/1.jpg", "/photos/cat/2.jpg", "gs://bucket/photos/dog/1.jpg"])
    assert listing.labels == ("cat", "cat", "dog")
    assert listing.names == ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg")
    assert listing.paths[2] == "gs://bucket/photos/dog/1.jpg"
    assert listing.classes == ("cat", "dog")


@pytest.mark.parametrize("path", ["1.jpg", "./1.jpg", "../1.jpg", "/1.jpg"])
def test_a_file_without_a_folder_has_no_label(path: str) -> None:
    with pytest.raises(UsageError, match="photos"):
        list_folders([path])


@pytest.mark.parametrize("path", ["cat/a\nb.jpg", "ca\rt/a.jpg", "cat/a\x00.jpg"])
def test_a_name_with_a_control_sign_is_a_reject(path: str) -> None:
    listing = list_folders([path, "cat/1.jpg"])
    assert listing.names == ("cat/1.jpg",)
    assert [(r.source, r.stage, r.reason, r.raw) for r in listing.rejects] == [
        (plain(path), "list", "bad_name", path.encode())
    ]


@pytest.mark.parametrize("header", ["path,label", " path , label ", "image,class", "filename,breed"])
def test_a_header_of_a_list_is_no_image_and_no_class(tmp_path: Path, header: str) -> None:
    path = tmp_path / "list.csv"
    path.write_text(f"{header}\na/1.jpg,cat\na/2.jpg,dog\n")
    listing = list_csv(str(path), str(tmp_path))
    assert (listing.classes, listing.names, listing.rejects) == (("cat", "dog"), ("a/1.jpg", "a/2.jpg"), ())


def test_a_name_that_is_not_utf8_is_a_reject_that_keeps_its_bytes() -> None:
    listing = list_folders([os.fsdecode(b"cat/K\xf6ln.jpg"), "cat/1.jpg"])
    assert listing.names == ("cat/1.jpg",)
    (reject,) = listing.rejects
    assert (reject.reason, reject.raw) == ("bad_name", b"cat/K\xf6ln.jpg")
    assert Reject.from_json(reject.to_json()) == reject
    reject.to_json().encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "a" / "link.jpg").symlink_to("/etc/passwd")
    (folder / "a" / "twin.jpg").symlink_to(folder / "a" / "1.jpg")
    return folder


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a/1.jpg,cat", None),
        (" a/1.jpg, cat ", None),
        ('"a/x, y.jpg",cat', None),
        ("a/twin.jpg,cat", None),
        ("a/..jpg,cat", None),
        ("../secret/1.jpg,cat", "path_outside_root"),
        ("a/../../secret/1.jpg,cat", "path_outside_root"),
        ("a\\..\\..\\1.jpg,cat", "path_outside_root"),
        ("/etc/passwd,cat", "path_outside_root"),
        ("C:\\1.jpg,cat", "path_outside_root"),
        ("gs://other/1.jpg,cat", "path_outside_root"),
        ("out/1.jpg,cat", "path_outside_root"),
        ("a/link.jpg,cat", "path_outside_root"),
        ("a/\x01.jpg,cat", "bad_name"),
        (",cat", "bad_name"),
        ("a/1.jpg", "too_few_columns"),
        ("a/1.jpg,cat,dog", "too_many_columns"),
        ("a/1.jpg, ", "missing_label"),
        ('"a/1.jpg,cat', "too_few_columns"),  # a quote left open is one bad line, whatever follows
    ],
)
def test_csv_lines(root: Path, line: str, reason: str | None) -> None:
    path = root.parent / "list.csv"
    path.write_text(f"path,label\n{line}\na/2.jpg,dog\n")
    listing = list_csv(str(path), "photos")
    assert listing.paths[-1] == str(root / "a" / "2.jpg")
    assert listing.labels[-1] == "dog"
    if reason is None:
        assert listing.labels == ("cat", "dog")
        assert not listing.rejects
    else:
        (reject,) = listing.rejects
        assert (reject.source, reject.offset, reject.stage, reject.reason) == (str(path), 2, "list", reason)
        assert reject.raw == line.encode()
        assert reject.column == {"missing_label": "label", "path_outside_root": "path", "bad_name": "path"}.get(reason)


def test_the_header_may_be_left_out_and_lines_may_end_anyhow(root: Path) -> None:
    path = root.parent / "list.csv"
    path.write_bytes("\ufeffa/1.jpg,Köln\r\n\r\na/2.jpg,dog".encode())
    listing = list_csv(str(path), str(root))
    assert listing.labels == ("Köln", "dog")
    assert listing.names == ("a/1.jpg", "a/2.jpg")


def test_the_list_must_be_text_and_the_root_a_folder(root: Path) -> None:
    path = root.parent / "list.csv"
    path.write_bytes(b"a/1.jpg,K\xf6ln\n")
    with pytest.raises(UsageError, match="not UTF-8 at byte 9"):
        list_csv(str(path), "photos")
    path.write_bytes(b"a/1.jpg,cat\n")
    with pytest.raises(UsageError, match="no such folder"):
        list_csv(str(path), "nowhere")
