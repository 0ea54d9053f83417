"""Reads image files, checks them before they are decoded, and puts them in batches that fit in memory.

The job and the commands that predict read files by the same limits, with the same reasons for rejects.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
from collections.abc import Iterator, Mapping

from schemas import storage
from schemas.errors import MillraceError
from schemas.images.header import BadImage, ImageHeader, check_image, decoding_bytes, ends_early
from schemas.images.listing import ImageItem, plain
from schemas.rejects import Reject
from schemas.spec.images import ImageOptions

ERRORS = (BadImage, MillraceError, MemoryError)  # what reading and decoding a file may raise; see `ImageFile.refusal`
_NODES = re.compile(r"^(?:\{\{[^}]*\}\}\s*)+")  # the ops that raised an error: different ones in a job and a model

_OPS = re.compile(r" \[\[| \[Op:")


@dataclasses.dataclass(frozen=True)
class ImageRefusal:
    """Why a file is rejected: the fields of a reject."""

    stage: str
    reason: str
    detail: str


class ImageFile:
    """Reads and checks a file: call `measure` first, which opens nothing, then `read`."""

    def __init__(self, path: str, images: ImageOptions) -> None:
        self._path = path
        self._images = images
        self._size: int | None = None
        self._stage = "read"

    def measure(self) -> int:
        """Returns the size of the file in bytes.

        Raises:
          BadImage: a folder, a pipe or a device, whose reading might never end; or too many bytes.
          MillraceError: there is no such file.
        """
        self._size = _size(self._path)
        if self._size > self._images.max_file_bytes:
            raise BadImage("file_too_large", f"files of at most {self._images.max_file_bytes:,} bytes are accepted")
        return self._size

    def read(self) -> tuple[bytes, ImageHeader]:
        """Returns the bytes, and the header of an image that may be decoded.

        Raises:
          BadImage: what `check_image` raises.
          MillraceError: the file cannot be read.
        """
        data = storage.read_bytes(self._path)
        self._stage = "ingest"
        return data, check_image(data, self._images)

    def refusal(self, error: BaseException) -> ImageRefusal:
        """Returns the refusal for one of ERRORS."""
        if isinstance(error, BadImage):
            reason, detail = error.reason, error.detail
        elif isinstance(error, MemoryError):
            reason, detail = "out_of_memory", "there was no memory to decode it"
        else:
            reason, detail = "unreadable_file", str(error)
        text = detail if self._size is None else f"{detail} ({self._size:,} bytes)"
        return ImageRefusal(self._stage, reason, text)


def undecodable(header: ImageHeader, data: bytes, error: Exception) -> BadImage:
    """Returns the error for a file whose header is accepted but which TensorFlow cannot decode."""
    reason = "truncated_image" if ends_early(header, data) else "undecodable_image"
    return BadImage(reason, f"{header.format.upper()}, {header.height} x {header.width} pixels: {decoder_says(error)}")


def decoder_says(error: Exception) -> str:
    """Returns the decoder's message, without the names of ops that TensorFlow adds."""
    lines = _OPS.split(str(getattr(error, "message", error)), maxsplit=1)[0].strip().splitlines()
    return _NODES.sub("", lines[-1].strip())[:300] if lines else type(error).__name__


def _size(path: str) -> int:
    if not storage.is_local(path):
        return storage.stat(path).size
    with storage.wrap_errors(path):
        file_stat = os.stat(path)
    if not stat.S_ISREG(file_stat.st_mode):
        raise BadImage("not_a_file", "found a folder, a pipe or a device; expected a file")
    return file_stat.st_size


BATCH_SIZE = 64
BATCH_BYTES = 64 << 20  # maximum size of the files in a batch; a larger file is a batch of its own
DECODING_BYTES = 1 << 30  # maximum memory to decode all images of a batch
READERS = 4  # threads, since reading is mostly waiting, especially on a network disk


@dataclasses.dataclass(frozen=True)
class CheckedFile:
    """A file that passed the checks."""

    data: bytes
    header: ImageHeader
    decoding: int
    read: ImageFile


@dataclasses.dataclass(frozen=True)
class ReadItem:
    """An item and its files by input, or its reject."""

    item: ImageItem
    files: Mapping[str, CheckedFile]
    reject: Reject | None = None

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return sum(len(file.data) for file in self.files.values())

    @property
    def decoding(self) -> int:
        """About the memory that decoding them takes, in bytes."""
        return sum(file.decoding for file in self.files.values())


def read_item(item: ImageItem, images: ImageOptions) -> ReadItem:
    """Reads the files of an item, and checks their sizes and headers."""
    files: dict[str, CheckedFile] = {}
    if item.problem is not None:
        return ReadItem(item, {}, reject_of(item, "", ImageRefusal("list", item.problem.reason, item.problem.detail)))
    for name, path in item.files.items():
        file = ImageFile(path, images)
        try:
            file.measure()
            data, header = file.read()
            files[name] = CheckedFile(data, header, decoding_bytes(header, images), file)
        except ERRORS as error:
            return ReadItem(item, {}, reject_of(item, name, file.refusal(error)))
    return ReadItem(item, files)


def batches(everything: Iterator[ReadItem], batch_size: int) -> Iterator[list[ReadItem]]:
    """Yields batches in order, rejects included, within the limits on images, bytes and decoding memory."""
    batch: list[ReadItem] = []
    size = decoding = 0
    for read in everything:
        size, decoding = size + read.size, decoding + read.decoding
        if batch and (len(batch) >= batch_size or size > BATCH_BYTES or decoding > DECODING_BYTES):
            yield batch
            batch, size, decoding = [], read.size, read.decoding
        batch.append(read)
    if batch:
        yield batch


def reject_of(item: ImageItem, name: str, refusal: ImageRefusal) -> Reject:
    """Returns the reject of an item. `name`: the input whose file is refused; '' if it is the item itself."""
    several = len(item.files) > 1
    detail = f"{plain(item.files[name])}: {refusal.detail}" if several and name in item.files else refusal.detail
    column = name or None if several else None
    return Reject(plain(item.source), item.place, refusal.stage, refusal.reason, column, detail, item.raw)
