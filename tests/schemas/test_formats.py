"""What every format of rows promises, whichever it is: see `schemas.rows.RowFormat`."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest

from schemas.errors import MillraceError
from schemas.formats import ROW_FORMATS, row_format
from schemas.rows import AnyRowFormat, RowFile, batch_schema
from schemas.spec.table import OFFSET, SPLIT, RowFormatName, Schema, raw_columns
from tests.support.csv_reading import table_schema

SCHEMA = """\
name: people
format: {format}
features:
  - {{name: id, kind: key}}
  - {{name: age, kind: numeric, transform: z_score}}
  - {{name: city, kind: category, hash_buckets: 9}}
label: {{name: y, kind: category}}
"""
# Of each format, a file of rows with two that are rejected for their age, which is 'old'.
FILES = {
    "csv": ["id,age,city,y", *(f"k{i},{i},ab,yes" if i % 50 else f"k{i},old,ab,no" for i in range(1, 101))],
}


@pytest.fixture(params=sorted(ROW_FORMATS))
def opened(request, tmp_path) -> tuple[AnyRowFormat, RowFile, Schema]:
    path: Path = tmp_path / f"raw.{request.param}"
    path.write_text("".join(f"{line}\n" for line in FILES[request.param]))
    schema = table_schema(SCHEMA.format(format=request.param))
    rows = row_format(schema)
    return rows, rows.open_file(str(path), schema, label="required", max_input_ratio=500.0), schema


def test_the_table_holds_what_a_schema_may_say():
    assert set(ROW_FORMATS) == set(get_args(RowFormatName))


@pytest.mark.parametrize("range_bytes", [50, 1 << 20])
def test_each_record_is_in_one_range_with_its_place(opened, range_bytes):
    rows, file, schema = opened
    parts = rows.plan_ranges(file, range_bytes=range_bytes)
    assert sum(part.covers for part in parts) == file.covers
    found = [d for part in parts for d in rows.read_range(part, schema, with_split=True)]
    assert (sum(d.read for d in found), sum(len(d.rejects) for d in found)) == (100, 2)
    data = Path(file.path).read_bytes()
    for decoded in found:
        assert decoded.batch.schema == batch_schema(raw_columns(schema), with_split=True)
        ids = decoded.batch.column("id").flatten().to_pylist()
        for offset, key in zip(decoded.batch.column(OFFSET).to_pylist(), ids, strict=True):
            assert key in data[offset:].partition(b"\n")[0]
        for reject in decoded.rejects:
            assert data[reject.offset :].startswith(reject.raw + b"\n")
            assert b"old" in reject.raw
            assert len(reject.raw) >= file.min_record_bytes - 1


def test_single_records_are_read_and_decoded_as_they_were_in_the_file(opened):
    rows, file, schema = opened
    (part,) = rows.plan_ranges(file, range_bytes=1 << 20)
    (whole,) = rows.read_range(part, schema, with_split=True)
    offsets = whole.batch.column(OFFSET).to_pylist() + [r.offset for r in whole.rejects]
    raws = rows.read_records(file, schema, offsets)
    file = rows.file_from_manifest(file.path, schema, encoding=file.codec, header=file.header)
    again = rows.decode_records(file, schema, [raws[o] for o in sorted(raws)], sorted(raws))
    assert again.batch == whole.batch
    assert (again.read, again.rejects) == (whole.read, whole.rejects)


def test_an_offset_that_begins_no_record_is_refused(opened):
    rows, file, schema = opened
    with pytest.raises(MillraceError, match="no record begins at byte"):
        rows.read_records(file, schema, [file.size - 3])


def test_a_record_made_of_cells_is_read_as_these_cells(opened):
    rows, file, schema = opened
    cells = {"id": (b'a "quoted", key',), "age": (b"7.5",), "city": ("Köln".encode(),), "y": (b"yes",)}
    decoded = rows.decode_records(file, schema, [rows.encode_record(file, schema, cells)], [0])
    assert decoded.rejects == []
    (row,) = decoded.batch.drop_columns([OFFSET, SPLIT]).to_pylist()
    assert row == {name: [7.5] if name == "age" else list(cell) for name, cell in cells.items()}


def test_column_names_are_shown_beside_their_features(opened):
    _, file, _ = opened
    assert file.labels == tuple((name, (name,)) for name in ("id", "age", "city", "y"))


def test_files_and_ranges_travel_to_workers(opened):
    rows, file, _ = opened
    parts = rows.plan_ranges(file, range_bytes=1 << 20)
    assert pickle.loads(pickle.dumps(parts)) == list(parts)


def test_a_batch_without_rows_has_the_same_columns(opened):
    rows, file, schema = opened
    decoded = rows.decode_records(file, schema, [b""], [7])
    assert [(r.offset, r.reason) for r in decoded.rejects] == [(7, "not_one_record")]
    assert isinstance(decoded.batch, pa.RecordBatch)
    assert decoded.batch.schema == batch_schema(raw_columns(schema), with_split=True)
