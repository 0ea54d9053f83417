"""Defines the manifest of a dataset directory, and reads it. The manifest says what a run read, wrote and rejected.

A job writes the manifest last, in one step, which commits the run. For a dataset of a million input files, the manifest
would have hundreds of megabytes, and every reader would load them. So if there are more than INLINE inputs, their
entries are in separate files of the run.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import os
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError, UsageError
from schemas.spec.forms import Strict
from schemas.storage import folders
from schemas.storage.json_files import first_mistake, parse_as

FORMAT_VERSION = 1


def _inside(path: str) -> str:
    """Refuses a path that leads outside the dataset directory."""
    if {"", ".", ".."} & set(path.split("/")) or "\\" in path or not path.isprintable():
        raise ValueError(f"{path[:200]!r} leads outside the dataset directory")
    return path


Inside = Annotated[str, AfterValidator(_inside)]  # a path relative to the dataset directory, and inside it
Natural = Annotated[int, Field(ge=0)]


class File(Strict):
    """A file of the run that is not a shard."""

    path: Inside
    bytes: Natural
    sha256: str


class Shard(Strict):
    """One TFRecord file of a split."""

    path: Inside
    rows: Natural
    bytes: Natural
    crc32c: str  # the CRC-32C of the file's bytes, 8 hex digits; GCS computes the same checksum
    places: File | None = None  # for rows: says where each record comes from, see `schemas.dataset.provenance`


class Input(Strict):
    """One input file, and how many of its records were read, written and rejected: read = written + rejected."""

    path: str
    bytes: Natural
    version: str  # mtime in ns, or the GCS generation
    read: Natural
    written: Natural
    rejected: Natural
    encoding: str | None = None  # the detected encoding of a CSV file
    header: int | None = None  # index in the manifest's `headers`, for a CSV file that has one
    digest: str | None = None  # the digest of the file's content, see `schemas.storage.content`; None for images


class Total(Strict):
    """How many records of all inputs together were written to a split, or rejected for a reason."""

    outcome: Literal["written", "rejected"]
    split: str | None = None  # for written records
    stage: str | None = None  # for rejected records
    reason: str | None = None  # for rejected records
    rows: Natural


class Count(Total):
    """How many records of one input were written to a split, or rejected for a reason."""

    input: str


class DataWarning(Strict):
    """A suspicious property of the data, such as a column that is constant in the train split."""

    feature: str  # '' if the warning is about whole records
    code: str  # missing, constant, values_never_occur, one_class, or a code of docs/leakage.md
    message: str  # the feature, what was found, what it means, what to do


class SplitShards(Strict):
    """The shards of one split, in order."""

    rows: Natural
    shards: tuple[Shard, ...]


class Manifest(Strict):
    """The table of contents of a dataset. Readers take the list of shards from here, and never search the directory."""

    format_version: Literal[1] = 1
    run: Inside
    created: str
    name: str
    schema_fingerprint: str
    format: str = "csv"
    classes: tuple[str, ...] = ()  # the classes of images, by id; the classes of rows are in the transform
    compression: Literal["none", "gzip"]
    seed: int
    split_hash_version: int
    versions: dict[str, str]
    inputs: tuple[Input, ...]
    headers: tuple[tuple[str, ...], ...] = ()  # the distinct headers of the CSV files
    # If there are more than INLINE inputs, `inputs`, `headers` and `counts` are empty. Files of the run hold their
    # contents, and `read_inputs` reads them.
    input_files: tuple[Inside, ...] = ()  # the paths of these files
    input_count: Natural = 0  # the number of inputs in these files
    totals: tuple[Total, ...] = ()  # the counts in these files, summed over the inputs
    splits: dict[str, SplitShards]
    files: tuple[File, ...]
    counts: tuple[Count, ...]
    read: Natural
    written: Natural
    rejected: Natural
    previous: tuple[Inside, ...] = ()  # the runs of the previous manifest, kept for readers that still have it open
    previous_files: tuple[File, ...] = ()  # `files` of the previous manifest, if shards of its run are still in use
    transform_from: str | None = None  # the run whose transform was reused (--transform_from)
    preprocessing_fn: str | None = None  # module:function, if it is not derived from the schema
    appended: tuple[Inside, ...] = ()  # the runs that added new inputs (--append_to), in order
    replayed: Natural = 0  # the corrected records that --replay added, which are in no input file
    warnings: tuple[DataWarning, ...] = ()  # about the rows that the job wrote, and those of the last append
    seconds: float = Field(ge=0)  # how long the job took: without the start of its process, or since its submission

    @property
    def runs(self) -> frozenset[str]:
        """The runs that this dataset consists of: the current one, and older ones with files that are still in use."""
        return frozenset({self.run, *(file.path.partition("/")[0] for file in self.contents)})

    @property
    def contents(self) -> tuple[Shard | File, ...]:
        """All files that the manifest names: the shards and all others."""
        return (*self.shard_files, *self.all_files)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of all splits."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)

    @property
    def shard_files(self) -> tuple[Shard | File, ...]:
        """The shards, and the files that say where their records come from."""
        return (*self.shards, *(shard.places for shard in self.shards if shard.places is not None))

    @property
    def all_files(self) -> tuple[File, ...]:
        """The other files: those of the current run, and those that readers of the previous manifest may still use."""
        return self.files + self.previous_files

    def path_of(self, data_dir: str, name: str) -> str | None:
        """Returns the full path of a file of the current run; None if the run has no such file.

        Args:
          data_dir: the dataset directory.
          name: the file's name in the run, such as `leakage.json`.
        """
        path = layout.join(self.run, name)
        return layout.join(data_dir, path) if path in {file.path for file in self.files} else None

    @property
    def outcomes(self) -> tuple[Count | Total, ...]:
        """How many records were written or rejected: by input, or summed over all inputs if there are many."""
        return self.totals if self.input_files else self.counts

    @property
    def rejects(self) -> collections.Counter[tuple[str, str]]:
        """How many records were rejected, by (stage, reason)."""
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        for count in self.outcomes:
            if count.outcome == "rejected":
                counts[count.stage or "", count.reason or ""] += count.rows
        return counts

    @property
    def listed(self) -> InputPart:
        """The inputs that the manifest itself lists: all inputs, or no inputs if they are in files of the run."""
        return InputPart(inputs=self.inputs, headers=self.headers, counts=self.counts)

    @property
    def number_of_inputs(self) -> int:
        """The number of inputs."""
        return self.input_count if self.input_files else len(self.inputs)

    def to_json(self) -> bytes:
        """Returns the bytes of the manifest file. Fields of features that this dataset does not use are left out."""
        unused = set() if self.input_files else {"input_files", "input_count", "totals"}
        unused |= {name for name in ("appended", "replayed", "previous_files") if not getattr(self, name)}
        return self.model_dump_json(indent=1, exclude=unused).encode() + b"\n"


def read_manifest(data_dir: str) -> Manifest:
    """Reads the manifest `data_dir/manifest.json`.

    Raises:
      UsageError: there is no manifest, and so no dataset.
      MillraceError: the manifest cannot be read, or is a link.
    """
    storage.check_scheme(data_dir)
    layout.check_directory(data_dir)
    path = layout.join(data_dir, layout.MANIFEST)
    data = folders.look(path).data
    if data is None:
        why = "so this is not a dataset directory, or its job has not finished"
        above = os.path.dirname(data_dir.rstrip("/")) or "."
        if storage.is_local(data_dir) and not os.path.isdir(data_dir):
            why = "since there is no such folder"
        elif storage.is_local(data_dir) and layout.described_by(layout.join(above, layout.MANIFEST)):
            why = f"since it belongs to the dataset {above}; give that"
        raise UsageError(f"{data_dir}: no {layout.MANIFEST}, {why}. `millrace preprocess` writes datasets.")
    return parse_as(Manifest.model_validate_json, data, path, FORMAT_VERSION, "a manifest", "write the dataset again")


INLINE = 1000  # the manifest itself lists at most so many inputs; more are listed in files of the run


class InputPart(Strict):
    """Some of a dataset's inputs, with their headers and the counts of their records.

    The indices `Input.header` refer to the `headers` of the same part.
    """

    inputs: tuple[Input, ...]
    headers: tuple[tuple[str, ...], ...] = ()
    counts: tuple[Count, ...] = ()

    def header_of(self, file: Input) -> tuple[str, ...] | None:
        """Returns the header of one of these inputs; None if the input has no header."""
        return None if file.header is None else self.headers[file.header]

    def to_json(self) -> bytes:
        """Returns the bytes of a file of inputs."""
        return self.model_dump_json().encode() + b"\n"


@dataclasses.dataclass(frozen=True)
class KnownInput:
    """The encoding and the header (None if there is no header) of an input file, from a dataset's manifest."""

    encoding: str
    header: tuple[str, ...] | None


