"""Canonical images as Arrow batches: the stored records, and the moments for the channel statistics."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_jobs.core.accounting import FILE, PASSTHROUGH, as_lists
from beam_jobs.core.inputs import LISTING
from beam_jobs.core.parity_files import KeptFile
from beam_jobs.images.facts import Facts
from beam_jobs.leakage.images import Seen
from beam_jobs.output.contents import Content
from schemas.rejects import Reject
from schemas.spec import image_keys as key
from schemas.spec.image_options import ImageSplit
from schemas.spec.raw_columns import OFFSET, SPLIT
from schemas.spec.split_hash import assign_splits, hash_rows
from schemas.spec.table import SPLITS, HashSplit

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
MOMENTS = pa.schema([(key.SUMS, _INTEGERS), (key.SQUARES, _INTEGERS), (key.PIXELS, _INTEGERS), (key.TEXT, _BINARY)])

NO_MOMENTS = np.zeros((2, 3), np.int64)  # of images that are not measured


@dataclasses.dataclass(frozen=True)
class ImageBatch:
    """The result of ingesting some images: `read` = rows of `records` + `rejects`.

    records: KEYED_RECORDS. The input's key is always LISTING; the offset is the place in the listing.
    moments: MOMENTS of the rows of the train split, for tf.Transform to analyse.
    kept: copies of some rows' files, by place, for parity records.
    facts: what the statistics say of each row of `records`.
    contents: what each row's file holds.
    seen: what each row leaves behind to find leakage by; nothing if it is not looked for.
    """

    read: int
    records: pa.RecordBatch
    moments: pa.RecordBatch
    rejects: tuple[Reject, ...]
    kept: Mapping[int, KeptFile] = dataclasses.field(default_factory=dict)
    facts: tuple[Facts, ...] = ()
    contents: tuple[Content, ...] = ()
    seen: tuple[Seen, ...] = ()

    @property
    def nbytes(self) -> int:
        return int(self.records.nbytes + self.moments.nbytes)


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
    kept: KeptFile | None = None
    seen: Seen | None = None


@dataclasses.dataclass(frozen=True)
class RecordMaker:
    """Makes batches: ids by `classes`, splits by shares of a hash or by label, `image/format` by `store`."""

    store: str
    classes: tuple[str, ...]
    split: ImageSplit | Mapping[str, str]

    def batch(self, rows: Sequence[Stored], rejects: Sequence[Reject]) -> ImageBatch:
        """The batch of the stored images, in order, and of the rejects."""
        ids = {name: i for i, name in enumerate(self.classes)}
        count = len(rows)
        splits = self.splits(rows)
        text = _strings([row.label.encode() for row in rows])
        passthrough = {
            FILE: _integers([LISTING] * count),
            OFFSET: _integers([row.place for row in rows]),
            SPLIT: as_lists(splits),
        }
        columns = {
            key.ENCODED: _strings([row.encoded for row in rows]),
            key.FORMAT: _strings([key.FORMATS[self.store]] * count),
            key.HEIGHT: _integers([row.height for row in rows]),
            key.WIDTH: _integers([row.width for row in rows]),
            key.CLASS: _integers([ids[row.label] for row in rows]),
            key.TEXT: text,
            key.FILENAME: _strings([row.name.encode() for row in rows]),
            **{name: passthrough[name] for name in PASSTHROUGH},
        }
        sums = np.array([row.facts.moments for row in rows], np.int64).reshape(count, 6)
        measured = {
            key.SUMS: _threes(sums[:, :3]),
            key.SQUARES: _threes(sums[:, 3:]),
            key.PIXELS: _integers([row.height * row.width for row in rows]),
            key.TEXT: text,
        }
        of_all = pa.RecordBatch.from_pydict(measured, schema=MOMENTS)
        in_train = pa.array(splits == SPLITS.index("train"))
        records = pa.RecordBatch.from_pydict(columns, schema=KEYED_RECORDS)
        kept = {row.place: row.kept for row in rows if row.kept is not None}
        facts = tuple(row.facts for row in rows)
        read, contents = count + len(rejects), tuple(row.content for row in rows)
        seen = tuple(row.seen for row in rows if row.seen is not None)
        return ImageBatch(read, records, of_all.filter(in_train), tuple(rejects), kept, facts, contents, seen)

    def splits(self, rows: Sequence[Stored]) -> np.ndarray:
        """int8 `[rows]`: indices into SPLITS."""
        if not rows:
            return np.empty(0, np.int8)
        if isinstance(self.split, ImageSplit):
            hashes = hash_rows([np.array([row.digest for row in rows], np.uint64)])
            shares = HashSplit(train=self.split.train, eval=self.split.eval, test=self.split.test)
            return assign_splits(hashes, shares)
        return np.array([SPLITS.index(self.split[row.label]) for row in rows], np.int8)


def moments(pixels: np.ndarray) -> np.ndarray:
    """int64 `[2, 3]`: each channel's sum and its sum of squares over uint8 `[height, width, 3]`, exactly.

    Columns are summed first, in 32 bits: 2^14 rows of 255^2 stay below 2^32. NumPy takes a sixth of TensorFlow's time.
    """
    rows = pixels.reshape(len(pixels), -1)
    squares = np.multiply(rows, rows, dtype=np.uint16)
    columns = np.stack([rows.sum(0, dtype=np.uint32), squares.sum(0, dtype=np.uint32)])
    return columns.reshape(2, -1, 3).sum(1, dtype=np.int64)


def _strings(values: list[bytes]) -> pa.ListArray:
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(values, pa.binary()))


def _integers(values: list[int]) -> pa.ListArray:
    return as_lists(np.array(values, np.int64))


def _threes(values: np.ndarray) -> pa.ListArray:
    offsets = pa.array(np.arange(0, 3 * len(values) + 1, 3, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))
