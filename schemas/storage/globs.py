"""Matches names with slashes against glob patterns, as `glob.glob(pattern, recursive=True)` does on local disk."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

MAGIC = frozenset("*?[")


def literal_prefix(pattern: str) -> str:
    """Returns the prefix of all names that a pattern matches."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


def for_server(pattern: str) -> str | None:
    """Returns the pattern for GCS's `match_glob`; None if the server would not take it as we do.

    It gives other characters a meaning of its own: `{a,b}` matches two names there, and one here.
    """
    return None if set(pattern) & set("[]{}\\") or "**" in pattern else pattern


def matches(name: str, pattern: str) -> bool:
    """Returns whether a pattern matches a name.

    `*`, `?` and `[...]` match no slash, and no dot at the start of a part. A part `**` matches any number of parts,
    including none.
    """
    return _match(name.split("/"), pattern.split("/"))


def part_matches(name: str, pattern: str) -> bool:
    """Returns whether a part of a pattern, other than `**`, matches a part of a name."""
    if not MAGIC & set(pattern):
        return name == pattern
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name, pattern)


def _match(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns or not parts:
        return not patterns and not parts
    first, rest = patterns[0], patterns[1:]
    if first == "**":
        here = bool(rest) and _match(parts, rest)
        return here or (not parts[0].startswith(".") and (not (rest or parts[1:]) or _match(parts[1:], patterns)))
    return part_matches(parts[0], first) and _match(parts[1:], rest)
