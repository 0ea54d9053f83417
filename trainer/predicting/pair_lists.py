"""Reads pairs of images from CSV files with two paths per line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from schemas import storage
from schemas.errors import UsageError
from schemas.images.paths import Inside, fields, numbered_lines, path_problem
from schemas.spec.cell_error import CellError
from trainer.images.names import LEFT, RIGHT
from trainer.predicting.image_lines import Item


def read_pairs(paths: Sequence[str], root: str | None) -> Iterator[Item]:
    """Reads the pairs in UTF-8 CSV files. A first line `left,right` is a header; blank lines are skipped.

    Args:
      paths: the CSV files.
      root: the folder that the images' paths are relative to, and must stay inside; None: each CSV file's folder.

    Returns:
      An item for each line; that of an invalid line has its `problem` set.

    Raises:
      UsageError: a file is not UTF-8, or `root` is not a folder. Raised by the call, before the first item.
    """
    if root is not None and storage.is_local(root) and not os.path.isdir(root):
        raise UsageError(f"--root {root}: no such folder; it is the folder that the images' paths are relative to")
    texts = [(path, _text(path)) for path in paths]
    return (item for path, text in texts for item in _pairs(path, text, root or os.path.dirname(path)))


def _text(path: str) -> str:
    try:
        return storage.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: is not UTF-8 at byte {error.start}; a model of pairs takes CSV files with two image paths "
            "per line"
        ) from None


def _pairs(path: str, text: str, root: str) -> Iterator[Item]:
    stays_inside = Inside(root or ".")
    for number, line in numbered_lines(text):
        if number == 1 and line.replace(" ", "") == f"{LEFT},{RIGHT}":
            continue
        names = tuple(fields(line))
        problem = _problem(names, stays_inside)
        if problem is not None:
            yield Item(path, number, {}, (line[:200],), problem, line.encode())
        else:
            left, right = (storage.join(root, name) if root else name for name in names)
            yield Item(path, number, {LEFT: left, RIGHT: right}, names, raw=line.encode())


def _problem(names: tuple[str, ...], stays_inside: Inside) -> CellError | None:
    if len(names) != 2:
        reason = "too_many_columns" if len(names) > 2 else "too_few_columns"
        return CellError(reason, f"{len(names)} fields; expected two image paths")
    for name in names:
        if (problem := path_problem(name, relative_to="the CSV file, or --root")) is not None:
            return problem
        if not stays_inside(name):
            return CellError("path_outside_root", f"a symbolic link in {name[:200]!r} leads outside the root")
    return None
