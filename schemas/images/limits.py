"""Whether an image may be decoded: its header against the schema's limits, and the memory that it will take."""

from __future__ import annotations

from schemas.images.header import BadImage, ImageHeader, check_complete, read_header
from schemas.spec.image_options import LONGEST_SIDE, ImageOptions


def check_image(data: bytes, images: ImageOptions) -> ImageHeader:
    """The header of a file that may be decoded.

    Raises:
      BadImage: what `read_header` raises; too_many_pixels, too_elongated or truncated_image.
    """
    header = read_header(data)
    size = f"{header.height:,} x {header.width:,} pixels (height x width)"
    if header.pixels > images.max_pixels:
        raise BadImage("too_many_pixels", f"{size}; max_pixels allows {images.max_pixels:,}")
    height, width = images.resize.size(header.height, header.width)
    # Rows are resized first, to an image of the new height and the wider of both widths.
    if height * max(width, header.width) > images.max_pixels or max(height, width) > LONGEST_SIDE:
        raise BadImage("too_elongated", f"{size}, which is too elongated to resize to {height:,} x {width:,}")
    check_complete(header)
    return header


def decoding_bytes(header: ImageHeader, images: ImageOptions) -> int:
    """About how much memory decoding, resizing and encoding take at their peak."""
    height, width = images.resize.size(header.height, header.width)
    decoding = header.pixels * (12 if header.buffered else 4)
    resizing = 3 * header.pixels + 24 * height * header.width + 30 * height * width
    return max(decoding, resizing)
