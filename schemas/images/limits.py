"""Whether an image may be decoded, at which scale, and with how much memory: from its header and the schema."""

from __future__ import annotations

from schemas.images.header import BadImage, ImageHeader, check_complete, read_header
from schemas.spec.image_options import LONGEST_SIDE, ImageOptions

RATIOS = (8, 4, 2)  # the scales at which libjpeg decodes, each one divided by this


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


def decoding_ratio(header: ImageHeader, images: ImageOptions) -> int:
    """8, 4, 2 or 1: a JPEG is decoded at 1 / ratio of its size, the smallest that is at least twice the resized size.

    libjpeg then computes fewer of the cosines, which take most of the decoding time. `beam_jobs.images.decode` has the
    same rule, which depends on the header and the schema alone.
    """
    if header.format != "jpeg":
        return 1
    height, width = images.resize.size(header.height, header.width)
    return next((r for r in RATIOS if header.height >= 2 * r * height and header.width >= 2 * r * width), 1)


def decoding_bytes(header: ImageHeader, images: ImageOptions, *, scales: bool = True) -> int:
    """The approximate peak memory of decoding, resizing and encoding, in bytes.

    `scales`: whether the graph decodes large JPEGs at a scale; the graph of release 0.1.0 does not.
    """
    height, width = images.resize.size(header.height, header.width)
    ratio = decoding_ratio(header, images) if scales else 1
    decoded_height, decoded_width = -(-header.height // ratio), -(-header.width // ratio)
    decoded = decoded_height * decoded_width
    decoding = 4 * decoded + (8 * header.pixels if header.buffered else 0)
    resizing = 3 * decoded + 24 * height * decoded_width + 30 * height * width
    return max(decoding, resizing)


def decoding_branches(header: ImageHeader, images: ImageOptions) -> tuple[str, ...]:
    """The parts of the decoder that an image uses: by its format; for a JPEG by its scale, scans and colours."""
    if header.format != "jpeg":
        return (header.format,)
    branches = [f"jpeg 1/{decoding_ratio(header, images)}"]
    if header.buffered:
        branches.append("jpeg of several scans")
    if header.components != 3:
        branches.append({1: "gray jpeg", 4: "cmyk jpeg"}.get(header.components, "other jpeg"))
    return tuple(branches)
