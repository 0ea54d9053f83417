"""Measures the transform: all of the train split, or what no earlier run has measured and kept.

What an analysis has measured of one run's records, kept so that these need not be read for another analysis.

There are two parts. The accumulators of tf.Transform's combiners (sums, least and greatest values, sketches of
quantiles) are what its `AnalyzeDatasetWithCache` hands out, by keys of its own. The words of vocabularies are counted
by an analyzer of ours, which is none that tf.Transform can cache: their counts are kept as they are.

tf.Transform's coder pickles sketches. Nothing that is stored here is a pickle, and nothing that is read is unpickled
but bytes that this file has put together itself from the state of a sketch.

Writes tf.Transform's graph to the run's folder; a runner may repeat this.

`tft_beam.WriteTransformFn` renames the files that it has written: a repeated attempt does not find them and fails.
"""

from __future__ import annotations

import io
import json
import pickletools
import struct
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
import tensorflow_transform.beam as tft_beam
from tensorflow_transform.impl_helper import METADATA_DIR_NAME
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig

from beam_jobs.core.inputs import Keeping, Kept, Outdated
from beam_jobs.core.source import Plan
from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.storage import folders
from schemas.storage.json_files import parse_json

FORMAT_VERSION = 1
_META = b"millrace.analysis"
_ENTRIES = pa.schema([("key", pa.binary()), ("kind", pa.string()), ("value", pa.binary())])
_WORDS = pa.schema([("vocabulary", pa.int32()), ("word", pa.binary()), ("count", pa.int64())])
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")
_JSON, _QUANTILES = "json", "quantiles"
_SKETCH = b"ctfx_bsl.cc.tfx_bsl_extension.sketches\nQuantilesSketch\n"  # its name, as a pickle's opcode GLOBAL
_WORDS_A_FILE = 1 << 20
_PACKAGES = ("tensorflow-transform", "tfx-bsl", "numpy")

Entry = tuple[bytes, bytes]  # tf.Transform's key, and what it keeps under it
Count = tuple[tuple[int, bytes], int]  # ((vocabulary, word), how often)


def identity(fingerprint: str) -> dict[str, Any]:
    """What must be equal for kept measurements to be used: the schema, and the versions of what made them."""
    import importlib.metadata

    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    python = f"{sys.version_info.major}.{sys.version_info.minor}"  # as in tf.Transform's keys
    return {"version": FORMAT_VERSION, "schema": fingerprint, "python": python, **versions}


def to_stored(value: bytes) -> tuple[str, bytes]:
    """What tf.Transform's coder made of an accumulator, without a pickle: its kind, and its bytes.

    Raises:
      ValueError: it is neither JSON nor the pickle of one sketch of quantiles.
    """
    if not value.startswith(b"\x80"):  # as all pickles do, and no JSON
        parse_json(value)
        return _JSON, value
    states = [arg for op, arg, _ in pickletools.genops(value) if op.name in ("SHORT_BINBYTES", "BINBYTES")]
    if b"QuantilesSketch" not in value[:200] or len(states) != 1 or not isinstance(states[0], bytes):
        raise ValueError("an accumulator of an unknown kind")
    return _QUANTILES, states[0]


def from_stored(kind: str, value: bytes) -> bytes:
    """The bytes that tf.Transform's coder takes for an accumulator: of a sketch, a pickle that is written here.

    Raises:
      ValueError: the kind is unknown.
    """
    if kind == _JSON:
        return value
    if kind != _QUANTILES:
        raise ValueError(f"an accumulator of the kind {kind!r}")
    # PROTO 3, GLOBAL, EMPTY_TUPLE, NEWOBJ, BINBYTES, BUILD, STOP
    return b"\x80\x03" + _SKETCH + b")\x81B" + struct.pack("<I", len(value)) + value + b"b."


