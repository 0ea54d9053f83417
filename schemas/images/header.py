"""Reads the format and the dimensions of an image file from its bytes. The file's name does not matter.

Nothing is decoded here. A file of a megabyte can decode to a gigabyte, so the header is checked first. Header and
schema together say whether an image may be decoded, at which scale, and with how much memory.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from schemas.spec.images import LONGEST_SIDE, ImageOptions

Format = Literal["jpeg", "png"]

JPEG_SCANS = 500  # normal progressive JPEGs have about ten scans; decoding each scan goes over the whole image

JPEG_SEGMENTS = 10_000  # the most segments before the first scan; profiles and notes of cameras take a few hundred

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_OTHERS = (  # formats that are recognized but not read: (first bytes, (offset, bytes there), name)
    (b"RIFF", (8, b"WEBP"), "WebP"),
    (b"GIF8", (0, b""), "GIF"),
    (b"BM", (6, b"\0\0\0\0"), "BMP"),
    (b"II*\0", (0, b""), "TIFF"),
    (b"MM\0*", (0, b""), "TIFF"),
    (b"", (4, b"ftyp"), "HEIF, AVIF or MP4"),
    (b"\0\0\0\x0cjP  ", (0, b""), "JPEG 2000"),
    (b"%PDF", (0, b""), "PDF"),
    (b"<svg", (0, b""), "SVG"),
    (b"<?xml", (0, b""), "SVG or other XML"),
    (b"8BPS", (0, b""), "Photoshop"),
)
_READ = (
    'expected JPEG or PNG. Convert the file, such as with Pillow: Image.open(path).convert("RGB").save("converted.png")'
)

_MARKER = re.compile(b"\xff[^\x00\xff]")  # any number of fill bytes (0xff) may stand before a marker


@dataclasses.dataclass(frozen=True)
class ImageHeader:
    """A file's format, and its dimensions in pixels.

    `buffered` is True for a JPEG of several scans: its decoder needs more memory than the decoded image.
    """

    format: Format
    height: int
    width: int
    buffered: bool = False

    @property
    def pixels(self) -> int:
        return self.height * self.width


class BadImage(Exception):
    """An image is rejected. The error has a reason code, and a text about what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def read_header(data: bytes) -> ImageHeader:
    """Reads the header in the bytes of an image file.

    Raises:
      BadImage: the reason is empty_file, not_an_image, unsupported_format, truncated_image or bad_header.
    """
    if not data:
        raise BadImage("empty_file", "the file is empty")
    try:
        header = _read(data)
    except IndexError:
        raise BadImage("truncated_image", "the file ends inside its header") from None
    if not header.pixels:
        raise BadImage("bad_header", f"the header says {header.height} x {header.width} pixels")
    return header


def ends_early(header: ImageHeader, data: bytes) -> bool:
    """Returns whether the marker at the end of an image file is missing. If the file cannot be decoded, it was cut."""
    # A JPEG ends with the marker EOI (ff d9), after its last scan (ff da). A PNG ends with the chunk IEND.
    if header.format == "jpeg":
        return data.rfind(b"\xff\xd9") < data.rfind(b"\xff\xda")
    return b"IEND" not in data


def _read(data: bytes) -> ImageHeader:
    """Reads the header of a JPEG or PNG.

    Raises BadImage for other formats, and IndexError if the file ends too early.
    """
    if data.startswith(JPEG):
        return _jpeg(data)
    if data.startswith(PNG):
        return _png(data)
    for start, (place, more), name in _OTHERS:
        if data.startswith(start) and data.startswith(more, place):
            raise BadImage("unsupported_format", f"found {name}; {_READ}")
    raise BadImage("not_an_image", f"the first bytes are {data[:8]!r}; expected JPEG or PNG")


def _big(data: bytes, start: int, size: int) -> int:
    """Returns a big-endian integer of `size` bytes. Raises IndexError if the data ends before."""
    return int.from_bytes(_part(data, start, size), "big")


def _part(data: bytes, start: int, size: int) -> bytes:
    """Returns a part of the data. Raises IndexError if the data ends before it."""
    if start + size > len(data):
        raise IndexError
    return data[start : start + size]


