"""Errors of two kinds: invalid usage (exit code 2), and failures (exit code 1)."""

from __future__ import annotations

import re

_NOT_TEXT = re.compile("[\ud800-\udfff]")


def readable(text: str) -> str:
    """A text that can be printed: bytes of a file's name that are not UTF-8 are shown as `\\xe9`."""
    return _NOT_TEXT.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


class MillraceError(Exception):
    """The command failed. The message names the file, the place, what was found, what was expected, and what to do."""

    exit_code = 1

    def __init__(self, message: object = "") -> None:
        super().__init__(readable(str(message)))


class SkewError(MillraceError):
    """An exported model differs from the model as it was trained (training/serving skew)."""


class UsageError(MillraceError):
    """Invalid usage (exit code 2); nothing was done."""

    exit_code = 2
