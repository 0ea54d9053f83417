"""Lists what an image model predicts on: the input files themselves, or the pairs of images that they name."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from schemas import storage
from schemas.errors import UsageError
from schemas.images.listing import Inside, fields, name_problem, numbered_lines, path_problem, plain
from schemas.spec.forms import CellError
from schemas.spec.images import ImageFolderSchema, ImagePairsSchema, ImageSchema


@dataclasses.dataclass(frozen=True)
class Item:
    """An image, or a pair of images, to predict.

    Attributes:
      source: the image's path, or the CSV file that names the pair.
      place: the image's index, from 0; or the line number in the CSV file, from 1.
      files: the images' paths by input.
      names: the names of a pair's images in the CSV file.
      problem: why the item is invalid; None if it is valid.
      raw: the raw bytes for a reject: the line of the CSV file, or the image's path.
    """

    source: str
    place: int
    files: Mapping[str, str]
    names: tuple[str, ...] = ()
    problem: CellError | None = None
    raw: bytes = b""

    @property
    def shown(self) -> str:
        """Its name in text output."""
        return plain(" ".join(self.names or (self.source,)))


@dataclasses.dataclass(frozen=True)
class Listed:
    """Items in order, and about how many there are: blank lines and headers count too."""

    items: Iterator[Item]
    count: int


def list_items(schema: ImageSchema, paths: Sequence[str], root: str | None) -> Listed:
    """The items of the input files, by the schema's format.

    Args:
      schema: of the dataset that the model was trained on.
      paths: the input files.
      root: the value of `--root`.

    Raises:
      UsageError: a file or `root` does not fit the format. Raised by the call, before the first item.
    """
    return LISTS[type(schema)](paths, root)


def list_images(paths: Sequence[str], root: str | None) -> Listed:
    """Each file is an image; `root` is ignored."""
    (image,) = ImageFolderSchema.image_names
    items = (
        Item(path, place, {image: path}, problem=name_problem(path), raw=os.fsencode(path))
        for place, path in enumerate(paths)
    )
    return Listed(items, len(paths))


def list_pairs(paths: Sequence[str], root: str | None) -> Listed:
    """Reads the pairs in UTF-8 CSV files. A first line `left,right` is a header; blank lines are skipped.

    Args:
      paths: the CSV files.
      root: the folder that the images' paths are relative to, and must stay inside; None: each CSV file's folder.

    Returns:
      Items, one for each line; that of an invalid line has its `problem` set.

    Raises:
      UsageError: a file is not UTF-8, or `root` is not a folder. Raised by the call, before the first item.
    """
    if root is not None and storage.is_local(root) and not os.path.isdir(root):
        raise UsageError(f"--root {root}: no such folder; it is the folder that the images' paths are relative to")
    texts = [(path, _text(path)) for path in paths]
    items = (item for path, text in texts for item in _pairs(path, text, root or os.path.dirname(path)))
    return Listed(items, sum(text.count("\n") + 1 for _, text in texts))


LISTS: Mapping[type[ImageSchema], Callable[[Sequence[str], str | None], Listed]] = {
    ImageFolderSchema: list_images,
    ImagePairsSchema: list_pairs,
}


def _text(path: str) -> str:
    try:
        return storage.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: is not UTF-8 at byte {error.start}; a model of pairs takes CSV files with two image paths "
            "per line"
        ) from None


def _pairs(path: str, text: str, root: str) -> Iterator[Item]:
    inside = Inside(root or ".")
    for number, line in numbered_lines(text):
        if number == 1 and line.replace(" ", "") == ",".join(ImagePairsSchema.image_names):
            continue
        names = tuple(fields(line))
        problem = _problem(names, inside)
        if problem is not None:
            yield Item(path, number, {}, (line[:200],), problem, line.encode())
        else:
            files = (storage.join(root, name) if root else name for name in names)
            named = dict(zip(ImagePairsSchema.image_names, files, strict=True))
            yield Item(path, number, named, names, raw=line.encode())


def _problem(names: tuple[str, ...], inside: Inside) -> CellError | None:
    if len(names) != 2:
        reason = "too_many_columns" if len(names) > 2 else "too_few_columns"
        return CellError(reason, f"{len(names)} fields; expected two image paths")
    for name in names:
        problem = path_problem(name, relative_to="the CSV file, or --root") or inside.problem(name)
        if problem is not None:
            return problem
    return None
