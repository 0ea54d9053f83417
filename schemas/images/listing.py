"""Lists the images of a dataset with their labels, and the images that a model predicts on. Opens no image.

Images are found in folders, or listed in CSV files. Each line of such a file is one record.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from schemas import storage
from schemas.errors import MillraceError, UsageError, counted
from schemas.images.header import BadImage, read_header
from schemas.rejects import Reject
from schemas.spec.forms import CellError
from schemas.spec.images import PAIR, ImageSchema

CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # also matches a drive letter, C:


def _numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the number, from 1, and the text of each line that is not blank. Quotes do not join lines."""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        if line.strip():
            yield number, line


def _fields(line: str) -> list[str]:
    """Returns the fields of a line of CSV. If its quotes are malformed, the whole line is one field."""
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return [line]


def name_problem(path: str) -> CellError | None:
    """Returns the error about an image's path that cannot be stored or displayed; None if the path is fine."""
    try:
        os.fsencode(path).decode()
        clean = CONTROL.search(path) is None
    except UnicodeDecodeError:
        clean = False
    return None if clean else CellError("bad_name", f"the name {plain(path)} has a control character, or is not UTF-8")


def plain(text: str) -> str:
    """Returns a path as text that can be printed: bytes that are not UTF-8, and control characters, are escaped."""
    readable = os.fsencode(text).decode("utf-8", "backslashreplace")
    return readable if readable.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in readable)


class _Root:
    """The folder that the paths in a CSV file are relative to, and that they must not lead out of.

    Args:
      root: the folder.
      called: the name of the folder in messages.
    """

    def __init__(self, root: str, called: str) -> None:
        self.root, self.called = root, called
        self._real_root = os.path.realpath(root) if storage.is_local(root) else None
        self._real = functools.lru_cache(maxsize=4096)(os.path.realpath)  # resolves each folder once

    def problem(self, name: str) -> CellError | None:
        """Returns the error about a path that does not name a file below the folder; None if the path is fine."""
        if not name or CONTROL.search(name):
            return CellError("bad_name", f"the path {name[:200]!r} is empty or has a control character")
        if is_absolute(name):
            return CellError("path_outside_root", f"found {name[:200]!r}; expected a path relative to {self.called}")
        if ".." in re.split(r"[/\\]", name):
            return CellError("path_outside_root", f"found '..' in {name[:200]!r}")
        # Resolve links. Many files share a folder, so the folder is resolved once, in a cache, and then a link in its
        # last part.
        if self._real_root is not None:
            folder, _, last = os.path.join(self.root, name).rpartition("/")
            path = os.path.join(str(self._real(folder)), last)
            path = os.path.realpath(path) if os.path.islink(path) else path
            if os.path.commonpath([path, self._real_root]) != self._real_root:
                return CellError("path_outside_root", f"a symbolic link in {name[:200]!r} leads outside the root")
        return None


def is_absolute(path: str) -> bool:
    """Returns whether a path begins with a slash, a drive or a scheme."""
    return path.startswith(("/", "\\")) or _SCHEME.match(path) is not None


FIRST = 9  # the number of files that are opened to find out whether the input holds images


def is_image(path: str) -> bool:
    """Returns whether a file is an image, judging by its first bytes. It may be of a format that cannot be read."""
    try:
        read_header(_head(path))
    except BadImage as error:
        return error.reason not in ("empty_file", "not_an_image")
    return True


def _head(path: str) -> bytes:
    with storage.open_read(path) as file, storage.wrap_errors(path):
        return file.read(16)


def check_first(paths: Sequence[str]) -> None:
    """Refuses an input with no image among its first files. It is probably a table, given by mistake.

    If some of the first files are images, the others are only rejected later.

    Raises:
      UsageError: the first files are no images.
    """
    first = paths[:FIRST]
    try:
        has_image = not first or any(map(is_image, first))
    except MillraceError:  # a file that cannot be read is rejected later, with its reason
        return
    if not has_image:
        raise UsageError(
            f"{first[0]}: not an image: its first bytes are {_head(first[0])[:8]!r}; expected JPEG or PNG "
            "files. Rows of a CSV file are for a schema, or a model, of rows"
        )


BUNDLE = 256  # images that one worker takes at a time


