"""Rows as they are read: small files in groups, decoded once and cached, with any byte in their text."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from beam_jobs.rows.cache import read_cache, write_through
from beam_jobs.rows.groups import GROUP_BYTES, GROUP_RANGES, JOINED_ROWS, Group, decode, grouped, joined, range_bytes
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.dataset import layout
from schemas.dataset.verify import verify_dataset
from schemas.rows import Decoded, batch_bytes
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema
from tests.support.csv_datasets import AGES
from tests.support.csv_reading import schema_of, table_schema
from tests.support.datasets import folder_of_people, rejects_of, written
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.written_records import examples


def batch(values: list[int]) -> Decoded:
    return Decoded(pa.record_batch({"x": pa.array(values, pa.int64())}), [], len(values))


def ranges(tmp_path: Path, sizes: list[int]) -> list:
    schema = table_schema(AGES)
    parts = []
    for i, size in enumerate(sizes):
        path = tmp_path / f"{i}.csv"
        path.write_bytes((b"id,age,y\n" + b"k,1,no\n" * (size // 7))[:size])
        parts += split_ranges(open_csv(str(path), schema), range_bytes=8 << 20)
    return parts


class TestGrouped:
    @pytest.mark.parametrize(
        ("sizes", "groups"),
        [
            pytest.param([], [], id="none"),
            pytest.param([100] * 3, [3], id="small ones"),
            pytest.param([100] * (GROUP_RANGES + 2), [GROUP_RANGES, 2], id="at most so many"),
            pytest.param([GROUP_BYTES * 2, 100, 100, GROUP_BYTES * 2], [1, 2, 1], id="a large one by itself"),
            pytest.param([GROUP_BYTES // 2] * 5, [2, 2, 1], id="at most so many bytes"),
        ],
    )
    def test_in_order_and_within_the_limits(self, tmp_path, sizes, groups):
        parts = ranges(tmp_path, sizes)
        grouped_parts = list(grouped(parts))
        assert [len(group) for group in grouped_parts] == groups
        assert [part for group in grouped_parts for part in group] == parts
        assert all(len(group) == 1 or sum(map(range_bytes, group)) <= GROUP_BYTES for group in grouped_parts)


class TestJoined:
    def test_of_several_ranges(self):
        items = [(0, batch([1, 2])), (1, batch([])), (2, batch([3])), (2, batch([4] * JOINED_ROWS)), (5, batch([9]))]
        batches = list(joined(items, cast("Group", (None,) * 6)))
        assert [rows.num_rows for rows, _ in batches] == [JOINED_ROWS + 3, 1]
        assert batches[0][0]["x"].to_pylist()[:4] == [1, 2, 3, 4]
        assert batches[0][1].tolist() == [0, 0, 2, *[2] * JOINED_ROWS]
        assert batches[1][1].tolist() == [5]


@pytest.mark.parametrize(("options", "batches"), [({}, 1), ({"characters": (2, 4)}, 3), ({"ngrams": (1, 1)}, 3)])
def test_texts_whose_ngrams_are_taken_are_read_in_small_batches(tmp_path, options, batches):
    schema = schema_of([{"name": "a", "kind": "text", **options}, {"name": "b", "kind": "key"}])
    path = tmp_path / "rows.csv"
    path.write_text("a,b,c\n" + f"{'word ' * 18_000},1,yes\n" * 50)
    (part,) = split_ranges(open_csv(str(path), schema), range_bytes=8 << 20)
    group = (part,)
    read = list(decode(group, schema, digests=False))
    assert sum(item.batch.num_rows for _, item in read) == 50
    assert len([item for _, item in read if item.batch.num_rows]) == batches
    several = [rows.num_rows for rows, _ in joined(read, (*group, *group), most_bytes=batch_bytes(schema))]
    assert (len(several), sum(several)) == (batches, 50)


def test_each_record_of_many_files_is_written_or_rejected_with_its_place(tmp_path):
    """Headers in any order, a bad row in some, files without rows, a large file among them."""
    folder = tmp_path / "raw"
    folder.mkdir()
    rows_of = [4_000 if i == 77 else i % 4 for i in range(300)]
    good: dict[bytes, float] = {}
    bad: dict[tuple[str, int], bytes] = {}
    for i, rows in enumerate(rows_of):
        path = folder / f"{i:03d}.csv"
        names = ["id", "age", "y"] if i % 3 else ["y", "id", "age"]
        data = (",".join(names) + "\n").encode()
        for j in range(rows):
            row = {"id": f"k{i}_{j}", "age": str(j), "y": ["no", "yes"][j % 2]}
            if (i + j) % 50 == 7:
                row["age"] = "old"
            line = ",".join(row[name] for name in names).encode()
            if row["age"] == "old":
                bad[str(path), len(data)] = line
            else:
                good[row["id"].encode()] = float(j)
            data += line + b"\n"
        path.write_bytes(data)
    dataset = written(tmp_path, AGES, f"{folder}/*.csv", max_reject_fraction=0.5)
    stored = [record for split in dataset.splits for record in examples(dataset, split)]
    assert {record["id"][0]: record["age"][0] for record in stored} == good
    assert len(stored) == len(good)
    assert {(r.source, r.offset): r.raw for r in rejects_of(dataset)} == bad
    assert [file.read for file in dataset.manifest.inputs] == rows_of
    assert [file.written + file.rejected for file in dataset.manifest.inputs] == rows_of


@pytest.fixture
def decoded(tmp_path):
    """Three batches of people, one of them with a reject whose bytes are no UTF-8."""
    job = folder_of_people(tmp_path, LEAN_SCHEMA)
    job.raw.write_bytes(people_csv(300).encode() + b"\xff\xfe,too short\n")
    schema = load_schema(str(job.schema))
    assert isinstance(schema, Schema)
    (part,) = split_ranges(open_csv(str(job.raw), schema), range_bytes=1 << 20)
    batches = list(read_range(part, schema, batch_bytes=8000, with_split=True))
    assert len(batches) > 2
    assert [r.raw for d in batches for r in d.rejects] == [b"\xff\xfe,too short"]
    return batches


def same(a: Decoded, b: Decoded) -> bool:
    rows = [repr((batch.schema, batch.to_pylist())) for batch in (a.batch, b.batch)]  # NaN equals nothing
    return rows[0] == rows[1] and (a.rejects, a.read) == (b.rejects, b.read)


@pytest.fixture
def folder(tmp_path):
    """An empty folder, as that of a job's cache."""
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def test_batches_rejects_and_counts_are_read_back(folder, decoded):
    path = str(folder / "kept.arrow")
    in_group = list(zip([0, 2, *[3] * (len(decoded) - 2)], decoded, strict=True))
    assert list(write_through(path, iter(in_group))) == in_group
    for (place, decoded_batch), (expected_place, expected) in zip(read_cache(path), in_group, strict=True):
        assert place == expected_place
        assert same(decoded_batch, expected)
    assert os.listdir(folder) == ["kept.arrow"]


