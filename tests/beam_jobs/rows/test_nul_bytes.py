"""A NUL is a byte like any other, from the file to the vocabularies and the shards; see docs/upstream.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_jobs.preprocess import main
from schemas.dataset import layout, open_dataset
from schemas.dataset.verify import verify_dataset
from tests.support.written_records import examples

SCHEMA = """\
name: nul
format: csv
csv: {columns: [t, k, l], header: none}
features:
  - {name: t, kind: category}
  - {name: k, kind: key}
label: {name: l, kind: category}
split: {by: row, train: 1, eval: 0, test: 0}
"""
PLAIN = b"".join(b"a text of 16 byt,a key of %06d...,a label of 16 by\n" % i for i in range(12_000))
WIDE = b"first te\0in,keyzz,b label of 16 by,b label of 16 by"  # four columns; three for who stops at the NUL
RIGHT = b"text\0A,key\0%d,label\0of 16 by\n"


@pytest.mark.slow
@pytest.mark.parametrize("range_mb", ["0.05", "64"])
def test_a_nul_far_into_a_file_moves_no_field_and_is_kept(tmp_path: Path, range_mb: str) -> None:
    (tmp_path / "schema.yaml").write_text(SCHEMA)
    (tmp_path / "raw.csv").write_bytes(PLAIN + WIDE + b"\n" + b"".join(RIGHT % i for i in range(5)))
    out = str(tmp_path / "out")
    arguments = ["--schema", str(tmp_path / "schema.yaml"), "--input", str(tmp_path / "raw.csv"), "--output", out]
    assert main([*arguments, "--range_mb", range_mb, "--quiet"]) == 0
    dataset = open_dataset(out)
    (counted,) = dataset.manifest.inputs
    assert (counted.read, counted.written, counted.rejected) == (12_006, 12_005, 1)
    (path,) = Path(dataset.run_dir).glob("rejects-*.jsonl")
    reject = json.loads(path.read_text())
    assert (reject["offset"], reject["reason"], reject["raw"]) == (len(PLAIN), "too_many_columns", WIDE.decode())
    rows = [row for row in examples(dataset, "train") if b"\0" in row["k"][0]]
    assert sorted((row["k"], row["t"], row["l"]) for row in rows) == [([b"key\0%d" % i], [1], [1]) for i in range(5)]
    assets = Path(dataset.run_dir) / layout.TRANSFORM_FN / "assets"
    words = {word for file in assets.iterdir() for word in file.read_bytes().split(b"\n")}
    assert {b"text\0A", b"label\0of 16 by"} <= words
    assert verify_dataset(out) == []
