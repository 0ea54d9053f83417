"""The keys of an image's stored record, after the convention of the ImageNet TFRecords, so that other readers work."""

from __future__ import annotations

ENCODED = "image/encoded"  # string []: a JPEG, or uint8 pixels row by row, red, green, blue
FORMAT = "image/format"  # string []: one of FORMATS
HEIGHT = "image/height"  # int64 []
WIDTH = "image/width"  # int64 []
CLASS = "image/class/label"  # int64 []: the class's place among the classes, from 0 (ImageNet's own files count from 1)
TEXT = "image/class/text"  # string []: the class's name
SAME = "same"  # int64 []: of a pair, 1 where both images show one identity
FILENAME = "image/filename"  # string []: folder/file, or the path as the CSV file gives it

FORMATS = {"jpeg": b"JPEG", "raw": b"RAW"}  # by `store`

# Per-image moments of the canonical pixels as they are before they are encoded: what channel statistics are made of.
SUMS = "image/sums"  # int64 [3]: red, green, blue
SQUARES = "image/squares"  # int64 [3]: of squares
PIXELS = "image/pixels"  # int64 []
