"""Lists of image paths: CSV files in which every line is one record, and the paths that a line may contain."""

from __future__ import annotations

import csv
import functools
import os
import re
from collections.abc import Iterator

from schemas import storage
from schemas.spec.cell_error import CellError

CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # also a drive letter


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Number, from 1, and text of each line that is not blank. A line is a record even if a quote is not closed."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if line.strip():
            yield number, line


def fields(line: str) -> list[str]:
    """A line's fields; the line as one field if its quotes are malformed."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return [line]


def path_problem(name: str, *, relative_to: str) -> CellError | None:
    """The error of a path that must stay below a root, which the message calls `relative_to`; None if it does."""
    if not name or CONTROL.search(name):
        return CellError("bad_name", f"the path {name[:200]!r} is empty or has a control character")
    if is_absolute(name):
        return CellError("path_outside_root", f"found {name[:200]!r}; expected a path relative to {relative_to}")
    if ".." in re.split(r"[/\\]", name):
        return CellError("path_outside_root", f"found '..' in {name[:200]!r}")
    return None


def name_problem(path: str) -> CellError | None:
    """The error of a path in a folder listing that cannot be stored or displayed; None for any other path."""
    try:
        os.fsencode(path).decode()
        clean = CONTROL.search(path) is None
    except UnicodeDecodeError:
        clean = False
    return None if clean else CellError("bad_name", f"the name {plain(path)} has a control character, or is not UTF-8")


def plain(text: str) -> str:
    """A path as UTF-8 text without control characters: other bytes are escaped."""
    readable = os.fsencode(text).decode("utf-8", "backslashreplace")
    return readable if readable.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in readable)


def is_absolute(path: str) -> bool:
    """Whether a path starts at a root, a drive or a scheme."""
    return path.startswith(("/", "\\")) or _SCHEME.match(path) is not None


class Inside:
    """Whether a relative path, with symbolic links resolved, stays under a local root. Resolves each folder once."""

    def __init__(self, root: str) -> None:
        self.local = storage.is_local(root)
        self.root = root
        self.real_root = os.path.realpath(root) if self.local else root
        self._real = functools.lru_cache(maxsize=4096)(os.path.realpath)

    def __call__(self, name: str) -> bool:
        if not self.local:
            return True
        folder, _, last = os.path.join(self.root, name).rpartition("/")
        path = os.path.join(str(self._real(folder)), last)
        if os.path.islink(path):
            path = os.path.realpath(path)
        return os.path.commonpath([path, self.real_root]) == self.real_root
