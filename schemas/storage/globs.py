"""Matches names with slashes against glob patterns, as `glob.glob(pattern, recursive=True)` does on local disk."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

MAGIC = frozenset("*?[")


def literal_prefix(pattern: str) -> str:
    """Returns the beginning of a pattern, up to its first `*`, `?` or `[`.

    Every name that the pattern matches begins with this text.
    """
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]


def for_server(pattern: str) -> str | None:
    """Returns the pattern for GCS's argument `match_glob`; None if the server would read it differently.

    For example, `{a,b}` matches two names on the server, and here only the name `{a,b}` itself.
    """
    return None if set(pattern) & set("[]{}\\") or "**" in pattern else pattern


def matches(name: str, pattern: str) -> bool:
    """Returns whether a pattern matches a name. Both are compared part by part, between slashes.

    `*`, `?` and `[...]` match no slash, and no dot at the start of a part. A part `**` matches zero or more parts.
    """
    return _match(name.split("/"), pattern.split("/"))


def part_matches(name: str, pattern: str) -> bool:
    """Returns whether one part of a pattern, other than `**`, matches one part of a name."""
    if not MAGIC & set(pattern):
        return name == pattern
    hidden = name.startswith(".") and not pattern.startswith(".")
    return not hidden and fnmatch.fnmatchcase(name, pattern)


def _match(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Matches lists of parts.

    `**` is tried twice: as no part at all, and as the first part plus whatever `**` still matches.
    """
    if not patterns or not parts:
        return not patterns and not parts
    first, rest = patterns[0], patterns[1:]
    if first == "**":
        here = bool(rest) and _match(parts, rest)
        # Let `**` take one part, which must not be hidden, and try again with the parts after it.
        return here or (not parts[0].startswith(".") and (not (rest or parts[1:]) or _match(parts[1:], patterns)))
    return part_matches(parts[0], first) and _match(parts[1:], rest)
