"""Bundles of image files -> batches of canonical records: two threads per core, bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from beam_jobs.core.parity_files import FileKeeper
from beam_jobs.core.parity_sample import place_hash
from beam_jobs.images.facts import Facts
from beam_jobs.images.ingest import saved_ingest, todays_ingest
from beam_jobs.images.records import NO_MOMENTS, ImageBatch, RecordMaker, Stored, moments
from beam_jobs.leakage.images import Seen
from beam_jobs.leakage.looks import UNSEEN, look_of
from beam_jobs.output.contents import image_digest
from schemas import storage
from schemas.concurrency import ByteBudget, map_in_order
from schemas.images.file import ERRORS, ImageFile, undecodable
from schemas.images.header import ImageHeader
from schemas.images.limits import decoding_branches, decoding_bytes
from schemas.images.listing import ImageBundle, listed_as
from schemas.rejects import Reject
from schemas.spec.image_options import ImageOptions, ImageSplit

BATCH_BYTES = 16 * 2**20  # of canonical images in a batch
READ_BYTES = 64 * 2**20  # of files in memory at once; a larger file is read alone
DECODE_BYTES = 320 * 2**20  # of images being decoded at once; a larger image is decoded alone
REMOTE_READERS = 32  # threads where each file is a request to the cloud


class ImageReader:
    """Ingests bundles. It owns threads: use it as a context manager, or close it.

    Args:
        images: how images are stored.
        classes: the labels in the order of their ids; another label is a reject.
        split: shares of a hash, or the split of each label (for identities, which are never in two splits).
        keeper: keeps copies of some files, for parity records. A file is not read again, since it may have changed.
        ranks: the rank of a file by its place; files without a rank are not kept. None: the hash of each place.
        ingest_from: the saved ingest graph of the dataset that these images join; None: this release's graph.
        looks: whether to take what leakage is found by.
        threads: how many images are worked on at once; see `default_threads`.
    """

    def __init__(
        self,
        images: ImageOptions,
        *,
        classes: Sequence[str],
        split: ImageSplit | Mapping[str, str],
        keeper: FileKeeper | None = None,
        ranks: Mapping[int, int] | None = None,
        ingest_from: str | None = None,
        looks: bool = True,
        threads: int | None = None,
    ) -> None:
        self._images = images
        self._classes = frozenset(classes)
        self._split = split
        self._keeper = keeper
        self._ranks = ranks
        self._make = RecordMaker(images.store, tuple(classes), split)
        self._looks = looks
        self._threads = threads
        self._reads = ByteBudget(READ_BYTES)
        self._decodes = ByteBudget(DECODE_BYTES)
        self._ingest = todays_ingest(images) if ingest_from is None else saved_ingest(ingest_from)
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def __enter__(self) -> ImageReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the threads."""
        for pool in self._pools.values():
            pool.shutdown(cancel_futures=True)
        self._pools.clear()

    def read(self, bundle: ImageBundle, *, count: Callable[[bool], None] = lambda _: None) -> Iterator[ImageBatch]:
        """The bundle's images in its order, in batches of about BATCH_BYTES; each is stored or a reject.

        Calls `count` after each image, with whether it was rejected: a batch of small images may take a minute.
        """
        rows: list[Stored] = []
        rejects: list[Reject] = []
        size = 0
        places = range(bundle.first, bundle.first + len(bundle.paths))
        own = place_hash(0, np.array(places)).tolist()
        ranks = own if self._ranks is None else map(self._ranks.get, places)
        items = zip(places, bundle.paths, bundle.names, bundle.labels, ranks, strict=True)
        threads = self._threads or default_threads(bundle.paths)
        for outcome in map_in_order(self._pool(threads), self._one, items, max_pending=4 * threads):
            count(isinstance(outcome, Reject))
            if isinstance(outcome, Reject):
                rejects.append(outcome)
                continue
            rows.append(outcome)
            size += len(outcome.encoded)
            if size >= BATCH_BYTES:
                yield self._make.batch(rows, rejects)
                rows, rejects, size = [], [], 0
        if rows or rejects:
            yield self._make.batch(rows, rejects)

    def _pool(self, threads: int) -> ThreadPoolExecutor:
        if threads not in self._pools:
            self._pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="ingest")
        return self._pools[threads]

    def _one(self, item: tuple[int, str, str, str, int | None]) -> Stored | Reject:
        place, path, name, label, rank = item
        by_csv = self._images.listing == "csv"
        raw = listed_as(path, name, label, by_csv=by_csv)
        if label not in self._classes:
            detail = f"the label {label!r} is none of the {len(self._classes)} classes"
            return Reject(path, place, "label", "label_not_in_values", "label" if by_csv else None, detail, raw)
        file = ImageFile(path, self._images)
        try:
            with self._reads.reserve(file.measure()):
                data, header = file.read()
                with self._decodes.reserve(decoding_bytes(header, self._images, scales=self._ingest.scales)):
                    encoded, height, width, pixels = self._store(data, header)
                by_name = isinstance(self._split, ImageSplit) and self._split.by == "name"
                content = image_digest(data)
                digest = image_digest(name.encode()) if by_name else content
                kept = None
                if self._keeper is not None and rank is not None:
                    kept = self._keeper.keep(rank, data, decoding_branches(header, self._images))
        except ERRORS as error:
            refusal = file.refusal(error)
            return Reject(path, place, refusal.stage, refusal.reason, None, refusal.detail, raw)
        counted, measured = (0, NO_MOMENTS) if pixels is None else (height * width, moments(pixels))
        facts = Facts(header.format, header.height, header.width, len(data), counted, measured)
        seen = None
        if self._looks:
            look = UNSEEN if pixels is None else look_of(pixels)
            seen = Seen(path, int.from_bytes(content, "little"), header.height, header.width, look)
        split_by, held = int.from_bytes(digest, "little"), (content.hex(), path)
        return Stored(place, name, label, encoded, height, width, facts, split_by, held, kept, seen)

    def _store(self, data: bytes, header: ImageHeader) -> tuple[bytes, int, int, np.ndarray | None]:
        try:
            return self._ingest.store(data)
        except tf.errors.ResourceExhaustedError as error:
            raise MemoryError from error
        except (tf.errors.OpError, UnicodeDecodeError) as error:  # the latter: a message that holds the file's bytes
            raise undecodable(header, data, error) from error


def default_threads(paths: Sequence[str]) -> int:
    """Two for each core that this process may use; more where files are remote."""
    if paths and not storage.is_local(paths[0]):
        return REMOTE_READERS
    # Two, because a thread reads and hashes in Python between two images: a fifth more images than with one.
    return 2 * (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
