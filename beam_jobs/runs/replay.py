"""A replay: corrected rejects through the dataset's own transform, into a new run beside the old shards."""

from __future__ import annotations

import base64
import binascii
import dataclasses
from collections.abc import Mapping, Sequence

from beam_jobs.core.options import ReplayOptions
from beam_jobs.core.source import Chosen, Corrected
from beam_jobs.engines.checks import check_cluster
from beam_jobs.records.existing import Key, open_base, rejects_of, statistics_of
from beam_jobs.runs.run import DATASET, NewRun, OtherTransform, execute, load_libraries, new_run, open_replay
from beam_jobs.runs.write import WriteDataset
from schemas import storage
from schemas.dataset import Dataset
from schemas.dataset.manifest import Manifest
from schemas.errors import UsageError
from schemas.rejects import Reject
from schemas.storage.json_files import parse_json


@dataclasses.dataclass(frozen=True)
class Correction:
    """A line of a file of corrected rejects: text as it stands under `raw`, or the bytes of `raw_base64`."""

    source: str
    offset: int
    raw: str | bytes
    place: str  # file:line

    @property
    def key(self) -> Key:
        return self.source, self.offset

    def encoded(self, encoding: str) -> bytes:
        """The record's bytes as its file would hold them.

        Raises:
          UsageError: the text has no bytes in that encoding.
        """
        if isinstance(self.raw, bytes):
            return self.raw
        try:
            return self.raw.encode("latin-1" if encoding == "latin-1" else "utf-8")
        except UnicodeEncodeError as error:
            sign = self.raw[error.start]
            raise UsageError(
                f"{self.place}: raw holds {sign!r}, which {self.source} cannot: it is in {encoding}. "
                "Write another character, or its bytes as raw_base64."
            ) from error


@dataclasses.dataclass(frozen=True)
class Choice:
    """What is tried again, and how many lines are not: no reject of the dataset, unchanged, or given before."""

    records: tuple[Chosen, ...]
    gone: int
    unchanged: int
    repeated: int


def read_corrections(patterns: Sequence[str]) -> list[Correction]:
    """Reads files of JSON lines, as a run's `rejects-*.jsonl` are; empty lines do not count.

    Raises:
      UsageError: a file or a line cannot be read; it is named.
    """
    found = []
    for path in storage.expand(patterns):
        for number, line in enumerate(storage.read_bytes(path).split(b"\n"), start=1):
            if line.strip():
                found.append(_correction(line, f"{path}:{number}"))
    return found


