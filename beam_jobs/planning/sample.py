"""A part of a job's input as an input of its own, small enough to run a job on it at once."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, BinaryIO

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.images.listing import is_absolute, numbered_lines
from schemas.spec.images import ImageFolderSchema, ImagePairsSchema
from schemas.spec.loader import AnySchema
from schemas.spec.split_hash import file_split
from schemas.spec.table import SPLITS, CsvOptions, FileSplit, Schema
from schemas.storage import Listing

FILES = 8  # of rows: a sample is cut from the beginnings of so many, drawn at random
LEAST_IMAGES = 16
LISTED_BYTES = 64_000  # of an image whose size a CSV file does not say
_PIECE = 1 << 20
_MOST_TIMES = 8  # a sample of a gzip'd file holds at most so many times as much
_GZIP = b"\x1f\x8b"
_GZIP_MEMBER = 31  # zlib's `wbits`
_UTF_16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclasses.dataclass(frozen=True)
class Sample:
    """An input in the form of the whole one.

    Attributes:
      schema: the schema's file: the job's own schema, but for the places of the files.
      input: the files, each with the file of the whole input that it is, or that it is the beginning of.
      share: how much of the whole input it is, more than 0 and up to 1: of the bytes of files of rows, as they are
        stored, or of the number of images.
    """

    schema: str
    input: Mapping[str, str]
    share: float


def take(schema: AnySchema, listing: Listing, *, classes: Sequence[str], size: int, folder: str) -> Sample:
    """Takes a sample.

    Args:
      schema: the job's.
      listing: the job's input.
      classes: of images, all classes, some of which a sample may lack.
      size: about how many bytes of the input to take.
      folder: a local folder to make, for what has to be written.

    Raises:
      UsageError: the input is pairs of images, of which no part is like the whole.
      MillraceError: a file cannot be read.
    """
    os.makedirs(folder)
    declared = schema.model_dump(mode="json", exclude_unset=True, by_alias=True)
    files, share = _TAKERS[type(schema)](schema, declared, listing, size, folder)
    if classes:
        declared["label"] = {**declared.get("label", {}), "values": list(classes)}
    path = os.path.join(folder, "schema.yaml")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(declared, file)  # which is YAML, too
    return Sample(path, files, share)


Taken = tuple[dict[str, str], float]  # the files, and what they are of; their share of the input


def _rows(schema: Schema, declared: dict[str, Any], listing: Listing, size: int, folder: str) -> Taken:
    """The beginnings of some files. They lie in a folder for each split, if the files' names say the split."""
    split = schema.split if isinstance(schema.split, FileSplit) else None
    chosen = _some_files(listing, split)
    if split is not None:
        declared["split"] = {"by": "file", **{name: f"*/{name}/*" for name in split.splits}}
    files: dict[str, str] = {}
    taken = 0
    for i, (path, length, part) in enumerate(chosen):
        into = os.path.join(folder, part)
        os.makedirs(into, exist_ok=True)
        copy = os.path.join(into, f"{i}.csv")
        files[copy] = path
        if length:
            taken += cut(path, copy, size * length // sum(found[1] for found in chosen), schema.csv)
        else:
            open(copy, "wb").close()
    return files, min(1.0, taken / max(1, listing.bytes))


def _some_files(listing: Listing, split: FileSplit | None) -> list[tuple[str, int, str]]:
    """(path, size, split) of the first files, which are a random sample; of each split that goes by files' names."""
    by_split: dict[str, list[tuple[str, int, str]]] = {}
    for file in listing:
        name = SPLITS[file_split(file.path, split)] if split is not None else "rows"
        some = by_split.setdefault(name, [])
        if len(some) < FILES:
            some.append((file.path, file.size, name))
        if len(by_split) == (len(split.splits) if split is not None else 1) and all(
            len(found) == FILES for found in by_split.values()
        ):
            break
    return list(itertools.chain.from_iterable(by_split.values()))


def cut(path: str, copy: str, size: int, options: CsvOptions) -> int:
    """Copies the beginning of a file of rows, up to the end of a record.

    Args:
      path: the file, as it is, or gzip'd; then the copy is, too.
      copy: the local file to write.
      size: about how many bytes of the file, as it is stored, to copy: at least a record.
      options: how records end.

    Returns:
      How many bytes of the file hold what was copied.

    Raises:
      MillraceError: the file cannot be read, or has no end of a record within `size` bytes.
    """
    with storage.wrap_errors(path), storage.open_read(path) as stored:
        gzipped = stored.read(2) == _GZIP
        stored.seek(0)
        data = _decompressed(stored, path, size) if gzipped else stored.read(size)
        read = stored.tell()
        complete = not stored.read(1)
    end = len(data) if complete else last_end(data, options)
    if not end:
        raise MillraceError(f"{path}: no record ends in its first {size:,} bytes; give a larger --sample_mb")
    with gzip.open(copy, "wb", 1) if gzipped else open(copy, "wb") as file:
        file.write(data[:end])
    return max(1, read * end // max(1, len(data)))


def _decompressed(stored: BinaryIO, path: str, size: int) -> bytes:
    """What the first `size` bytes decompress to, or a part of it if that is very much. Reads no further."""
    pieces: list[bytes] = []
    length = 0
    member = zlib.decompressobj(wbits=_GZIP_MEMBER)
    try:
        while stored.tell() < size and length < _MOST_TIMES * size:
            data, ended = member.unused_data.lstrip(b"\0"), member.eof
            data = data or stored.read(min(_PIECE, size - stored.tell()))
            if not data and not ended:
                raise MillraceError(f"{path}: the gzip file is truncated; get a new copy")
            if not data:
                break
            if ended:
                member = zlib.decompressobj(wbits=_GZIP_MEMBER)
            pieces.append(member.decompress(data))
            length += len(pieces[-1])
    except zlib.error as error:
        raise MillraceError(f"{path}: corrupt gzip data: {error}; get a new copy") from error
    return b"".join(pieces)


def last_end(data: bytes, options: CsvOptions) -> int:
    """Where the last complete record of some bytes ends, line end included; 0 if there is none."""
    wide = next((codec for mark, codec in _UTF_16.items() if data.startswith(mark)), None)
    if wide is None and options.encoding == "utf-16":
        wide = "utf-16-le"
    line_end = b"\n" if wide is None else "\n".encode(wide)
    if wide is None and b"\n" not in data:
        line_end = b"\r"
    quote = options.quote.encode(wide or "ascii")
    end = len(data)
    while (found := data.rfind(line_end, 0, end)) >= 0:
        end = found + len(line_end)
        aligned = found % len(line_end) == 0
        if aligned and not (options.quoted_newlines and data.count(quote, 0, found) % 2):
            return end
        end -= 1
    return 0


def _images(schema: ImageFolderSchema, declared: dict[str, Any], listing: Listing, size: int, folder: str) -> Taken:
    """The first images, which are a random sample; or lines of the CSV file that lists them."""
    if schema.images.root is not None:
        return _listed_images(schema.images.root, declared, listing, size, folder)
    least = min(len(listing), LEAST_IMAGES)
    files: dict[str, str] = {}
    taken = 0
    for file in listing:
        if taken >= size and len(files) >= least:
            break
        files[file.path] = file.path
        taken += file.size
    return files, len(files) / len(listing)


def _listed_images(root: str, declared: dict[str, Any], listing: Listing, size: int, folder: str) -> Taken:
    """Every so many of the lines."""
    (listed,) = listing
    text = storage.read_bytes(listed.path).decode("utf-8-sig", "surrogateescape")
    lines = [line for _, line in numbered_lines(text)]
    header = lines[:1] if lines and lines[0].replace(" ", "") == "path,label" else []
    lines = lines[len(header) :]
    chosen = lines[:: max(1, len(lines) // max(LEAST_IMAGES, size // LISTED_BYTES))]
    if not is_absolute(root):
        root = storage.join(os.path.dirname(listed.path), root)
    declared["images"]["root"] = root if not storage.is_local(root) else os.path.abspath(root)
    path = os.path.join(folder, "images.csv")
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.writelines(f"{line}\n" for line in [*header, *chosen])
    return {path: listed.path}, len(chosen) / max(1, len(lines))


def _pairs(schema: ImagePairsSchema, declared: dict[str, Any], listing: Listing, size: int, folder: str) -> Taken:
    raise UsageError(
        "pairs of images cannot be planned from a sample: they are drawn among all images. Plan their images as a "
        "folder of classes (format: image_folder), or run the job; its time is about that of its images"
    )


_TAKERS: Mapping[type[AnySchema], Callable[..., Taken]] = {
    Schema: _rows,
    ImageFolderSchema: _images,
    ImagePairsSchema: _pairs,
}