def write_entries(_: None, entries: Iterable[Entry], keeping: Keeping) -> None:
    """Writes the accumulators of a run. Attempts write the same to the same name, in one step."""
    rows = sorted((key, *to_stored(value)) for key, value in entries)
    table = [pa.array(column, field.type) for column, field in zip(_columns(rows, 3), _ENTRIES, strict=True)]
    meta = {_META: json.dumps(identity(keeping.fingerprint)).encode()}
    storage.write_bytes(keeping.entries, _arrow(table, _ENTRIES.with_metadata(meta)))


def read_entries(kept: Kept, fingerprint: str) -> dict[bytes, bytes]:
    """The accumulators of a run, as tf.Transform's coder takes them.

    Raises:
      Outdated: they are of another schema, or were made by other versions.
      MillraceError: the file is damaged.
    """
    try:
        with pa.ipc.open_file(io.BytesIO(storage.read_bytes(kept.entries))) as reader:
            table = reader.read_all()
        made = parse_json((table.schema.metadata or {}).get(_META, b"{}"))
    except (pa.ArrowInvalid, ValueError) as error:
        raise MillraceError(f"{kept.entries}: is not what an analysis has kept: {error}") from error
    now = identity(fingerprint)
    if made != now:
        other = [name for name in now if made.get(name) != now[name]]
        told = ", ".join(f"{name} {made.get(name)} and not {now[name]}" for name in other)
        raise Outdated(f"what run {kept.run} has measured was kept with {told}")
    return {row["key"]: from_stored(row["kind"], row["value"]) for row in table.to_pylist()}


def write_words(_: None, counts: Iterable[Count], keeping: Keeping) -> None:
    """Writes the counted words of a run: files under names of this attempt, then the file that names them."""
    names: list[str] = []
    rows: list[tuple[int, bytes, int]] = []

    def write() -> None:
        table = [pa.array(column, field.type) for column, field in zip(_columns(rows, 3), _WORDS, strict=True)]
        names.append(f"words-{uuid.uuid4().hex}.arrow")
        storage.write_bytes(layout.join(keeping.folder, names[-1]), _arrow(table, _WORDS))
        rows.clear()

    for (vocabulary, word), count in counts:
        rows.append((vocabulary, word, count))
        if len(rows) == _WORDS_A_FILE:
            write()
    if rows:
        write()
    storage.write_bytes(keeping.words, json.dumps(names).encode())


def read_words(path: str) -> Iterator[Count]:
    """The counted words of a file."""
    with pa.ipc.open_file(io.BytesIO(storage.read_bytes(path))) as reader:
        for i in range(reader.num_record_batches):
            numbers, words, counts = (column.to_pylist() for column in reader.get_batch(i).columns)
            for number, word, count in zip(numbers, words, counts, strict=True):
                yield (number, word), count


def _columns(rows: list[Any], count: int) -> list[list[Any]]:
    return [[row[i] for row in rows] for i in range(count)]


def _arrow(columns: list[pa.Array], schema: pa.Schema) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue().to_pybytes()


Tensors = dict[str, Any]