def _correction(line: bytes, place: str) -> Correction:
    try:
        row = parse_json(line.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{place}: is not UTF-8 at byte {error.start} of the line") from error
    except ValueError as error:
        raise UsageError(f"{place}: is not JSON: {error}; expected a line of rejects-*.jsonl") from error
    if not isinstance(row, dict):
        raise UsageError(f"{place}: found {str(row)[:40]!r}; expected an object, as in rejects-*.jsonl")
    for name, kind, told in (("source", str, "a path"), ("offset", int, "a whole number")):
        if type(row.get(name)) is not kind:
            raise UsageError(
                f"{place}: {name} is {row.get(name, 'missing')!r}; expected {told}, as it was in the reject"
            )
    if ("raw" in row) == ("raw_base64" in row):
        both = "both raw and raw_base64" if "raw" in row else "neither raw nor raw_base64"
        raise UsageError(f"{place}: holds {both}; expected the corrected record under one of them")
    name = "raw" if "raw" in row else "raw_base64"
    text = row[name]
    if not isinstance(text, str):
        raise UsageError(f"{place}: {name} is {str(text)[:40]!r}; expected text")
    try:
        raw = text if name == "raw" else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{place}: raw_base64 is not base64: {error}") from error
    return Correction(row["source"], row["offset"], raw, place)


def choose(
    corrections: Sequence[Correction],
    rejects: Mapping[Key, Reject],
    *,
    encodings: Mapping[str, str] | None,
) -> Choice:
    """What of the corrections is to be tried again.

    Args:
      corrections: as they were read.
      rejects: what the dataset's current run still rejects.
      encodings: see `beam_jobs.core.source.Corrected`.

    Raises:
      UsageError: a source is no input, a text has no bytes in its file's encoding, or two lines correct one record
        differently.
    """
    chosen: dict[Key, tuple[Chosen, Correction]] = {}
    gone = unchanged = repeated = 0
    for line in corrections:
        if encodings is not None and line.source not in encodings:
            listed = ", ".join(list(encodings)[:5])
            raise UsageError(
                f"{line.place}: {line.source!r} is not an input of this dataset, which was read from {listed}"
            )
        was = rejects.get(line.key)
        if was is None:
            gone += 1
            continue
        raw = line.encoded("utf-8" if encodings is None else encodings[line.source])
        as_read = line.raw.encode() if isinstance(line.raw, str) else line.raw
        if encodings is not None and was.raw.rstrip(b"\r\n") in (raw.rstrip(b"\r\n"), as_read.rstrip(b"\r\n")):
            unchanged += 1
            continue
        if encodings is not None and isinstance(line.raw, str) and _shown_otherwise(was.raw, encodings[line.source]):
            raise UsageError(
                f"{line.place}: the record at {line.offset} of {line.source} is Latin-1, and its bytes are UTF-8 as "
                "well, so that `raw` does not show what it means; give the corrected bytes as raw_base64"
            )
        before = chosen.setdefault(line.key, (Chosen(was, raw), line))
        if before[1] is line:
            continue
        if before[0].raw != raw:
            raise UsageError(
                f"{line.place}: corrects the record at {line.offset} of {line.source} in another way than "
                f"{before[1].place} does; give one of the two"
            )
        repeated += 1
    records = tuple(sorted((c for c, _ in chosen.values()), key=lambda c: c.key))
    return Choice(records, gone, unchanged, repeated)


def _shown_otherwise(raw: bytes, encoding: str) -> bool:
    """Whether a reject's line shows these bytes as another text than their file's encoding does."""
    if encoding != "latin-1" or raw.isascii():
        return False
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a replay: the manifest now, what was tried, and how many records the dataset has gained."""

    manifest: Manifest
    choice: Choice
    added: int

    @property
    def again(self) -> int:
        """How many were tried and are rejected still."""
        return len(self.choice.records) - self.added


def run_replay(options: ReplayOptions) -> Outcome:
    """Runs the replay to its end. Where no line is left to try, the dataset stays as it is.

    Raises:
      UsageError: invalid usage; nothing was done.
      MillraceError: it failed, or no corrected record could be written; the dataset is as it was.
    """
    check_cluster(options, {"--append_to": (options.append_to,)})
    corrections = read_corrections(options.replay)
    base = open_base(options.append_to, trust=options.trust)
    choice, _ = choose_from(base, corrections)
    if not choice.records:
        return Outcome(base.manifest, choice, 0)
    with new_run(options.append_to) as run:
        # Again: before the lease was ours, another job may have committed.
        base = open_base(options.append_to, trust=options.trust)
        choice, source = choose_from(base, corrections)
        if not choice.records:
            return Outcome(base.manifest, choice, 0)
        load_libraries(verbose=options.verbose, quiet=options.quiet)
        manifest = run.write(lambda: _add(options, source, run), source, quiet=options.quiet, kind=DATASET)
    return Outcome(manifest, choice, manifest.written - base.manifest.written)


def choose_from(base: Dataset, corrections: list[Correction]) -> tuple[Choice, Corrected]:
    """What of the corrections is to be tried again, also as the raw data of a run.

    Raises:
      UsageError: a correction is not as it must be.
    """
    source = open_replay(base)
    choice = choose(corrections, rejects_of(base), encodings=source.encodings)
    source = dataclasses.replace(source, records=choice.records)
    source.check()
    return choice, source


def _add(options: ReplayOptions, source: Corrected, run: NewRun) -> Manifest:
    """Writes the corrected records beside those that are there, in one shard for each split."""
    base = source.base
    job = dataclasses.replace(
        options.job(),
        num_shards=1,
        max_reject_fraction=1.0,  # what is still wrong stays rejected, however much it is
        compression=base.manifest.compression,
        seed=base.manifest.seed,
        statistics=statistics_of(base) is not None,
        leakage=False,  # what was found is about the first job's records
    )
    tried = tuple(record.was for record in source.records)
    return execute(WriteDataset(job, source, OtherTransform.of(base), onto=base, tried=tried), run)
