"""Finds values of a column that differ only in spelling. A model would treat them as different values.

Differences in spelling are: letter case, white space (also the no-break space), the form of Unicode, trailing zeros of
a decimal number, and the word for true or false, in a column that holds only such words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from schemas.errors import few

_TRUE, _FALSE = frozenset({"true", "t", "yes", "y", "1"}), frozenset({"false", "f", "no", "n", "0"})
_NUMBER = re.compile(r"\+?(-?(?:0|[1-9][0-9]*))(?:\.([0-9]*?)0*)?")  # without leading zeros, which codes have


def alike(values: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the groups of values that differ only in spelling. Groups and values keep the order of `values`.

    >>> alike(["Yes", "no", "yes\\xa0", "YES"])
    [('Yes', 'yes\\xa0', 'YES')]
    >>> alike(["true", "0", "1", "no", "False"])
    [('true', '1'), ('0', 'no', 'False')]
    >>> alike(["1.50", "1.5", "007", "7"])
    [('1.50', '1.5')]
    """
    plain = {value: _plain(value) for value in values}
    words = set(plain.values())
    if len(words) > 2 and words <= _TRUE | _FALSE:
        plain = {value: str(word in _TRUE) for value, word in plain.items()}
    groups: dict[str, list[str]] = {}
    for value, word in plain.items():
        groups.setdefault(word, []).append(value)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _plain(value: str) -> str:
    if number := _NUMBER.fullmatch(value):
        return f"{number[1]}.{number[2]}" if number[2] else number[1]
    if value.isascii():
        return " ".join(value.casefold().split())
    visible = "".join(c for c in unicodedata.normalize("NFKC", value) if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", " ".join(visible.casefold().split()))


def described(counts: Mapping[bytes, int]) -> str | None:
    """Describes a column's values that differ in spelling only; returns None if there are none.

    Args:
      counts: how often each value occurs. Values that are not valid UTF-8 are ignored.
    """
    by_text = {}
    for value, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
        try:
            by_text[value.decode()] = count
        except UnicodeDecodeError:
            continue
    groups = alike(list(by_text))
    if not groups:
        return None
    shown = [" and ".join(f"{_shown(value)} ({by_text[value]:,})" for value in group[:4]) for group in groups]
    return f"{few(shown, 3, '; ')} differ in spelling only, and are different values to a model"


def _shown(value: str) -> str:
    """Returns a value in quotes, with invisible characters escaped."""
    return repr(value) if unicodedata.is_normalized("NFC", value) else ascii(value)