def analyze(
    batches: beam.PCollection,
    config: TensorAdapterConfig,
    preprocessing_fn: Callable[[Tensors], Tensors],
    keeping: Keeping | None,
) -> Any:
    """The transform that a `preprocessing_fn` makes of the train split.

    Args:
      batches: what is read of it, as record batches.
      config: how they become tensors.
      preprocessing_fn: the function.
      keeping: what is kept, and what is known; None: neither.

    Raises:
      Outdated: what is known cannot be used; then nothing has been read yet.
    """
    if keeping is None:
        return (batches, config) | tft_beam.AnalyzeDataset(preprocessing_fn)
    pipeline = batches.pipeline
    data, cache = {_key(keeping.run): batches}, {}
    for number, kept in enumerate(keeping.known):
        entries = read_entries(kept, keeping.fingerprint)
        cache[_key(kept.run)] = tft_beam.analyzer_cache.DatasetCache(
            {
                key: pipeline | f"Known{number}[{i}]" >> beam.Create([value], reshuffle=False)
                for i, (key, value) in enumerate(sorted(entries.items()))
            },
            None,
        )
        # Empty, for analyzers that cannot be cached: what they know they read themselves.
        nothing = pipeline | f"Known{number}" >> beam.Create([], reshuffle=False).with_output_types(pa.RecordBatch)
        data[_key(kept.run)] = nothing
    transform_fn, measured = (data, cache, config) | tft_beam.AnalyzeDatasetWithCache(preprocessing_fn)
    missed = [kept.run for kept in keeping.known if _key(kept.run) in measured]
    if missed:  # tf.Transform would measure the empty one instead, and say nothing
        raise Outdated(f"what run {missed[0]} has measured lacks a part that this release measures")
    parts = measured[_key(keeping.run)].cache_dict if _key(keeping.run) in measured else {}
    tagged = [
        part | f"Entry[{i}]" >> beam.Map(lambda value, key: (key, value), key=key)
        for i, (key, part) in enumerate(sorted(parts.items()))
    ]
    together = tagged | "Entries" >> beam.Flatten(pipeline=pipeline)
    _ = (
        pipeline
        | "KeepOnce" >> beam.Create([None], reshuffle=False)
        | "Keep" >> beam.Map(write_entries, entries=beam.pvalue.AsList(together), keeping=keeping)
    )
    return transform_fn


def _key(run: str) -> Any:
    return tft_beam.analyzer_cache.DatasetKey(run)


def write_transform(transform_fn: Any, plan: Plan) -> beam.PCollection | None:
    """Writes the transform to the run's folder: when the pipeline runs, or now, if it is that of another dataset.

    Returns:
      What has an element once it is written; None: it is.
    """
    if plan.transform_from is None:
        return transform_fn | "WriteTransform" >> WriteTransform(plan.run_dir, temp_dir=plan.temp_dir)
    for part in (layout.TRANSFORM_FN, layout.TRANSFORMED_METADATA):
        # Copied: if tf.Transform wrote a graph that it has read, the names of its vocabularies would be missing.
        folders.copy(layout.join(plan.transform_from, part), layout.join(plan.run_dir, part))
    return None


class WriteTransform(beam.PTransform):
    """(path of a SavedModel, metadata) from tf.Transform -> None, once both are in `run_dir`.

    Every attempt writes its metadata to `temp_dir` under a unique name; that of the last one is copied.
    """

    def __init__(self, run_dir: str, *, temp_dir: str) -> None:
        super().__init__()
        self.run_dir = run_dir
        self.temp_dir = temp_dir

    def _extract_input_pvalues(self, transform_fn: Any) -> Any:
        """Beam's hook for inputs that are not PCollections: returns their parts that are."""
        writer = tft_beam.WriteTransformFn(self.run_dir)
        return writer._extract_input_pvalues(transform_fn)  # private: tf.Transform's answer to Beam, and no other way

    def expand(self, transform_fn: Any) -> beam.PCollection:
        saved_model, metadata = transform_fn
        pipeline = saved_model.pipeline
        write = tft_beam.WriteMetadata(self.temp_dir, pipeline, write_to_unique_subdirectory=True)
        return (
            pipeline
            | "Sole" >> beam.Create([None])
            | "Copy"
            >> beam.Map(
                copy_transform,
                run_dir=self.run_dir,
                saved_model=beam.pvalue.AsSingleton(saved_model),
                metadata=beam.pvalue.AsSingleton(metadata | "WriteMetadata" >> write),
            )
        )


def copy_transform(_: None, *, run_dir: str, saved_model: str, metadata: str) -> None:
    """Copies both folders, replacing the files of an earlier attempt; the metadata of the analysis is left out."""
    folders.copy(saved_model, layout.join(run_dir, layout.TRANSFORM_FN), exclude=METADATA_DIR_NAME)
    folders.copy(metadata, layout.join(run_dir, layout.TRANSFORMED_METADATA))
