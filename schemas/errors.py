"""Defines the errors that end a command, and helpers that write messages.

Invalid usage ends a command with the exit code 2, and other failures with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def readable(text: str) -> str:
    """Returns a text that can be printed.

    Python keeps a byte of a file's name that is not UTF-8 as a lone surrogate, which cannot be printed. The byte is
    shown as `\\xe9` instead.

    >>> print(readable("caf\\udce9"))
    caf\\xe9
    """
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # surrogates that stand for no byte, such as those in a JSON file
        return text.encode(errors="backslashreplace").decode()


def did_you_mean(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Returns `; did you mean CANDIDATE?` if a word is similar to one of the candidates; otherwise ''.

    Args:
      word: the word that the user gave.
      candidates: the words that are valid.
      cutoff: how similar two words must be, from 0 to 1.
    """
    near = difflib.get_close_matches(word, list(candidates), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def few(values: Sequence[object], most: int = 5, separator: str = ", ") -> str:
    """Returns the first of some values as text, and how many more there are: `a, b and 3 more`.

    Args:
      values: all values.
      most: the largest number of values that are named.
      separator: the text between two values.
    """
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return separator.join(map(str, values[:most])) + more


def counted(count: float, what: str, form: str = ",") -> str:
    """Returns a count with its noun: `1 record`, `2,000 records`.

    Args:
      count: how many there are.
      what: the noun, in the singular or in the plural with s.
      form: the format of the number, as the function `format` takes it.
    """
    number = format(count, form)
    return f"{number} {what.removesuffix('s')}{'' if number.strip() == '1' else 's'}"


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
