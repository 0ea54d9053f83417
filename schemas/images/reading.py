"""Reads the files of images to predict on, checks them, and puts them in batches that memory holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from schemas.images.file import ERRORS, ImageFile, Refusal
from schemas.images.header import ImageHeader
from schemas.images.items import Item
from schemas.images.limits import decoding_bytes
from schemas.images.paths import plain
from schemas.rejects import Reject
from schemas.spec.image_options import ImageOptions

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

    item: Item
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


def read_item(item: Item, images: ImageOptions) -> ReadItem:
    """Reads the files of an item, and checks their sizes and headers."""
    files: dict[str, CheckedFile] = {}
    if item.problem is not None:
        return ReadItem(item, {}, reject_of(item, "", Refusal("list", item.problem.reason, item.problem.detail)))
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
    """Batches in order, rejects included, within the limits on images, bytes and decoding memory."""
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


def reject_of(item: Item, name: str, refusal: Refusal) -> Reject:
    """The reject of an item. `name`: the input whose file is refused; '' if it is the item itself."""
    several = len(item.files) > 1
    detail = f"{plain(item.files[name])}: {refusal.detail}" if several and name in item.files else refusal.detail
    column = name or None if several else None
    return Reject(plain(item.source), item.place, refusal.stage, refusal.reason, column, detail, item.raw)
