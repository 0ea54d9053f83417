"""Commits the result of a pipeline: checks the result, gives the files their final names, and writes the manifest last.

Readers find a dataset's files through its manifest, so the new run becomes visible all at once.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from beam_jobs.core import parity, progress
from beam_jobs.core.accounting import READ, WRITTEN, RejectFile
from beam_jobs.core.inputs import StagedInputs
from beam_jobs.core.options import JobOptions
from beam_jobs.core.source import Described
from beam_jobs.records import examples
from beam_jobs.records.accounts import Unfit, accounts, input_part
from beam_jobs.records.existing import files_of, place_contents, statistics_of
from beam_jobs.records.fragments import WrittenShard
from beam_jobs.records.result import Result, check_counts, late_rejects
from beam_jobs.runs import data_warnings, drift
from beam_jobs.runs.data_report import place_leakage, place_report
from beam_jobs.runs.merge import count_inputs, merged_inputs, merged_manifest
from beam_jobs.runs.run import DATASET, Kind, M, NewRun, OtherTransform
from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.dataset.lease import lease_of_job
from schemas.dataset.manifest import (
    File,
    InputPart,
    Manifest,
    Shard,
    SplitShards,
    read_inputs,
    read_manifest,
    write_parts,
)
from schemas.dataset.prune import files_of_run
from schemas.errors import MillraceError, counted
from schemas.libraries import tensorflow
from schemas.predictions.manifest import PredictionsManifest
from schemas.profile.statistics import Statistics, place_statistics
from schemas.rejects import Reject, read_rejects
from schemas.spec import split_hash
from schemas.spec.split_hash import uneven_splits
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.content import sha256_of


def place_rejects(
    run_dir: str,
    result: Result,
    late: Sequence[Reject],
    *,
    onto: OpenDataset | None = None,
    tried: Sequence[Reject] = (),
) -> None:
    """Writes all rejects to a run's folder, in files numbered from 0.

    The rejects of the dataset that is added to come first, then those of the run, and the transform's rejects last.

    Args:
      run_dir: the run's folder.
      result: the result of the pipeline.
      late: the rejects of the transform, with their raw bytes.
      onto: the dataset that is added to; None: the run writes a new dataset.
      tried: the rejects of `onto` that the run has tried again. They are left out of its files; a record that was
        rejected again is among the new rejects.
    """
    gone = {(reject.source, reject.offset) for reject in tried}
    names = (layout.join(run_dir, layout.rejects_name(number)) for number in itertools.count())

    def place(named: tuple[str, RejectFile]) -> None:
        name, file = named
        folders.create(name, storage.read_bytes(file.path))

    for data in () if onto is None else files_of(onto, layout.REJECTS):
        left = [r for r in read_rejects(data) if (r.source, r.offset) not in gone] if gone else ()
        content = _lines(left) if gone else data
        if content:
            folders.create(next(names), content)
    storage.for_each(run_dir, place, [(next(names), file) for file in result.reject_files])
    if late:
        folders.create(next(names), _lines(late))


def _lines(rejects: Iterable[Reject]) -> bytes:
    """The rejects as JSON lines."""
    return "".join(f"{reject.to_json()}\n" for reject in rejects).encode()


def place_parity(run_dir: str, result: Result) -> None:
    """Writes the sampled records of the parity check to two files: raw and transformed, in the same order.

    The parity check compares a served model's transform with the job's: the same raw record must give the same result.
    """
    pairs = list(parity_records(result))
    for name, records in (
        (layout.PARITY_RAW, [raw for raw, _ in pairs]),
        (layout.PARITY_TRANSFORMED, [transformed for _, transformed in pairs]),
    ):
        folders.create(layout.join(run_dir, name), bytes(examples.joined(examples.framed(records))))


def collected(result: Result) -> Statistics | None:
    """Reads the statistics of the run's written records; returns None if the job did not collect statistics."""
    path = result.statistics
    return None if path is None else Statistics.from_bytes(storage.read_bytes(path), source=path)


