"""What a step that reads raw records reports beside them: counts, and the files of its rejects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import apache_beam as beam

from beam_jobs.core.accounting import COUNTS, COVERED, DIGESTED, READ, REJECTS, RejectFile, write_reject_file
from schemas.rejects import Reject


def counted(key: int, *, read: int, rejects: Iterable[Reject]) -> Iterator[beam.pvalue.TaggedOutput]:
    """For COUNTS: records that were read from an input, and those of them that were rejected."""
    yield beam.pvalue.TaggedOutput(COUNTS, ((str(key), READ, ""), read))
    for reject in rejects:
        yield beam.pvalue.TaggedOutput(COUNTS, ((str(key), reject.stage, reject.reason), 1))


def covered(key: int, amount: int) -> beam.pvalue.TaggedOutput:
    """For COUNTS: how much of an input was gone through, in the units of `InputFile.covers`."""
    return beam.pvalue.TaggedOutput(COUNTS, ((str(key), COVERED, ""), amount))


def digested(key: int, blocks: Mapping[int, str]) -> Iterator[beam.pvalue.TaggedOutput]:
    """For COUNTS: digests of blocks of an input."""
    for number, digest in blocks.items():
        yield beam.pvalue.TaggedOutput(COUNTS, ((str(key), DIGESTED, f"{number} {digest}"), 1))


def kept_rejects(staging: str, rejects: Sequence[Reject]) -> Iterator[beam.pvalue.TaggedOutput]:
    """For REJECTS: writes the rejects of one batch, where there are any."""
    if rejects:
        path = write_reject_file(staging, "transforming", rejects)
        yield beam.pvalue.TaggedOutput(REJECTS, RejectFile(path, len(rejects)))
