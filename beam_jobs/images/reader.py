"""Bundles of image files -> Arrow batches of canonical records, and what is measured of each image.

Two threads per core decode them, in bounded memory.
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

NO_MOMENTS = np.zeros((2, 3), np.int64)  # of images that are not measured


@dataclasses.dataclass(frozen=True)
class ImageBatch:
    """The result of ingesting some images: `read` = rows of `records` + `rejects`.

    records: KEYED_RECORDS. The input's key is always LISTING; the offset is the place in the listing.
    file_copies: copies of some rows' files, by place, for parity records.
    facts: what the statistics say of each row of `records`.
    contents: what each row's file holds.
    fingerprints: what each row leaves behind to find leakage by; nothing if it is not looked for.
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
    """One image as it is stored, the hash that decides its split, and the copy of its file if there is one."""

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
    """Computes each channel's sum and sum of squares over uint8 `[height, width, 3]`, exactly: int64 `[2, 3]`.

    Columns are summed first: 256 rows of 255 stay below 2^16, and of 255^2 below 2^32. NumPy takes a sixth of
    TensorFlow's time.
    """
    rows, columns = pixels.reshape(len(pixels), -1), []
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256].astype(np.uint16)
        columns.append((np.add.reduce(block, dtype=np.uint16), np.add.reduce(block * block, dtype=np.uint32)))
    return np.array(columns, np.int64).reshape(len(columns), 2, -1, 3).sum((0, 2))


def _integers(values: list[int]) -> pa.ListArray:
    return as_lists(np.array(values, np.int64))


BATCH_BYTES = 16 * 2**20  # of canonical images in a batch
READ_BYTES = 64 * 2**20  # of files in memory at once; a larger file is read alone
DECODE_BYTES = 320 * 2**20  # of images being decoded at once; a larger image is decoded alone
REMOTE_READERS = 32  # threads where each file is a request to the cloud


class ImageReader:
    """Ingests bundles. It owns threads: use it as a context manager, or close it.

    Args:
        images: how images are stored.
        classes: the labels in the order of their ids; another label is a reject.
        split: shares of a hash, and what is hashed.
        keeper: keeps copies of some files, for parity records. A file is not read again, since it may have changed.
        ingest_from: the saved ingest graph of the dataset that these images join; None: this release's graph.
        looks: whether to take what leakage is found by.
        threads: how many images are worked on at once; see `default_threads`.
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
        self._pool: ThreadPoolExecutor | None = None  # made with the first bundle, which says where files are

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
        """Reads a bundle's images in order, in batches of about BATCH_BYTES; each image is stored or a reject.

        Calls `count` after each image, with whether it was rejected: a batch of small images may take a minute.
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
        """The batch of the stored images, in order, and of the rejects."""
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
        try:
            return self._ingest(data, header.format)
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError from error
        except (tf.errors.OpError, UnicodeDecodeError) as error:  # the latter: a message that holds the file's bytes
            raise undecodable(header, data, error) from error


def default_threads(paths: Sequence[str]) -> int:
    """Returns two threads for each core that this process may use, and more where files are remote."""
    if paths and not storage.is_local(paths[0]):
        return REMOTE_READERS
    # Two, because a thread reads and hashes in Python between two images: a fifth more images than with one.
    return 2 * usable_cores()