def test_a_read_that_ends_early_or_fails_keeps_nothing(folder, decoded):
    def failing():
        yield 0, decoded[0]
        raise ValueError("the file has changed")

    path = str(folder / "kept.arrow")
    items = write_through(path, ((0, item) for item in decoded))
    next(items)
    items.close()
    with pytest.raises(ValueError, match="has changed"):
        list(write_through(path, failing()))
    assert os.listdir(folder) == []
    with pytest.raises(FileNotFoundError):
        list(read_cache(path))


@pytest.mark.parametrize("room", [0, 10_000])
def test_a_full_disk_ends_the_keeping_and_not_the_read(folder, decoded, room):
    path = str(folder / "kept.arrow")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))  # what is beyond cannot be written, as on a full disk
    try:
        read = write_through(path, ((0, item) for item in decoded))
        begun = [next(read) for _ in decoded]
        assert os.listdir(folder) == []  # its room is given back at once
        assert [item for _, item in [*begun, *read]] == decoded
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.listdir(folder) == []


OF_TEXT = """\
name: nul
format: csv
csv: {columns: [t, k, l], header: none}
features:
  - {name: t, kind: category}
  - {name: k, kind: key}
label: {name: l, kind: category}
split: {by: row, train: 1, eval: 0, test: 0}
"""
PLAIN = b"".join(b"a text of 16 byt,a key of %06d...,a label of 16 by\n" % i for i in range(2_000))
WIDE = b"first te\0in,keyzz,b label of 16 by,b label of 16 by"  # four columns; three for who stops at the NUL
RIGHT = b"text\0A,key\0%d,label\0of 16 by\n"


def test_a_nul_far_into_a_file_moves_no_field_and_is_kept(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_bytes(PLAIN + WIDE + b"\n" + b"".join(RIGHT % i for i in range(5)))
    dataset = written(tmp_path, OF_TEXT, str(tmp_path / "raw.csv"), range_mb=0.05)
    (counted,) = dataset.manifest.inputs
    assert (counted.read, counted.written, counted.rejected) == (2_006, 2_005, 1)
    (reject,) = rejects_of(dataset)
    assert (reject.offset, reject.reason, reject.raw) == (len(PLAIN), "too_many_columns", WIDE)
    rows = [row for row in examples(dataset, "train") if b"\0" in row["k"][0]]
    assert sorted((row["k"], row["t"], row["l"]) for row in rows) == [([b"key\0%d" % i], [1], [1]) for i in range(5)]
    assets = Path(dataset.run_dir) / layout.TRANSFORM_FN / "assets"
    words = {word for file in assets.iterdir() for word in file.read_bytes().split(b"\n")}
    assert {b"text\0A", b"label\0of 16 by"} <= words
    assert verify_dataset(dataset.path) == []