def read_inputs(data_dir: str, manifest: Manifest) -> Iterator[InputPart]:
    """Yields the inputs of a dataset, part by part, so that a million inputs need not fit in memory.

    Raises:
      MillraceError: a file of inputs cannot be read.
    """
    if not manifest.input_files:
        yield manifest.listed
    for name in manifest.input_files:
        path = layout.join(data_dir, name)
        try:
            yield InputPart.model_validate_json(storage.read_bytes(path))
        except ValidationError as error:
            raise MillraceError(f"{path}: {first_mistake(error)}. Restore it, or write the dataset again.") from error


def totals_of(counts: Iterable[Count]) -> tuple[Total, ...]:
    """Returns counts by input summed over all inputs."""
    totals: collections.Counter[tuple[str, str | None, str | None, str | None]] = collections.Counter()
    for count in counts:
        totals[count.outcome, count.split, count.stage, count.reason] += count.rows
    order = sorted(totals, key=lambda kind: tuple(part or "" for part in kind))
    return tuple(
        Total.model_validate({"outcome": outcome, "split": split, "stage": stage, "reason": reason, "rows": rows})
        for outcome, split, stage, reason in order
        for rows in (totals[outcome, split, stage, reason],)
    )


def write_parts(output: str, run_id: str, parts: Iterable[InputPart], *, count: int) -> dict[str, Any]:
    """Returns the manifest's fields about the inputs, by name. Writes the inputs to files of the run if there are many.

    Args:
      output: the dataset directory.
      run_id: the name of the run.
      parts: the entries of all inputs, part by part.
      count: the number of inputs.
    """
    if count <= INLINE:
        combined = _joined(parts)
        return {"inputs": combined.inputs, "headers": combined.headers, "counts": combined.counts}
    names: list[str] = []

    def counts() -> Iterator[Count]:
        for number, part in enumerate(parts):
            names.append(layout.join(run_id, layout.inputs_name(number)))
            storage.write_bytes(layout.join(output, names[-1]), part.to_json())
            yield from part.counts

    totals = totals_of(counts())  # iterating over `counts()` writes the files
    return {"inputs": (), "counts": (), "input_files": tuple(names), "input_count": count, "totals": totals}


def _joined(parts: Iterable[InputPart]) -> InputPart:
    """Returns several parts as one, sorted by the inputs' paths."""
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    headers = tuple(sorted({header for part in parts for header in part.headers}))
    # The parts have headers of their own, so the indices of headers change when the parts are joined.
    inputs = [
        file.model_copy(update={"header": None if file.header is None else headers.index(part.headers[file.header])})
        for part in parts
        for file in part.inputs
    ]
    counts = itertools.chain.from_iterable(part.counts for part in parts)
    return InputPart(
        inputs=tuple(sorted(inputs, key=lambda file: file.path)),
        headers=headers,
        counts=tuple(sorted(counts, key=lambda count: count.input)),
    )
