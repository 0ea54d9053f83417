"""How records are counted: the side outputs of every step that reads or writes them, and the files of rejects."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_jobs.core import progress
from beam_jobs.core.options import RejectLimit
from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.rejects import Reject
from schemas.spec.table import OFFSET, SPLIT

FILE = "_file"  # the key of the input (`beam_jobs.core.inputs`)
PASSTHROUGH = (FILE, OFFSET, SPLIT)  # columns beside the features, int64 lists of one, which tf.Transform hands through

COUNTS, REJECTS, PARITY = "counts", "rejects", "parity"  # side outputs

# (input's key, stage, reason) of what was rejected; (key, READ, "") and (key, WRITTEN, split) of the rest. COVERED is
# how much of the input was gone through (see InputFile.covers): a range that no worker was given, or two, is missing
# here. (key, DESCRIBED, JSON of its encoding and header) is counted once, where a file of rows is opened;
# (key, DIGESTED, "<block> <SHA-256>") once for each block of its content (`schemas.storage.content`).
CountKey = tuple[str, str, str]
READ, WRITTEN, COVERED, DESCRIBED, DIGESTED = "*read", "*written", "*covered", "*described", "*digested"
UNKNOWN = "*unknown"  # ("", UNKNOWN, feature): predicted rows with a value of it that the model does not know
# (place in a vector, stage, feature): the distinct numbers of sampled rows as written, and how many float32s they are
NUMBERS_WRITTEN, NUMBERS_LEFT = "*numbers_written", "*numbers_left"
BY_INPUT = frozenset({READ, WRITTEN, COVERED, DESCRIBED, DIGESTED})


def rejects(stage: str) -> bool:
    """Returns whether what is counted in a stage was rejected there."""
    return not stage.startswith("*")


class TooManyRejects(MillraceError):
    """It is certain that the job's rejects exceed its limit."""


def give_up_if_certain(limit: RejectLimit, most: int, *, of: str = "") -> None:
    """Ends a job early: not even if all that is still to come were good would it be within its limit.

    Args:
      limit: the job's.
      most: how many records there are at most, those that were read among them.
      of: the message's end.

    Raises:
      TooManyRejects: it is certain.
    """
    now = progress.JOB.counters
    if not limit.allows(now.rejected, most):
        raise TooManyRejects(
            f"rejected {now.rejected:,} of {now.read:,} read so far, which is more than --max_rejects {limit.rows} "
            f"and --max_reject_fraction {limit.fraction:g} allow{of}"
        )


@dataclasses.dataclass(frozen=True)
class RejectFile:
    """Rejects that a worker wrote, and how many they are."""

    path: str
    rows: int


def write_reject_file(staging: str, phase: str, rejects: Sequence[Reject]) -> RejectFile:
    """Writes rejects under a name of its own, so that a bundle that is run again leaves two, of which one is named."""
    path = layout.join(staging, f"rejects-{phase}-{uuid.uuid4().hex}.jsonl")
    storage.write_bytes(path, "".join(f"{r.to_json()}\n" for r in rejects).encode())
    return RejectFile(path, len(rejects))


def as_lists(values: np.ndarray) -> pa.ListArray:
    """Returns an int64 vector as a column of lists of one."""
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(values.astype(np.int64)))


def passthrough(batch: pa.RecordBatch, name: str) -> np.ndarray:
    """Returns a passthrough column's values, int64 `[rows]`."""
    return np.asarray(batch.column(batch.schema.get_field_index(name)).flatten())


def count(key: int, stage: str, reason: str, rows: int) -> beam.pvalue.TaggedOutput:
    """Counts, for COUNTS, records of an input, or an amount of it, in a stage."""
    return beam.pvalue.TaggedOutput(COUNTS, ((str(key), stage, reason), rows))


def counted(key: int, *, read: int, rejects: Iterable[Reject]) -> Iterator[beam.pvalue.TaggedOutput]:
    """Counts, for COUNTS, the records that were read from an input, and its rejects."""
    yield count(key, READ, "", read)
    for reject in rejects:
        yield count(key, reject.stage, reject.reason, 1)


def digested(key: int, blocks: Mapping[int, str]) -> Iterator[beam.pvalue.TaggedOutput]:
    """Yields, for COUNTS, the digests of blocks of an input."""
    for number, digest in blocks.items():
        yield count(key, DIGESTED, f"{number} {digest}", 1)


def write_rejects(
    staging: str, rejects: Sequence[Reject], *, phase: str = "transforming"
) -> Iterator[beam.pvalue.TaggedOutput]:
    """Writes the rejects of one batch, and yields their file for REJECTS, if there are any."""
    if rejects:
        yield beam.pvalue.TaggedOutput(REJECTS, write_reject_file(staging, phase, rejects))
