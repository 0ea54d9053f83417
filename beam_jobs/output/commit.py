"""Commits the result of a finished pipeline: checks it, moves files to their final names, writes the manifest last."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import importlib.metadata
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from beam_jobs.core import parity_files, parity_sample
from beam_jobs.core.accounting import COVERED, READ, WRITTEN, RejectLimit, rejects
from beam_jobs.core.source import InputFile, Source
from beam_jobs.output.data_warnings import find_warnings
from beam_jobs.output.result import Result
from schemas import storage
from schemas.dataset import layout
from schemas.dataset.lease import Lease
from schemas.dataset.manifest import Count, File, Input, Manifest, Shard, Split, read_manifest
from schemas.errors import MillraceError
from schemas.spec import split_hash
from schemas.spec.table import Schema
from schemas.storage import folders
from schemas.storage.compare_and_swap import Seen

_PACKAGES = ("apache-beam", "tensorflow", "tensorflow-transform", "tfx-bsl", "pyarrow", "numpy")


@dataclasses.dataclass(frozen=True)
class Run:
    """The run to commit."""

    output: str
    id: str
    staging: str
    source: Source
    limit: RejectLimit
    compression: Literal["none", "gzip"]
    seed: int
    transform_from: str | None
    preprocessing_fn: str | None
    lease: Lease
    replaces: Seen  # the manifest at the time the lease was taken

    @property
    def folder(self) -> str:
        return layout.join(self.output, self.id)


def check(run: Run, result: Result) -> None:
    """Checks that a result may become a dataset.

    Raises:
      MillraceError: a record is unaccounted for, too many records were rejected, or a split is empty.
    """
    for file in run.source.files:
        read, written = result.total(READ, path=file.path), result.total(WRITTEN, path=file.path)
        rejected = result.rejected(path=file.path)
        covered = result.total(COVERED, path=file.path)
        if file.covers not in (None, covered):
            raise MillraceError(
                f"{file.path}: {covered:,} of {file.covers:,} bytes, images or pairs were processed: some "
                "were skipped or read twice. This is a bug; nothing was committed."
            )
        if read != written + rejected:
            raise MillraceError(
                f"{file.path}: {read:,} records read, {written:,} written and {rejected:,} rejected: "
                f"{abs(read - written - rejected):,} unaccounted for. This is a bug; nothing was committed."
            )
    in_shards = sum(s.rows for s in result.shards)
    if in_shards != result.total(WRITTEN):
        raise MillraceError(
            f"{in_shards:,} records in the shards, {result.total(WRITTEN):,} encoded. "
            "This is a bug; nothing was committed."
        )
    read, rejected = result.total(READ), result.rejected()
    if not run.limit.allows(rejected, read):
        raise MillraceError(
            f"{rejected:,} of {read:,} records were rejected, which is more than --max_rejects {run.limit.rows} and "
            f"--max_reject_fraction {run.limit.fraction:g} allow"
        )
    if not read:
        raise MillraceError(f"{', '.join(f.path for f in run.source.files)}: the input contains no records")
    if not in_shards:
        raise MillraceError(f"all {read:,} records were rejected, so there is nothing to write")
    for split in run.source.schema.split_names:
        if not sum(s.rows for s in result.shards if s.split == split):
            raise MillraceError(
                f"the split {split!r} is empty: it got none of {read:,} records. Increase its fraction in the "
                "schema, set it to 0 to drop the split, or add input."
            )


def commit(run: Run, result: Result, *, begun: float) -> Manifest:
    """Moves all files to their final names, removes the staging folder and swaps the manifest.

    `begun` is the `time.monotonic()` at which the run began.

    Raises:
      LeaseError: another job has taken the lease; the manifest has not changed.
    """
    place = {"output": run.output, "run_id": run.id, "compression": run.compression}
    splits = {split: place_shards(result, split, **place) for split in run.source.schema.split_names}
    place_rejects(run, result)
    place_parity(run, result)
    storage.write_bytes(layout.join(run.folder, layout.SCHEMA_YAML), run.source.schema_text)
    folders.remove(run.staging)
    headers = tuple(sorted({file.header for file in run.source.files if file.header is not None}))
    manifest = Manifest(
        run=run.id,
        created=dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),
        name=run.source.schema.name,
        schema_fingerprint=run.source.schema.fingerprint,
        format=run.source.schema.format,
        classes=run.source.classes,
        compression=run.compression,
        seed=run.seed,
        split_hash_version=split_hash.VERSION,
        versions=versions(),
        inputs=tuple(account_of(file, result, headers) for file in run.source.files),
        headers=headers,
        splits=splits,
        files=tuple(list_files(run.output, run.id, except_for={s.path for v in splits.values() for s in v.shards})),
        counts=tuple(counts_of(result)),
        read=result.total(READ),
        written=result.total(WRITTEN),
        rejected=result.rejected(),
        previous=previous_runs(run.output),
        transform_from=run.transform_from,
        preprocessing_fn=run.preprocessing_fn,
        finite=True,
        warnings=tuple(find_warnings(result, derived_from(run), classes=run.source.classes)),
        seconds=round(time.monotonic() - begun, 3),
    )
    publish(run.output, manifest, held=run.lease, replaces=run.replaces)
    return manifest


def derived_from(run: Run) -> Schema | None:
    """The schema that the transform is derived from; None for images, and for a user's preprocessing_fn."""
    schema = run.source.schema
    return schema if isinstance(schema, Schema) and run.preprocessing_fn is None else None