def described_before(base: OpenDataset) -> Statistics | None:
    """Reads the statistics of a dataset that is added to; returns None if it was written without statistics."""
    sketches = statistics_of(base)
    return None if sketches is None else Statistics.from_bytes(sketches)


def parity_records(result: Result) -> Iterator[tuple[bytes, bytes]]:
    """Yields pairs of records for the parity check: a raw record, and the same record after the transform."""
    places = sorted(result.parity_raw.keys() & result.parity_transformed.keys())
    # Takes every n-th place, with n rounded up, so that at most ROW_LIMIT places remain, spread over all of them.
    for place in places[:: max(1, -(-len(places) // parity.ROW_LIMIT))]:
        yield result.parity_raw[place], result.parity_transformed[place]
    for record in parity.choose(result.parity_files):
        tensorflow()  # imports TensorFlow without its log, before `examples.example` imports it
        raw = {"image": storage.read_bytes(record.raw.path), "label": record.label.encode()}
        yield examples.example(raw), storage.read_bytes(record.stored)


_PACKAGES = ("apache-beam", "tensorflow", "tensorflow-transform", "tfx-bsl", "pyarrow", "numpy")


@dataclasses.dataclass(frozen=True)
class CommitDataset:
    """Commits the records of a run to a dataset. Implements `beam_jobs.runs.run.Committer`.

    Attributes:
      options: the job's options.
      source: the description of the raw data.
      transform: the transform of another dataset that was applied; None: the job measured its own transform.
      onto: the dataset that the records are added to; None: the run writes a new dataset.
      tried: the rejects of `onto` that the run has tried again; empty: the records are new input.
      allow_drift: True: commit even if drift exceeds a threshold to fail above.
    """

    kind: ClassVar[Kind[Manifest]] = DATASET
    options: JobOptions
    source: Described
    transform: OtherTransform | None
    onto: OpenDataset | None = None
    tried: Sequence[Reject] = ()
    allow_drift: bool = False

    def raw_bytes(self, rejects: Sequence[Reject]) -> list[bytes]:
        """Reads the raw bytes of rejected records from the input again."""
        return self.source.raw_bytes(rejects)

    @property
    def own_function(self) -> str | None:
        """The user's preprocessing_fn, if the transform is not derived from the schema."""
        return (self.transform or self.options).preprocessing_fn

    def check(self, inputs: StagedInputs, result: Result) -> None:
        """Checks that a result may become a dataset.

        Raises:
          Unfit: a record is missing or counted twice, too many records were rejected, or a split of a new dataset is
            empty; or every corrected record of a replay was rejected again.
        """
        read, tried = result.total(READ), len(self.tried)
        if tried and result.rejected == tried:
            raise Unfit(f"none of {counted(tried, 'corrected records')} could be written; the dataset is unchanged")
        if tried not in (0, read):
            raise Unfit(
                f"{tried:,} records tried, {read:,} read, {result.total(WRITTEN):,} written and {result.rejected:,} "
                "rejected. This is a bug; nothing was committed."
            )
        check_counts(result, inputs, self.options.reject_limit)
        schema = self.source.schema
        rows = {split: sum(s.rows for s in result.shards if s.split == split) for split in schema.split_names}
        for split in rows if self.onto is None else ():
            if not rows[split]:
                uneven = uneven_splits(schema, rows) if isinstance(schema, Schema) else None
                remedy = "increase its fraction in the schema, set it to 0 to drop the split, or add input"
                raise Unfit(
                    f"the split {split!r} is empty: it got none of {counted(read, 'records')}; {uneven or remedy}."
                )

    def commit(self, run: NewRun, inputs: StagedInputs, result: Result) -> Manifest:
        """Checks the result, gives all files their final names, and replaces the manifest.

        May be repeated: files that an earlier attempt has written or renamed stay as they are.

        Args:
          run: the run.
          inputs: the inputs that the pipeline has read.
          result: the result of the pipeline.

        Returns:
          The manifest of the dataset, with the records of the run.

        Raises:
          Unfit: `check` fails, or the data has drifted.
          LeaseError: another job has taken the lease; the manifest has not changed.
        """
        self.check(inputs, result)
        options, source, onto = self.options, self.source, self.onto
        schema, compared, statistics = source.schema, drift.Compared(), collected(result)
        if statistics is not None and not self.tried:
            compared = drift.compare_job(statistics, schema, output=run.output, compare_to=options.compare_to)
        if not self.allow_drift:
            drift.check_drift(compared.comparisons)
        # From here on, files get their final names. Readers do not see them before `publish` replaces the manifest.
        splits = {split: place_split(run, result, split, options.compression) for split in schema.split_names}
        place_rejects(run.folder, result, late_rejects(result, source.raw_bytes), onto=onto, tried=self.tried)
        place_contents(run.folder, result.content_files, onto=onto)
        if onto is None:  # else the parity records of the dataset were copied; its transform is the same
            place_parity(run.folder, result)
        # The statistics of an append describe all records: the new ones are merged with those of the dataset.
        described, comparisons = None, compared.comparisons
        if statistics is not None:
            if onto is not None and (before := described_before(onto)) is not None:
                statistics.merge(before)
            described = place_statistics(run.folder, statistics)
            if self.tried:  # a replay is compared here, with the earlier records, and cannot fail a threshold
                comparisons = drift.of_splits(statistics, schema)
        leakage = place_leakage(run.folder, result, inputs, described)
        placed_drift = drift.place_drift(run.folder, comparisons)
        folders.create(layout.join(run.folder, layout.SCHEMA_YAML), source.schema_text)
        # The entries of the inputs with their counts: of this run, and of an append also the dataset's.
        parts: Iterable[InputPart] = (input_part(part) for part in accounts(inputs, result.count_files))
        count = inputs.files
        if onto is not None:
            count = count_inputs(onto.manifest, count, tried=bool(self.tried))
            parts = merged_inputs(onto, parts, tried=self.tried)
        listed = write_parts(run.output, run.id, parts, count=count)
        # This manifest describes the records of this run. An append merges it with the dataset's manifest below.
        before_this = replaced(run.output, read_manifest)
        manifest = Manifest(
            **entries(run, result, listed),
            name=schema.name,
            schema_fingerprint=schema.fingerprint,
            format=schema.format,
            classes=source.classes,
            compression=options.compression,
            seed=options.seed,
            split_hash_version=split_hash.VERSION,
            splits=splits,
            files=(),
            written=result.total(WRITTEN),
            previous=() if before_this is None else tuple(sorted(before_this.runs)),
            transform_from=self.transform.run if self.transform else None,
            preprocessing_fn=self.own_function,
        )
        written = data_warnings.WrittenRun(
            schema=schema,
            result=result,
            rows={split: manifest.splits[split].rows for split in manifest.splits},
            inputs=read_inputs(run.output, manifest),
            statistics=statistics,
            described=described,
            leakage=leakage,
            compared=compared,
        )
        checks = data_warnings.CHECKS if onto is None else data_warnings.CHECKS_OF_ADDED
        warnings = tuple(data_warnings.warnings(written, checks))
        manifest = manifest.model_copy(update={"warnings": warnings})
        if onto is not None:
            manifest = merged_manifest(onto.manifest, manifest, tried=len(self.tried))
        # The report and the list of files come last, because the report shows the manifest, and is itself a file.
        phases = progress.JOB.phases() if options.is_local else ()
        place_report(run.output, manifest, statistics=described, comparisons=placed_drift, phases=phases)
        shards = {file.path for file in manifest.shard_files}
        manifest = manifest.model_copy(update={"files": tuple(list_files(run.output, run.id, except_for=shards))})
        publish(run, manifest)
        return manifest


def publish(run: NewRun, manifest: Manifest | PredictionsManifest) -> None:
    """Commits a run: flushes its files to disk, and then replaces the manifest of the output folder.

    The staging folder is not flushed, because it is deleted after the commit. Jobs that write a dataset and jobs that
    write predictions both commit with this function.

    Raises:
      LeaseError: another job has taken the lease; the manifest has not changed.
    """
    folders.flush(run.folder, exclude=layout.STAGING)
    folders.flush_name(run.output)
    lease_of_job(run.output, run.id).put(layout.MANIFEST, manifest.to_json(), run.replaces)


def entries(run: NewRun, result: Result, listed: dict[str, Any]) -> dict[str, Any]:
    """Returns the fields that manifests of datasets and of predictions share: the run, its inputs and its counts.

    Args:
      run: the run.
      result: the result of its pipeline.
      listed: the fields about the inputs, from `write_parts`.
    """
    return {
        "run": run.id,
        "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        **listed,
        "read": result.total(READ),
        "rejected": result.rejected,
        "seconds": round(max(time.time() - run.started, 0.0), 3),
    }


def place_split(run: NewRun, result: Result, split: str, compression: str) -> SplitShards:
    """Gives the shards of a split their final names. Shards without rows are left out."""
    written = [shard for shard in result.shards if shard.split == split and shard.rows]

    def name(number: int, of: int) -> str:
        return layout.shard_name(split, number, of, compression)

    shards = place_shards(run, written, name)
    return SplitShards(rows=sum(s.rows for s in shards), shards=shards)


def place_shards(run: NewRun, written: Iterable[WrittenShard], name_of: Callable[[int, int], str]) -> tuple[Shard, ...]:
    """Gives the shards in staging their final names, and returns all shards in order.

    A shard that a cluster's worker wrote has its final name already, and keeps it.

    Args:
      run: the run.
      written: the shards, in any order.
      name_of: makes the final name from the shard's number and the number of shards.
    """
    ordered = sorted(written, key=lambda shard: shard.index)

    def place(numbered: tuple[int, WrittenShard]) -> Shard:
        number, shard = numbered
        name = layout.join(run.id, shard.path.rpartition("/")[2])
        if shard.path != layout.join(run.output, name):
            name = layout.join(run.id, name_of(number, len(ordered)))
            place_file(shard.path, layout.join(run.output, name))
            if shard.places_bytes:
                place_file(layout.places_of(shard.path), layout.join(run.output, layout.places_of(name)))
        beside = None
        if shard.places_bytes:
            beside = File(path=layout.places_of(name), bytes=shard.places_bytes, sha256=shard.places_sha256)
        return Shard(path=name, rows=shard.rows, bytes=shard.bytes, crc32c=shard.crc32c, places=beside)

    return tuple(storage.for_each(run.output, place, enumerate(ordered)))


def place_file(path: str, final: str) -> None:
    """Renames a file to its final name. Does nothing if an earlier attempt at this commit has renamed the file."""
    try:
        folders.move(path, final)
    except MillraceError:
        if storage.exists(path) or not storage.exists(final):
            raise


def list_files(output: str, run_id: str, *, except_for: set[str]) -> Iterable[File]:
    """Returns the size and the SHA-256 of each file of a run, without the files `except_for`."""

    def described(path: str) -> File:
        size, sha256 = sha256_of(storage.read_chunks(layout.join(output, path)))
        return File(path=path, bytes=size, sha256=sha256)

    paths = [layout.join(run_id, name) for name in files_of_run(output, run_id)]
    return storage.for_each(output, described, [path for path in paths if path not in except_for])


def replaced(output: str, read: Callable[[str], M]) -> M | None:
    """Reads the manifest that the run replaces.

    Args:
      output: the output folder.
      read: reads the manifest of a folder.

    Returns:
      The manifest; None if the folder has no manifest, or an unreadable one, such as one of another format version.
    """
    if not storage.exists(layout.join(output, layout.MANIFEST)):
        return None
    try:
        return read(output)
    except MillraceError:  # --overwrite may replace a damaged manifest
        return None
