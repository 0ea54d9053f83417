"""Writes YAML values, comments, and the numbers and values in a comment."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.display import readable
from schemas.spec.forms import NAME

LINE = 140  # characters of a line
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # some readers take these for others


def scalar(value: Any) -> str:
    """Writes a value as the schema's YAML: text in quotes where it would be read as something else.

    >>> scalar({"kind": "bool", "true": ["yes", "Zoë"], "size": (28, 28)})
    '{kind: bool, true: ["yes", "Zoë"], size: [28, 28]}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(scalar, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    plain = WHOLE.fullmatch(text) or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS)
    return text if plain or not isinstance(value, str) else quoted(text)


def quoted(text: str) -> str:
    """Writes text in double quotes; what cannot be seen is escaped."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    codes = (c if c.isprintable() else f"\\u{ord(c):04x}" if c < "\U00010000" else f"\\U{ord(c):08x}" for c in escaped)
    return f'"{"".join(codes)}"'


def comment(text: str) -> list[str]:
    """Writes text as lines of a comment."""
    lines = textwrap.wrap(printable(text), LINE - 2, break_long_words=False, break_on_hyphens=False)
    return [f"# {line}" for line in lines]


def plain_name(text: str, otherwise: str) -> str:
    """Makes a dataset's name of that of a file or folder."""
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", text).strip("_.")
    return plain if NAME.fullmatch(plain) else otherwise.format(plain).rstrip("_")


def percent(part: float, whole: float) -> str:
    """Writes a share as a percentage of two digits or so.

    >>> percent(1, 2500), percent(57, 1000), percent(77, 100)
    ('0.04 %', '5.7 %', '77 %')
    """
    share = 100 * part / whole if whole else 0.0
    digits = 0 if share >= 10 or share == 0 else 1 if share >= 1 else 2
    text = f"{share:.{digits}f}"
    return f"{'less than 0.01' if share and float(text) == 0 else text} %"


def number(value: float) -> str:
    """Writes a number in a few digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == round(value) else readable(value, 4)


def printable(text: str) -> str:
    """Puts text on one line."""
    return "".join(c if c.isprintable() else " " for c in text)


def shown(value: bytes, length: int = 30) -> str:
    """Writes a value for a comment: on one line, cut where it is long."""
    text = printable(value.decode("utf-8", "replace"))
    return text if len(text) <= length else f"{text[: length - 3]}..."
