"""Reads bundles of image files, and makes Arrow batches of records and the measurements of each image.

Two threads for each core decode the files. Budgets limit the memory of all threads together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import tensorflow as tf

from beam_jobs.core.accounting import FILE, PASSTHROUGH, as_lists
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.parity import FileKeeper, StagedCopy
from beam_jobs.images.facts import Facts, string_lists
from beam_jobs.images.ingest import new_ingest, saved_ingest
from beam_jobs.records.existing import Content, image_digest
from schemas import storage
from schemas.concurrency import ByteBudget, map_in_order, usable_cores
from schemas.images.header import ImageHeader, decoding_bytes
from schemas.images.listing import ImageBundle, listed_as
from schemas.images.reading import ERRORS, ImageFile, undecodable
from schemas.profile.duplicates import place_hash
from schemas.profile.leakage import ImageFingerprint
from schemas.profile.near_duplicates import NO_HASH, difference_hash
from schemas.rejects import Reject
from schemas.spec import images as key
from schemas.spec.images import ImageOptions, ImageSplit
from schemas.spec.split_hash import assign_splits, hash_rows
from schemas.spec.table import OFFSET, SPLIT, HashSplit

_BINARY, _INTEGERS = pa.list_(pa.binary()), pa.list_(pa.int64())

RECORDS = pa.schema(
    [
        (key.ENCODED, _BINARY),
        (key.FORMAT, _BINARY),
        (key.HEIGHT, _INTEGERS),
        (key.WIDTH, _INTEGERS),
        (key.CLASS, _INTEGERS),
        (key.TEXT, _BINARY),
        (key.FILENAME, _BINARY),
    ]
)
KEYED_RECORDS = pa.schema([*RECORDS, *((name, _INTEGERS) for name in PASSTHROUGH)])

NO_MOMENTS = np.zeros((2, 3), np.int64)  # the sums of images that are not measured


@dataclasses.dataclass(frozen=True)
class ImageBatch:
    """The result of ingesting some images.

    Attributes:
      read: the number of images: the rows of `records` and the rejects.
      records: the records, with the columns of KEYED_RECORDS. The file's key is always LISTING, and the offset is the
        image's place in the listing.
      rejects: the images that could not be stored.
      file_copies: copies of the files of some records, by place in the listing, for parity records.
      facts: the facts for the statistics, one for each record.
      contents: the digest and the path of each record's file.
      fingerprints: the hashes by which leakage is found, one for each record; empty if leakage is not searched for.
    """

    read: int
    records: pa.RecordBatch
    rejects: tuple[Reject, ...]
    file_copies: Mapping[int, StagedCopy] = dataclasses.field(default_factory=dict)
    facts: tuple[Facts, ...] = ()
    contents: tuple[Content, ...] = ()
    fingerprints: tuple[ImageFingerprint, ...] = ()


@dataclasses.dataclass(frozen=True)
class Stored:
    """One image, as it is stored.

    Attributes:
      place: the image's place in the listing.
      name, label: the image's name and label in the listing.
      encoded: the stored image: a JPEG or the pixels.
      height, width: the sides of the stored image.
      facts: the facts for the statistics.
      digest: the hash that decides the image's split.
      content: the digest of the file, and its path.
      file_copy: the copy of the file for a parity record; None: the file was not chosen.
      fingerprint: the hashes by which leakage is found; None: leakage is not searched for.
    """

    place: int
    name: str
    label: str
    encoded: bytes
    height: int
    width: int
    facts: Facts
    digest: int
    content: Content
    file_copy: StagedCopy | None = None
    fingerprint: ImageFingerprint | None = None


def moments(pixels: np.ndarray) -> np.ndarray:
    """Computes the sum and the sum of squares of each channel, exactly.

    NumPy takes a sixth of the time of TensorFlow here.

    Args:
        pixels: uint8 `[height, width, 3]`.

    Returns:
        The sums, and the sums of squares, int64 `[2, 3]`.
    """
    # Sums up the columns of 256 rows at a time: 256 values of 255 stay below 2^16, and 256 values of 255^2 below 2^32,
    # so that small, fast types hold the sums.
    rows, columns = pixels.reshape(len(pixels), -1), []
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256].astype(np.uint16)
        columns.append((np.add.reduce(block, dtype=np.uint16), np.add.reduce(block * block, dtype=np.uint32)))
    return np.array(columns, np.int64).reshape(len(columns), 2, -1, 3).sum((0, 2))


def _integers(values: list[int]) -> pa.ListArray:
    return as_lists(np.array(values, np.int64))


BATCH_BYTES = 16 * 2**20  # the bytes of stored images in a batch
READ_BYTES = 64 * 2**20  # the bytes of files in memory at once; a larger file is read alone
DECODE_BYTES = 320 * 2**20  # the bytes for decoding images at once; a larger image is decoded alone
REMOTE_READERS = 32  # the number of threads if each file is a request to a bucket


class ImageReader:
    """Reads and stores the images of bundles. Owns threads: use as a context manager, or call `close`.

    Args:
        images: how images are stored.
        classes: the labels in the order of their ids; an image with another label is rejected.
        split: the fractions of the splits, and the part of an image that is hashed to choose its split.
        keeper: keeps copies of some files, for parity records; None: keep none. The copies are taken while the files
          are read, because a file may change later.
        ingest_from: the path of the saved ingest graph of the dataset that the images are added to; None: build the
          ingest graph of this release.
        looks: whether to compute the hashes by which leakage is found.
        threads: how many images to work on at once; None: see `default_threads`.
    """

    def __init__(
        self,
        images: ImageOptions,
        *,
        classes: Sequence[str],
        split: ImageSplit,
        keeper: FileKeeper | None = None,
        ingest_from: str | None = None,
        looks: bool = True,
        threads: int | None = None,
    ) -> None:
        self._images = images
        self._ids = {name: i for i, name in enumerate(classes)}
        self._split = split
        self._keeper = keeper
        self._looks = looks
        self._threads = threads
        self._reads = ByteBudget(READ_BYTES)
        self._decodes = ByteBudget(DECODE_BYTES)
        self._ingest = new_ingest(images) if ingest_from is None else saved_ingest(ingest_from)
        self._pool: ThreadPoolExecutor | None = None  # made when the first bundle tells whether its files are local

    def __enter__(self) -> ImageReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def read(self, bundle: ImageBundle, *, count: Callable[[bool], None] = lambda _: None) -> Iterator[ImageBatch]:
        """Reads a bundle's images in order, and yields batches of about BATCH_BYTES. An image is stored or rejected.

        Args:
          bundle: the images.
          count: called after each image, with whether the image was rejected. A batch of small images may take a
            minute, which is too long between two updates of the progress.
        """
        rows: list[Stored] = []
        rejects: list[Reject] = []
        size = 0
        places = range(bundle.first, bundle.first + len(bundle.paths))
        ranks = place_hash(0, np.array(places)).tolist()
        items = zip(places, bundle.paths, bundle.names, bundle.labels, ranks, strict=True)
        if self._pool is None:
            self._threads = self._threads or default_threads(bundle.paths)
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="ingest")
        for outcome in map_in_order(self._pool, self._one, items, max_pending=4 * (self._threads or 1)):
            count(isinstance(outcome, Reject))
            if isinstance(outcome, Reject):
                rejects.append(outcome)
                continue
            rows.append(outcome)
            size += len(outcome.encoded)
            if size >= BATCH_BYTES:
                yield self._batch(rows, rejects)
                rows, rejects, size = [], [], 0
        if rows or rejects:
            yield self._batch(rows, rejects)

    def _one(self, item: tuple[int, str, str, str, int]) -> Stored | Reject:
        """Reads, stores and measures one image: its place, path, name, label, and a hash of its place."""
        place, path, name, label, rank = item
        by_csv = self._images.listing == "csv"
        raw = listed_as(path, name, label, by_csv=by_csv)
        if label not in self._ids:
            detail = f"the label {label!r} is none of the {len(self._ids)} classes"
            return Reject(path, place, "label", "label_not_in_values", "label" if by_csv else None, detail, raw)
        file = ImageFile(path, self._images)
        try:
            with self._reads.reserve(file.measure()):
                data, header = file.read()
                with self._decodes.reserve(decoding_bytes(header, self._images)):
                    encoded, height, width, pixels = self._store(data, header)
                content = image_digest(data)
                hashed = {"name": name, "folder": label}.get(self._split.by)
                digest = content if hashed is None else image_digest(hashed.encode())
                file_copy = None if self._keeper is None else self._keeper.keep(rank, data)
        except ERRORS as error:
            refusal = file.refusal(error)
            return Reject(path, place, refusal.stage, refusal.reason, None, refusal.detail, raw)
        counted, measured = (0, NO_MOMENTS) if pixels is None else (height * width, moments(pixels))
        facts = Facts(header.format, header.height, header.width, len(data), counted, measured)
        fingerprint = None
        if self._looks:
            look = NO_HASH if pixels is None else difference_hash(pixels)
            fingerprint = ImageFingerprint(path, int.from_bytes(content, "little"), look)
        split_by, digest_and_path = int.from_bytes(digest, "little"), (content.hex(), path)
        return Stored(
            place, name, label, encoded, height, width, facts, split_by, digest_and_path, file_copy, fingerprint
        )

    def _batch(self, rows: Sequence[Stored], rejects: Sequence[Reject]) -> ImageBatch:
        """Makes a batch of the stored images, in order, and the rejects."""
        count = len(rows)
        hashes = hash_rows([np.array([row.digest for row in rows], np.uint64)])
        shares = HashSplit(train=self._split.train, eval=self._split.eval, test=self._split.test)
        columns = {
            key.ENCODED: string_lists([row.encoded for row in rows]),
            key.FORMAT: string_lists([key.FORMATS[self._images.store]] * count),
            key.HEIGHT: _integers([row.height for row in rows]),
            key.WIDTH: _integers([row.width for row in rows]),
            key.CLASS: _integers([self._ids[row.label] for row in rows]),
            key.TEXT: string_lists([row.label for row in rows]),
            key.FILENAME: string_lists([row.name for row in rows]),
            FILE: _integers([LISTING] * count),
            OFFSET: _integers([row.place for row in rows]),
            SPLIT: as_lists(assign_splits(hashes, shares)),
        }
        return ImageBatch(
            read=count + len(rejects),
            records=pa.RecordBatch.from_pydict(columns, schema=KEYED_RECORDS),
            rejects=tuple(rejects),
            file_copies={row.place: row.file_copy for row in rows if row.file_copy is not None},
            facts=tuple(row.facts for row in rows),
            contents=tuple(row.content for row in rows),
            fingerprints=tuple(row.fingerprint for row in rows if row.fingerprint is not None),
        )

    def _store(self, data: bytes, header: ImageHeader) -> tuple[bytes, int, int, np.ndarray | None]:
        """Runs the ingest graph on a file's bytes, and turns TensorFlow's errors into errors of this project."""
        try:
            return self._ingest(data, header.format)
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError from error
        # UnicodeDecodeError: TensorFlow's message contains bytes of the file that are not UTF-8.
        except (tf.errors.OpError, UnicodeDecodeError) as error:
            raise undecodable(header, data, error) from error


def default_threads(paths: Sequence[str]) -> int:
    """Returns how many threads to use: two for each core, or REMOTE_READERS if the files are in a bucket."""
    if paths and not storage.is_local(paths[0]):
        return REMOTE_READERS
    # Between two images, a thread reads and hashes in Python. A second thread for each core decodes in the meantime,
    # which gives a fifth more images.
    return 2 * usable_cores()