def _jpeg(data: bytes) -> ImageHeader:
    """Reads the segments of a JPEG up to the first scan. The frame header among them has the dimensions.

    Bytes between segments are skipped up to the next marker, as libjpeg does.
    """
    place = 2
    segments = 0
    frame: tuple[int, int, int, int] | None = None  # marker, height, width, components
    while True:
        match = _MARKER.search(data, place)
        if match is None:
            raise IndexError
        place = match.start()
        marker = data[place + 1]
        segments += 1
        if segments > JPEG_SEGMENTS:
            raise BadImage("bad_header", f"JPEG: more than {JPEG_SEGMENTS:,} segments before its first scan")
        if marker == 0x01 or 0xD0 <= marker <= 0xD8:  # TEM, RST and SOI: markers without a segment
            place += 2
            continue
        if marker == 0xD9:
            raise BadImage("bad_header", "JPEG: ends without an image")
        length = _big(data, place + 2, 2)
        if length < 2:
            raise BadImage("bad_header", f"JPEG: a segment of length {length} at byte {place}")
        # A frame header, SOF0 to SOF15. The three excluded markers in this range mean other things.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            precision = data[place + 4]
            if marker not in (0xC0, 0xC1, 0xC2, 0xC9, 0xCA) or precision != 8:
                detail = f"JPEG of {precision} bits, coding {marker - 0xC0}; 8 bits, baseline or progressive are read"
                raise BadImage("unsupported_format", detail)
            frame = (marker, _big(data, place + 5, 2), _big(data, place + 7, 2), data[place + 9])
        if marker == 0xDA:
            if frame is None:
                raise BadImage("bad_header", "JPEG: a scan before the frame's header")
            coding, height, width, components = frame
            several = coding in (0xC2, 0xCA) or data[place + 4] < components
            # If the first scan has all components of a baseline JPEG, the decoder stops after it, so other scans do not
            # matter. Counting them would take a tenth of the decoding time.
            if several and (scans := data.count(b"\xff\xda")) > JPEG_SCANS:
                raise BadImage("too_many_scans", f"JPEG: {scans} scans; at most {JPEG_SCANS} are decoded")
            return ImageHeader("jpeg", height, width, several)
        place += 2 + length


def _png(data: bytes) -> ImageHeader:
    """Reads the dimensions from the first chunk of a PNG."""
    if _part(data, 12, 4) != b"IHDR":
        raise BadImage("bad_header", "PNG: the first chunk is not IHDR")
    return ImageHeader("png", _big(data, 20, 4), _big(data, 16, 4))


RATIOS = (8, 4, 2)  # libjpeg can decode an image at 1/8, 1/4 or 1/2 of its size


def check_image(data: bytes, images: ImageOptions) -> ImageHeader:
    """Returns the header of an image file that may be decoded.

    Args:
      data: the bytes of the file.
      images: the limits and the new size, from the schema.

    Raises:
      BadImage: `read_header` fails, or the reason is file_too_large, too_many_pixels or too_elongated.
    """
    if len(data) > images.max_file_bytes:
        raise BadImage("file_too_large", f"files of at most {images.max_file_bytes:,} bytes are accepted")
    header = read_header(data)
    size = f"{header.height:,} x {header.width:,} pixels (height x width)"
    if header.pixels > images.max_pixels:
        raise BadImage("too_many_pixels", f"{size}; max_pixels allows {images.max_pixels:,}")
    height, width = images.resize.size(header.height, header.width)
    # Resizing makes an intermediate image with the new height and the old width. Limit its size, too.
    if height * max(width, header.width) > images.max_pixels or max(height, width) > LONGEST_SIDE:
        raise BadImage("too_elongated", f"{size}, which is too elongated to resize to {height:,} x {width:,}")
    return header


def decoding_ratio(header: ImageHeader, images: ImageOptions) -> int:
    """Returns the reduced scale at which a JPEG is decoded: 8, 4, 2 or 1, for 1/8, 1/4, 1/2 or all of its size.

    It is the smallest scale at which the decoded image is still `images.downscale` times as large as the resized one.
    At a reduced scale libjpeg computes fewer cosines, which take most of the decoding time. `beam_jobs.images.ingest`
    has the same rule. The result depends only on the header and the schema, and is 1 for a PNG.
    """
    if header.format != "jpeg":
        return 1
    height, width = images.resize.size(header.height, header.width)
    least_height, least_width = images.downscale * height, images.downscale * width
    return next((r for r in RATIOS if header.height >= r * least_height and header.width >= r * least_width), 1)


def decoding_bytes(header: ImageHeader, images: ImageOptions) -> int:
    """Returns the approximate peak memory of decoding, resizing and encoding an image, in bytes."""
    height, width = images.resize.size(header.height, header.width)
    ratio = decoding_ratio(header, images)
    # Divides and rounds up, as libjpeg does.
    decoded_height, decoded_width = -(-header.height // ratio), -(-header.width // ratio)
    decoded = decoded_height * decoded_width
    decoding = 4 * decoded + (8 * header.pixels if header.buffered else 0)
    resizing = 3 * decoded + 24 * height * decoded_width + 30 * height * width
    return max(decoding, resizing)
