"""Many small files: which are read together, and that each record is where it was."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest

from beam_jobs.preprocess import main
from beam_jobs.rows.ranges import GROUP_BYTES, GROUP_RANGES, JOINED_ROWS, Group, grouped, joined, range_bytes
from schemas.csv.file import open_csv, split_ranges
from schemas.dataset import open_dataset
from schemas.rejects import read_rejects
from schemas.rows import Decoded
from schemas.spec.loader import parse_schema
from schemas.spec.table import Schema
from tests.support.written_records import examples

SCHEMA = """\
name: small
format: csv
csv: {header: present}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: none}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""


def batch(values: list[int]) -> Decoded:
    return Decoded(pa.record_batch({"x": pa.array(values, pa.int64())}), [], len(values))


def ranges(tmp_path: Path, sizes: list[int]) -> list:
    schema = parse_schema(SCHEMA.encode(), "schema.yaml")
    assert isinstance(schema, Schema)
    found = []
    for i, size in enumerate(sizes):
        path = tmp_path / f"{i}.csv"
        path.write_bytes((b"id,age,y\n" + b"k,1,no\n" * (size // 7))[:size])
        found += split_ranges(open_csv(str(path), schema), range_bytes=8 << 20)
    return found


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
        found = list(grouped(parts))
        assert [len(group) for group in found] == groups
        assert [part for group in found for part in group] == parts
        assert all(len(group) == 1 or sum(map(range_bytes, group)) <= GROUP_BYTES for group in found)


class TestJoined:
    def test_of_several_ranges(self):
        items = [(0, batch([1, 2])), (1, batch([])), (2, batch([3])), (2, batch([4] * JOINED_ROWS)), (5, batch([9]))]
        found = list(joined(items, cast("Group", (None,) * 6)))
        assert [rows.num_rows for rows, _ in found] == [JOINED_ROWS + 3, 1]
        assert found[0][0]["x"].to_pylist()[:4] == [1, 2, 3, 4]
        assert found[0][1].tolist() == [0, 0, 2, *[2] * JOINED_ROWS]
        assert found[1][1].tolist() == [5]

    def test_of_one_range_are_left_as_they_are(self):
        items = [(0, batch([1])), (0, batch([])), (0, batch([2]))]
        found = list(joined(items, cast("Group", (None,))))
        assert [rows for rows, _ in found] == [items[0][1].batch, items[2][1].batch]
        assert all(np.array_equal(parts, [0]) for _, parts in found)


def test_each_record_of_many_files_is_written_or_rejected_with_its_place(tmp_path):
    """Headers in any order, a bad row in some, files without rows, a large file among them."""
    folder = tmp_path / "raw"
    folder.mkdir()
    rows_of = [40_000 if i == 77 else i % 4 for i in range(300)]
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
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    argv = ["--schema", str(tmp_path / "schema.yaml"), "--input", f"{folder}/*.csv", "--output", str(tmp_path / "out")]
    assert main([*argv, "--quiet", "--max_reject_fraction", "0.5"]) == 0
    dataset = open_dataset(str(tmp_path / "out"))
    written = [record for split in dataset.splits for record in examples(dataset, split)]
    assert {record["id"][0]: record["age"][0] for record in written} == good
    assert len(written) == len(good)
    rejects = [r for file in Path(dataset.run_dir).glob("rejects-*") for r in read_rejects(file.read_bytes())]
    assert {(r.source, r.offset): r.raw for r in rejects} == bad
    assert [file.read for file in dataset.manifest.inputs] == rows_of
    assert [file.written + file.rejected for file in dataset.manifest.inputs] == rows_of
