"""Files that are no CSV, known by how they begin: an image, a zip archive, JSON."""

from __future__ import annotations

import re

from schemas.storage.json_files import parse_json

_CONTROLS = bytes(code for code in (*range(9), *range(14, 32)) if code != 27)

# Each begins with bytes that no text has, or with letters (marked False) which count only if control codes follow.
_MAGICS = (
    (b"PK\x03\x04", True, "a zip archive; unpack it first (an Excel workbook is one: save it as CSV)"),
    (b"PAR1", False, "a Parquet file; write its rows as CSV"),
    (b"ARROW1\x00\x00", True, "an Arrow file; write its rows as CSV"),
    (b"ORC", False, "an ORC file; write its rows as CSV"),
    (b"SQLite format 3\x00", True, "an SQLite database; export its table as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", True, "an old Excel or Word file; save it as CSV"),
    (b"%PDF-", False, "a PDF"),
    (b"BZh", False, "compressed by bzip2; decompress it, or compress it by gzip"),
    (b"\xfd7zXZ\x00", True, "compressed by xz; decompress it, or compress it by gzip"),
    (b"\x28\xb5\x2f\xfd", True, "compressed by zstd; decompress it, or compress it by gzip"),
    (b"\x89HDF\r\n\x1a\n", True, "an HDF5 file"),
    (b"\x93NUMPY", True, "a NumPy file"),
    (b"\x7fELF", True, "a program"),
    (b"\x89PNG\r\n\x1a\n", True, "a PNG image"),
    (b"\xff\xd8\xff", True, "a JPEG image"),
    (b"GIF8", False, "a GIF image"),
)


_JSON = "JSON; write its records as CSV, such as by pandas.read_json(...).to_csv(...), with lines=True for JSON lines"
_OBJECT = re.compile(rb'\s*(\[\s*)?\{\s*"([^"\\]|\\.)*"\s*:')


def binary_kind(data: bytes) -> str | None:
    """What a file is that is certainly no CSV, by its first bytes.

    Args:
        data: the first bytes, decompressed if the file is gzip'd. The first 4,096 are looked at; of JSON, the
            first line.

    Returns:
        Such as "a zip archive; unpack it first"; None if it may be text.
    """
    is_json, data = _is_json(data), data[:4096]
    for magic, certain, what in _MAGICS:
        if data.startswith(magic) and (certain or len(data.translate(None, _CONTROLS)) < len(data)):
            return what
    return _JSON if is_json else None


def _is_json(data: bytes) -> bool:
    """Whether text begins with a JSON object or an array of them, and not with a record whose first cell is one."""
    if not _OBJECT.match(data):
        return False
    line, end, _ = data.lstrip().partition(b"\n")
    if not end or line.strip() in (b"[", b"{", b"[{"):
        return True
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def controls(data: bytes) -> int:
    """How many of some bytes are control codes that text does not have."""
    return len(data) - len(data.translate(None, _CONTROLS))