def publish(output: str, manifest: Manifest, *, held: Lease, replaces: Seen) -> None:
    """Flushes all files of the run to disk, then swaps the manifest. Every job commits this way.

    Raises:
      LeaseError: another job has taken the lease; the manifest has not changed.
    """
    folders.flush(layout.join(output, manifest.run))
    folders.flush_name(output)
    held.put(layout.MANIFEST, manifest.to_json(), replaces)


def versions() -> dict[str, str]:
    """The versions of the libraries that a dataset's bytes depend on."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def place_shards(result: Result, split: str, *, output: str, run_id: str, compression: str) -> Split:
    """Moves a split's shards to their final names; leaves out shards without rows."""
    written = sorted((s for s in result.shards if s.split == split and s.rows), key=lambda s: s.index)
    shards = []
    for i, shard in enumerate(written):
        name = layout.join(run_id, layout.shard_name(split, i, len(written), compression))
        folders.move(shard.path, layout.join(output, name))
        shards.append(Shard(path=name, rows=shard.rows, bytes=shard.bytes, crc32c=shard.crc32c))
    return Split(rows=sum(s.rows for s in shards), shards=tuple(shards))


def place_rejects(run: Run, result: Result) -> None:
    """Moves the reject files to their final names."""
    for i, file in enumerate(result.reject_files):
        folders.move(file.path, layout.join(run.folder, layout.rejects_name(i)))


def place_parity(run: Run, result: Result) -> None:
    """Writes the sampled records for the parity check, raw and transformed in the same order."""
    import tensorflow as tf

    folders.make(layout.join(run.folder, "parity"))
    with (
        tf.io.TFRecordWriter(layout.join(run.folder, layout.PARITY_RAW)) as raw,
        tf.io.TFRecordWriter(layout.join(run.folder, layout.PARITY_TRANSFORMED)) as transformed,
    ):
        for one, other in parity_records(result):
            raw.write(one)
            transformed.write(other)


def parity_records(result: Result) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of a raw and a transformed record, of which both sides were kept."""
    places = sorted(result.parity_raw.keys() & result.parity_transformed.keys())
    for place in places[:: max(1, -(-len(places) // parity_sample.LIMIT))]:
        yield result.parity_raw[place], result.parity_transformed[place]
    for record in parity_files.choose(result.parity_files):
        raw = {name: storage.read_bytes(file.path) for name, file in record.raw.items()}
        yield raw_example(**raw, label=record.label.encode()), storage.read_bytes(record.stored)


def raw_example(**features: bytes) -> bytes:
    """A serialized tf.Example of strings."""
    import tensorflow as tf

    lists = {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[v])) for name, v in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=lists)).SerializeToString()


def account_of(file: InputFile, result: Result, headers: Sequence[tuple[str, ...]]) -> Input:
    """The manifest's entry for an input file: its numbers of records, its encoding and header."""
    return Input(
        path=file.path,
        bytes=file.bytes,
        version=file.version,
        read=result.total(READ, path=file.path),
        written=result.total(WRITTEN, path=file.path),
        rejected=result.rejected(path=file.path),
        encoding=file.encoding,
        header=None if file.header is None else headers.index(file.header),
    )


def counts_of(result: Result) -> Iterable[Count]:
    """The numbers of written and rejected records, by input, split, stage and reason."""
    for (source, stage, reason), rows in sorted(result.counts.items()):
        if stage == WRITTEN:
            yield Count(input=source, outcome="written", split=reason, rows=rows)
        elif rejects(stage):
            yield Count(input=source, outcome="rejected", stage=stage, reason=reason, rows=rows)


def list_files(output: str, run_id: str, *, except_for: set[str]) -> Iterable[File]:
    """All files of the run except `except_for`, with their checksums."""
    for name in folders.walk(layout.join(output, run_id)):
        path = layout.join(run_id, name)
        if path not in except_for:
            data = storage.read_bytes(layout.join(output, path))
            yield File(path=path, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def previous_runs(output: str) -> tuple[str, ...]:
    """The runs of the dataset that is replaced; none if there is no manifest."""
    if not storage.exists(layout.join(output, layout.MANIFEST)):
        return ()
    try:
        return tuple(sorted(read_manifest(output).runs))
    except MillraceError:  # another format version, which --overwrite replaces
        return ()
