"""Reads image files, checks them before they are decoded, and groups them in batches that fit in memory.

The job and the commands that predict use the same limits, and the same reasons for rejects.
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

ERRORS = (BadImage, MillraceError, MemoryError)  # errors of reading and decoding that `ImageFile.refusal` explains
# Names of ops in TensorFlow's messages. They are removed, since they differ between a job and a model.
_NODES = re.compile(r"^(?:\{\{[^}]*\}\}\s*)+")

_OPS = re.compile(r" \[\[| \[Op:")


@dataclasses.dataclass(frozen=True)
class ImageRefusal:
    """Why an image file is rejected: the stage, the reason and the detail of a reject."""

    stage: str
    reason: str
    detail: str


class ImageFile:
    """Reads and checks an image file. First call `measure`, which does not open the file, then `read`."""

    def __init__(self, path: str, images: ImageOptions) -> None:
        self._path = path
        self._images = images
        self._size: int | None = None
        self._stage = "read"

    def measure(self) -> int:
        """Returns the size of the file in bytes.

        Raises:
          BadImage: the path is a folder, a pipe or a device, which might never end; or the file is too large.
          MillraceError: there is no such file.
        """
        self._size = _size(self._path)
        if self._size > self._images.max_file_bytes:
            raise BadImage("file_too_large", f"files of at most {self._images.max_file_bytes:,} bytes are accepted")
        return self._size

    def read(self) -> tuple[bytes, ImageHeader]:
        """Returns the bytes of the file, and the header of the image, which may be decoded.

        Raises:
          BadImage: `check_image` refuses the image.
          MillraceError: the file cannot be read.
        """
        data = storage.read_bytes(self._path)
        self._stage = "ingest"
        return data, check_image(data, self._images)

    def refusal(self, error: BaseException) -> ImageRefusal:
        """Returns why the file is rejected.

        Args:
          error: one of ERRORS, raised while the file was read or decoded.
        """
        if isinstance(error, BadImage):
            reason, detail = error.reason, error.detail
        elif isinstance(error, MemoryError):
            reason, detail = "out_of_memory", "there was no memory to decode it"
        else:
            reason, detail = "unreadable_file", str(error)
        text = detail if self._size is None else f"{detail} ({self._size:,} bytes)"
        return ImageRefusal(self._stage, reason, text)


def undecodable(header: ImageHeader, data: bytes, error: Exception) -> BadImage:
    """Returns the error about a file with a good header that TensorFlow cannot decode."""
    reason = "truncated_image" if ends_early(header, data) else "undecodable_image"
    return BadImage(reason, f"{header.format.upper()}, {header.height} x {header.width} pixels: {decoder_says(error)}")


def decoder_says(error: Exception) -> str:
    """Returns the message of TensorFlow's decoder, without the names of ops."""
    lines = _OPS.split(str(getattr(error, "message", error)), maxsplit=1)[0].strip().splitlines()
    return _NODES.sub("", lines[-1].strip())[:300] if lines else type(error).__name__


def _size(path: str) -> int:
    """Returns the size of a file. Raises BadImage if the path is not a regular file."""
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
READERS = 4  # the number of reading threads, which mostly wait, especially on a network disk


@dataclasses.dataclass(frozen=True)
class CheckedFile:
    """An image file that passed the checks.

    Attributes:
      data: the bytes of the file.
      header: the header of the image.
      decoding: the approximate memory that decoding takes, in bytes.
      read: the `ImageFile` that read it, which explains later errors.
    """

    data: bytes
    header: ImageHeader
    decoding: int
    read: ImageFile


@dataclasses.dataclass(frozen=True)
class ReadItem:
    """An item with its files, by name of the model's input; or with its reject."""

    item: ImageItem
    files: Mapping[str, CheckedFile]
    reject: Reject | None = None

    @property
    def size(self) -> int:
        """The size of the item's files, in bytes."""
        return sum(len(file.data) for file in self.files.values())

    @property
    def decoding(self) -> int:
        """The approximate memory that decoding the item's files takes, in bytes."""
        return sum(file.decoding for file in self.files.values())


def read_item(item: ImageItem, images: ImageOptions) -> ReadItem:
    """Reads the files of an item, and checks their sizes and headers. An invalid item gets a reject."""
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
    """Groups items in batches, in order, within limits on their number, their bytes, and the memory to decode them.

    Rejects are part of the batches.

    Args:
      everything: the items.
      batch_size: the largest number of items in a batch.
    """
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
    """Returns the reject of an item.

    Args:
      item: the item.
      name: the model's input with the refused file; '' if the item itself is refused.
      refusal: why.
    """
    several = len(item.files) > 1
    detail = f"{plain(item.files[name])}: {refusal.detail}" if several and name in item.files else refusal.detail
    column = name or None if several else None
    return Reject(plain(item.source), item.place, refusal.stage, refusal.reason, column, detail, item.raw)
