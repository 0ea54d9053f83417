"""Counts the records of each input, and checks the counts.

The pipeline does the counting; its last step checks that each input's records are all written or rejected. A job may
have millions of inputs, so the inputs are cut into parts (`beam_jobs.core.inputs`), and each part has its own files of
counts. The check reads one part at a time, so that no process holds the counts of all inputs in memory.
"""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam

from beam_jobs.core.accounting import (
    BY_INPUT,
    COVERED,
    DESCRIBED,
    DIGESTED,
    READ,
    WRITTEN,
    CountKey,
    rejects,
)
from beam_jobs.core.inputs import InputFile, StagedInputs
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.manifest import Count, Input, InputPart
from schemas.errors import MillraceError
from schemas.storage.content import content_digest
from schemas.storage.json_files import parse_json

OBSERVED = -1  # the part number of counts that belong to no single input, such as the values a vocabulary lacks
Row = tuple[str, str, str, int]  # a CountKey (source, stage, reason), then the count


class Unfit(MillraceError):
    """A result that must not become a dataset. A repeated attempt to commit the result would fail in the same way."""


@dataclasses.dataclass(frozen=True)
class CountFile:
    """A file with counts of one part of the inputs, or, if `part` is OBSERVED, with counts that belong to no input."""

    part: int
    path: str

    def read(self) -> Iterator[tuple[CountKey, int]]:
        """Yields each key with its count. A key occurs once: the pipeline has summed the counts before."""
        for line in storage.read_bytes(self.path).splitlines():
            source, stage, reason, rows = parse_json(line)
            yield (source, stage, reason), rows


class WriteCounts(beam.PTransform):
    """Sums pairs (CountKey, rows), and writes the sums to files: one CountFile for each part of the inputs."""

    def __init__(self, inputs: StagedInputs, staging: str) -> None:
        super().__init__()
        self.inputs, self.staging = inputs, staging

    def expand(self, counts: beam.PCollection) -> beam.PCollection:
        return (
            counts
            | "SumCounts" >> beam.CombinePerKey(sum)
            | "ByPart" >> beam.Map(by_part, inputs=self.inputs).with_output_types(tuple[int, Row])
            | "GroupByPart" >> beam.GroupByKey()
            | "WriteCounts" >> beam.Map(write_counts, folder=self.staging)
        )


def by_part(item: tuple[CountKey, int], inputs: StagedInputs) -> tuple[int, Row]:
    """Returns the part that a count belongs to, and the count as a Row.

    Counts of rejects and of the stages BY_INPUT belong to the part of their input; all other counts to OBSERVED.
    """
    (source, stage, reason), rows = item
    of_input = rejects(stage) or stage in BY_INPUT
    return inputs.part_of(int(source)) if of_input else OBSERVED, (source, stage, reason, rows)


def write_counts(item: tuple[int, Iterable[Row]], folder: str) -> CountFile:
    """Writes the counts of a part to a new file in `folder`.

    The file's name is random, so that a bundle that the runner repeats does not overwrite an earlier file.
    """
    part, rows = item
    path = layout.join(folder, f"counts-{uuid.uuid4().hex}.jsonl")
    storage.write_bytes(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))
    return CountFile(part, path)


