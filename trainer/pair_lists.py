"""Pairs of images to be compared, by CSV files of two paths a line."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence

from schemas import storage
from schemas.errors import UsageError
from schemas.image_listing import Inside
from trainer.image_features import LEFT, RIGHT
from trainer.image_lines import Item

_OUTSIDE = re.compile(r"[/\\]|[A-Za-z][A-Za-z0-9+.-]*:")  # how a path starts that is not relative


def read_pairs(paths: Sequence[str], root: str | None) -> Iterator[Item]:
    """The pairs in UTF-8 CSV files, line by line; a first line `left,right` is a header, blank lines are left out.

    Args:
      paths: the CSV files.
      root: the folder that the images' paths are relative to, and do not leave; None: each CSV file's own.

    Returns:
      The pairs; a line that names none has its problem in it.

    Raises:
      UsageError: a file is not UTF-8, or `root` is no folder. Raised at once, not when the first pair is taken.
    """
    if root is not None and not root.startswith(storage.GCS) and not os.path.isdir(root):
        raise UsageError(f"--root {root}: no such folder; it is the folder that the images' paths are under")
    texts = [(path, _text(path)) for path in paths]
    return (item for path, text in texts for item in _pairs(path, text, root or os.path.dirname(path)))


def _text(path: str) -> str:
    try:
        return storage.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: is not UTF-8 at byte {error.start}; a model of pairs takes CSV files of two images' paths a line"
        ) from None


def _pairs(path: str, text: str, root: str) -> Iterator[Item]:
    stays_inside = Inside(root or ".")
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if not line.strip() or (number == 1 and line.replace(" ", "") == f"{LEFT},{RIGHT}"):
            continue
        try:
            names = tuple(next(csv.reader([line], strict=True)))
        except csv.Error:
            names = (line,)
        problem = _problem(names) or _leads_out(names, stays_inside)
        if problem is not None:
            yield Item(path, number, {}, (line[:200],), problem)
        else:
            left, right = (storage.join(root, name) if root else name for name in names)
            yield Item(path, number, {LEFT: left, RIGHT: right}, names)


def _leads_out(names: Sequence[str], stays_inside: Inside) -> tuple[str, str] | None:
    for name in names:
        if not stays_inside(name):
            return "path_outside_root", f"a symbolic link in {name[:200]!r} leads out"
    return None


def _problem(names: tuple[str, ...]) -> tuple[str, str] | None:
    if len(names) != 2 or not all(names):
        reason = "too_many_columns" if len(names) > 2 else "too_few_columns"
        return reason, f"{len(names)} fields; expected two images' paths"
    for name in names:
        if "\0" in name:
            return "bad_name", f"the path {name[:200]!r} holds a NUL"
        if _OUTSIDE.match(name) or ".." in re.split(r"[/\\]", name):
            return (
                "path_outside_root",
                f"found {name[:200]!r}; expected a path relative to the CSV file, or --root",
            )
    return None