@dataclasses.dataclass(frozen=True)
class ImageListing:
    """The images of a dataset in order, as columns of equal length.

    Attributes:
      paths: the path of each image.
      names: the name of each image in the records.
      labels: the label of each image.
      rejects: lines and names that were rejected. They count as read.
    """

    paths: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]
    rejects: tuple[Reject, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The distinct labels, sorted."""
        return tuple(sorted(set(self.labels)))


@dataclasses.dataclass(frozen=True)
class ImageBundle:
    """Consecutive images of a listing. `first` is the index in the listing of the first of them."""

    first: int
    paths: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[str, ...]


def bundles(listing: ImageListing, size: int = BUNDLE) -> Iterator[ImageBundle]:
    """Cuts a listing into bundles of at most `size` images."""
    for i in range(0, len(listing.paths), size):
        part = slice(i, i + size)
        yield ImageBundle(i, listing.paths[part], listing.names[part], listing.labels[part])


def listed_as(path: str, name: str, label: str, *, by_csv: bool) -> bytes:
    """Returns an image's entry in the listing, which is the raw part of its reject: its path, or the line `path,label`.

    Args:
      path: the path of the image.
      name: its name in the CSV file.
      label: its label.
      by_csv: whether the images are listed in CSV files.
    """
    if not by_csv:
        return path.encode()
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow((name, label))
    return line.getvalue().encode()


def list_folders(paths: Sequence[str]) -> ImageListing:
    """Lists images by their paths. The label of an image is the name of its folder.

    A path with a control character, or that is not UTF-8, becomes a reject. The offset of the reject is the path's
    index.

    Args:
      paths: the paths, such as those that `schemas.storage.expand` returns.

    Raises:
      UsageError: a path has no folder.
    """
    good: list[tuple[str, str, str]] = []
    rejects: list[Reject] = []
    for path in paths:
        name, label = path.rpartition("/")[2], sys.intern(folder_label(path))
        if label in ("", ".", ".."):
            raise UsageError(f"{path}: its folder has no name to use as the label; give inputs such as 'photos/*/*'")
        if (problem := name_problem(path)) is not None:
            # A name that is not UTF-8 has surrogates, which cannot be stored.
            place, raw = len(good) + len(rejects), os.fsencode(path)
            rejects.append(Reject(plain(path), place, "list", problem.reason, None, problem.detail, raw))
        else:
            good.append((path, f"{label}/{name}", label))
    return _listing(good, rejects)


_SPLITS = frozenset(
    ("train", "training", "trainset", "val", "valid", "validation", "dev", "eval", "evaluation", "test", "testing")
)


def folders_like_splits(paths: Iterable[str]) -> set[str]:
    """Returns the folders that look like splits, such as `train` in `photos/train/ants/1.jpg`.

    These are the folders above those of the labels.
    """
    above = {path.rpartition("/")[0].rpartition("/")[0].rpartition("/")[2] for path in paths}
    return {name for name in above if name.lower() in _SPLITS}


def note_of_splits(folders: Iterable[str]) -> str:
    """Returns the note that folders look like splits, but are not used as such. `init` and jobs print it."""
    return (
        f"the folders {', '.join(sorted(folders))} look like splits, but their images are mixed and split anew, as the "
        "schema says. To keep a folder apart, leave it out of the input"
    )


def folder_label(path: str) -> str:
    """Returns the name of a file's folder."""
    return path.rpartition("/")[0].rpartition("/")[2]


def list_csv(path: str, root: str) -> ImageListing:
    """Lists images by the lines `path,label` of a CSV file.

    The first line is a header if it reads `path,label`. It is also a header, such as `image,class`, if its first field
    has no file suffix and that of the second line has one.

    A line becomes a reject if it has no label, or if its path leads outside `root` by `..`, an absolute path, a scheme
    or a symbolic link. The offset of the reject is the line's number.

    Args:
      path: the CSV file, in UTF-8.
      root: the folder that the paths are relative to; it may itself be relative to the folder of the CSV file.

    Raises:
      UsageError: the file is not UTF-8, or `root` is not a folder.
    """
    text = _csv_text(path, "expected lines of path,label")
    lines = list(_numbered_lines(text))
    return list_lines(lines[1:] if _has_header(lines, ["path", "label"]) else lines, path, root)


def _has_header(lines: Sequence[tuple[int, str]], names: Sequence[str]) -> bool:
    """Whether the first line of a CSV file is a header.

    It is if its fields are `names`, or if its first field has no file suffix and that of the second line has one.
    """
    if not lines:
        return False
    first, *second = ([field.strip() for field in _fields(line)] for _, line in lines[:2])
    if first == [*names]:
        return True
    suffixes = [os.path.splitext(row[0])[1] for row in (first, *second)]
    return len(suffixes) == 2 and not suffixes[0] and bool(suffixes[1])


def list_lines(lines: Iterable[tuple[int, str]], path: str, root: str) -> ImageListing:
    """Lists images by the lines of a CSV file, as `list_csv` does, but does not read the file.

    Args:
      lines: the number, from 1, and the text of each line, without a header.
      path: the CSV file.
      root: the folder that the paths are relative to.
    """
    if not is_absolute(root):
        root = storage.join(os.path.dirname(path), root) if os.path.dirname(path) else root
    if storage.is_local(root) and not os.path.isdir(root):
        raise UsageError(f"{root}: no such folder; `root` is the folder that the paths in {path} are relative to")
    good: list[tuple[str, str, str]] = []
    rejects: list[Reject] = []
    folder = _Root(root, "the root")
    for number, line in lines:
        row = _fields(line)
        problem, column = _problem(row, folder)
        if problem is None:
            good.append((storage.join(root, row[0]), row[0], sys.intern(row[1].strip())))
        else:
            detail = f"line {number}: {problem.detail}"
            rejects.append(Reject(path, number, "list", problem.reason, column, detail, line.encode()))
    return _listing(good, rejects)


def _problem(row: list[str], folder: _Root) -> tuple[CellError | None, str | None]:
    """Returns the error about a line, and its column; None, None if the line is fine."""
    if len(row) != 2:
        return _wrong_width(row, "path,label"), None
    name, label = row
    if (problem := folder.problem(name)) is not None:
        return problem, "path"
    if CONTROL.search(label):
        return CellError("bad_name", f"the label {label[:200]!r} has a control character"), "label"
    return (None, None) if label.strip() else (CellError("missing_label", f"no label for {name[:200]!r}"), "label")


def _wrong_width(row: Sequence[str], expected: str) -> CellError:
    reason = "too_few_columns" if len(row) < 2 else "too_many_columns"
    return CellError(reason, f"{counted(len(row), 'fields')}, expected {expected}")


def _listing(good: list[tuple[str, str, str]], rejects: list[Reject]) -> ImageListing:
    paths, names, labels = zip(*good, strict=True) if good else ((), (), ())
    return ImageListing(paths, names, labels, tuple(rejects))


@dataclasses.dataclass(frozen=True)
class ImageItem:
    """An image, or a pair of images, to predict on.

    Attributes:
      source: the path of the image, or of the CSV file that lists the pair.
      place: the index of the image, from 0; or the line number in the CSV file, from 1.
      files: the paths of the images, by name of the model's input.
      names: the names of a pair's images in the CSV file; empty for a single image.
      problem: why the item is invalid; None if it is valid.
      raw: the raw bytes for a reject: the line of the CSV file, or the path of the image.
    """

    source: str
    place: int
    files: Mapping[str, str]
    names: tuple[str, ...] = ()
    problem: CellError | None = None
    raw: bytes = b""

    @property
    def shown(self) -> str:
        """The name of the item in text output."""
        return plain(" ".join(self.names or (self.source,)))


@dataclasses.dataclass(frozen=True)
class Listed:
    """Items in order, and approximately how many there are. The count includes blank lines and headers."""

    items: Iterator[ImageItem]
    count: int


def list_items(schema: ImageSchema, paths: Sequence[str], root: str | None) -> Listed:
    """Lists the items to predict on: images, or for a model of pairs the pairs of images in CSV files.

    Args:
      schema: the schema of the dataset that the model was trained on.
      paths: the input files. For a model of pairs, these are CSV files with a pair in each line.
      root: the folder that the paths in a CSV file are relative to; None: the folder of the CSV file.

    Raises:
      UsageError: a file or `root` does not fit the format. Raised by this call, before the first item.
    """
    return list_pairs(paths, root) if schema.pairs else list_images(paths)


def list_images(paths: Sequence[str]) -> Listed:
    """Lists files that are images."""
    check_first(paths)
    items = (
        ImageItem(path, place, {"image": path}, problem=name_problem(path), raw=os.fsencode(path))
        for place, path in enumerate(paths)
    )
    return Listed(items, len(paths))


def list_pairs(paths: Sequence[str], root: str | None) -> Listed:
    """Reads the pairs of images in CSV files, in UTF-8. Skips blank lines, and a header such as `left,right`.

    Args:
      paths: the CSV files.
      root: the folder that the images' paths are relative to, and must not lead out of; None: the folder of each CSV
        file.

    Returns:
      An item for each line. The item of an invalid line has a `problem`.

    Raises:
      UsageError: a file is not UTF-8, or `root` is not a folder. Raised by this call, before the first item.
    """
    if root is not None and storage.is_local(root) and not os.path.isdir(root):
        raise UsageError(f"--root {root}: no such folder; it is the folder that the images' paths are relative to")
    expected = "a model of pairs takes CSV files with two image paths per line"
    texts = [(path, _csv_text(path, expected)) for path in paths]
    items = (item for path, text in texts for item in _pairs(path, text, root or os.path.dirname(path)))
    return Listed(items, sum(text.count("\n") + 1 for _, text in texts))


def _csv_text(path: str, expected: str) -> str:
    """Returns the text of a CSV file in UTF-8."""
    try:
        return storage.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not UTF-8 at byte {error.start}; {expected}") from error


def _pairs(path: str, text: str, root: str) -> Iterator[ImageItem]:
    """Yields an item for each line of a CSV file."""
    folder = _Root(root or ".", "the CSV file, or --root")
    lines = list(_numbered_lines(text))
    for number, line in lines[1:] if _has_header(lines, PAIR) else lines:
        names = tuple(_fields(line))
        problem = next(filter(None, map(folder.problem, names)), None)
        if len(names) != 2:
            problem = _wrong_width(names, "two image paths")
        if problem is not None:
            yield ImageItem(path, number, {}, (line[:200],), problem, line.encode())
        else:
            files = (storage.join(root, name) if root else name for name in names)
            named = dict(zip(PAIR, files, strict=True))
            yield ImageItem(path, number, named, names, raw=line.encode())