@dataclasses.dataclass(frozen=True)
class InputAccount:
    """An input file with its counts.

    Attributes:
      file: the input.
      counts: the counts by stage and reason. For written records, the reason is the split.
    """

    file: InputFile
    counts: dict[tuple[str, str], int]

    def total(self, stage: str) -> int:
        """Returns the sum of a stage's counts: records for READ and WRITTEN, bytes or images for COVERED."""
        return sum(n for (at, _), n in self.counts.items() if at == stage)

    @property
    def rejected(self) -> int:
        return sum(n for (at, _), n in self.counts.items() if rejects(at))

    @property
    def written(self) -> dict[str, int]:
        """The number of written records in each split."""
        return {split: n for (at, split), n in sorted(self.counts.items()) if at == WRITTEN}

    @property
    def described(self) -> tuple[str | None, tuple[str, ...] | None]:
        """The file's encoding and header, which the worker that opened the file stored as a count; None for images."""
        for at, text in self.counts:
            if at == DESCRIBED:
                encoding, header = parse_json(text)
                return encoding, None if header is None else tuple(header)
        return None, None

    @property
    def digest(self) -> str | None:
        """The digest of the file's content; None if no digest was computed, which is so for images."""
        if not any(at == DESCRIBED for at, _ in self.counts):
            return None
        blocks = (text.split() for at, text in self.counts if at == DIGESTED)
        return content_digest(self.file.bytes, {int(number): block_digest for number, block_digest in blocks})

    def check(self) -> None:
        """Checks that every record that was read was either written or rejected.

        Raises:
          Unfit: a record is missing or counted twice, or a part of the input was skipped or read twice.
        """
        file, covered = self.file, self.total(COVERED)
        if file.covers not in (None, covered):
            raise Unfit(
                f"{file.path}: {covered:,} of {file.covers:,} bytes, images or pairs were processed: some "
                "were skipped or read twice. This is a bug; nothing was committed."
            )
        read, written, rejected = self.total(READ), self.total(WRITTEN), self.rejected
        if read != written + rejected:
            raise Unfit(
                f"{file.path}: {read:,} records read, {written:,} written and {rejected:,} rejected: "
                f"{abs(read - written - rejected):,} unaccounted for. This is a bug; nothing was committed."
            )

    def for_manifest(self) -> Iterator[Count]:
        """Yields the manifest's entries for this input: written records by split, rejects by stage and reason."""
        for (stage, reason), rows in sorted(self.counts.items()):
            if stage == WRITTEN:
                yield Count(input=self.file.path, outcome="written", split=reason, rows=rows)
            elif rejects(stage):
                yield Count(input=self.file.path, outcome="rejected", stage=stage, reason=reason, rows=rows)


def accounts(inputs: StagedInputs, files: Iterable[CountFile]) -> Iterator[tuple[InputAccount, ...]]:
    """Yields one tuple for each part of the inputs: the accounts of the part's inputs, in the order of their keys.

    Raises:
      Unfit: the counts contain a key that no input has.
    """
    by_part_: dict[int, list[CountFile]] = {}
    for file in files:
        by_part_.setdefault(file.part, []).append(file)
    for part in range(inputs.parts):
        counts: dict[str, dict[tuple[str, str], int]] = {}
        for counted in by_part_.get(part, ()):
            for (source, stage, reason), rows in counted.read():
                counts.setdefault(source, {})[stage, reason] = rows
        yield tuple(InputAccount(file, counts.pop(str(file.key), {})) for file in inputs.read(part))
        if counts:
            raise Unfit(
                f"{inputs.folder}: records were counted for the key {next(iter(counts))}, which no input has. "
                "This is a bug; nothing was committed."
            )


def input_part(accounts: Sequence[InputAccount]) -> InputPart:
    """Makes the manifest's entries of one part of the inputs, sorted by path.

    Many files share one header, so the part lists each different header once, and each input has its index there.
    """
    accounts = sorted(accounts, key=lambda account: account.file.path)
    described = [account.described for account in accounts]
    headers = sorted({header for _, header in described if header is not None})
    places = {header: place for place, header in enumerate(headers)}
    return InputPart(
        inputs=tuple(
            Input(
                path=account.file.path,
                bytes=account.file.bytes,
                version=account.file.version,
                read=account.total(READ),
                written=sum(account.written.values()),
                rejected=account.rejected,
                encoding=encoding,
                header=None if header is None else places[header],
                digest=account.digest,
            )
            for account, (encoding, header) in zip(accounts, described, strict=True)
        ),
        headers=tuple(headers),
        counts=tuple(count for account in accounts for count in account.for_manifest()),
    )
