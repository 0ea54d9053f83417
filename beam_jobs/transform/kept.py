"""What an analysis has measured of one run's records, kept so that these need not be read for another analysis.

There are two parts. The accumulators of tf.Transform's combiners (sums, least and greatest values, sketches of
quantiles) are what its `AnalyzeDatasetWithCache` hands out, by keys of its own. The words of vocabularies are counted
by an analyzer of ours, which is none that tf.Transform can cache: their counts are kept as they are.

tf.Transform's coder pickles sketches. Nothing that is stored here is a pickle, and nothing that is read is unpickled
but bytes that this file has put together itself from the state of a sketch.
"""

from __future__ import annotations

import io
import json
import pickletools
import struct
import sys
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from beam_jobs.core.keeping import Keeping, Kept, Outdated
from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError
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
