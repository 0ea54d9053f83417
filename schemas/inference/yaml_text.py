"""A schema as text: one line for each feature, with what the data shows behind it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})  # some readers take these for others
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LINE = 140


def scalar(value: Any) -> str:
    """A value as the schema's YAML: text in quotes where it would be read as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {scalar(held)}" for key, held in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(scalar, value)) + "]"
    text = str(value)
    if _WHOLE.fullmatch(text) or (_PLAIN.fullmatch(text) and text.lower() not in _WORDS):
        return text
    return quoted(text)


def quoted(text: str) -> str:
    """Text in double quotes; what cannot be seen is escaped."""
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(ord(c))) for c in text) + '"'


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


def column_ref(name: str) -> str:
    """A header's name as `column:` takes it: always text."""
    return quoted(name) if _WHOLE.fullmatch(name) else scalar(name)


def comment(text: str) -> list[str]:
    """Text as lines of a comment."""
    clean = "".join(c if c.isprintable() else " " for c in text)
    return [f"# {line}" for line in textwrap.wrap(clean, _LINE - 2, break_long_words=False, break_on_hyphens=False)]


def feature_line(keys: Iterable[tuple[str, str]], evidence: str) -> list[str]:
    """A feature, with its evidence behind it, or above it where the line would be long."""
    line = "  - {" + ", ".join(f"{key}: {value}" for key, value in keys) + "}"
    clean = "".join(c if c.isprintable() else " " for c in evidence)
    if not clean:
        return [line]
    if len(line) + len(clean) + 4 <= _LINE:
        return [f"{line}  # {clean}"]
    return [*(f"  {wrapped}" for wrapped in comment(clean)), line]
