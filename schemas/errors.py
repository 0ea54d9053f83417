"""The errors that end a command: invalid usage (exit code 2) and failures (1); and words for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def readable(text: str) -> str:
    """Returns a text that can be printed: bytes of a file's name that are not UTF-8 are shown as `\\xe9`.

    >>> print(readable("caf\\udce9"))
    caf\\xe9
    """
    try:
        return text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # other halves of characters, such as of a JSON file
        return text.encode(errors="backslashreplace").decode()


def did_you_mean(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Returns `; did you mean CANDIDATE?` for a word that is nearly one of the candidates; else nothing.

    Args:
      word: what was given.
      candidates: what could have been.
      cutoff: how alike two words have to be, from 0 to 1.
    """
    near = difflib.get_close_matches(word, list(candidates), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


def few(values: Sequence[object], most: int = 5, separator: str = ", ") -> str:
    """Returns the first of some values, and how many more there are: `a, b and 3 more`.

    Args:
      values: all of them.
      most: how many are named.
      separator: what stands between them.
    """
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return separator.join(map(str, values[:most])) + more


def counted(count: float, what: str, form: str = ",") -> str:
    """Returns a count with its noun: `1 record`, `2,000 records`.

    Args:
      count: how many there are.
      what: they are, in the singular or with its s.
      form: of the number, as `format` takes it.
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
