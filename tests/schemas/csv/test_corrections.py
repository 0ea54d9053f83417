"""Records that are brought back corrected come out as the file's own do, without the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from schemas.csv import reader
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.csv.rows import csv_from_manifest, decode_records
from schemas.rows import Decoded
from schemas.spec.table import OFFSET, Schema
from tests.support.csv_reading import schema_of

FEATURES = (
    {"name": "id", "kind": "key"},
    {"name": "age", "kind": "numeric"},
    {"name": "job", "kind": "category", "hash_buckets": 9},
)
LABEL = {"name": "y", "kind": "category", "values": ["no", "yes"]}
SPLIT = {"by": ["id"], "train": 0.5, "eval": 0.5, "test": 0}
LINES = ["k1,39,clerk,no", 'k2,40,"smith, ""B""",yes', "k3,7,Köln,no", "k4,8, ,yes", "k5,old,clerk,no"]
HEADER = "id,age,job,y"


def schema(**csv: object) -> Schema:
    return schema_of(FEATURES, label=LABEL, split=SPLIT, **csv)


def of_file(path: Path, declared: Schema) -> Decoded:
    """The file as the job reads it."""
    (part,) = split_ranges(open_csv(str(path), declared), range_bytes=1 << 20)
    (decoded,) = read_range(part, declared, with_split=True)
    return decoded


def again(path: Path, declared: Schema, raws: list[bytes]) -> Decoded:
    """Records given one by one, at the places 100, 200, ..., after the file is gone."""
    found = open_csv(str(path), declared)
    path.unlink()
    file = csv_from_manifest(str(path), declared, encoding=found.codec, header=found.header)
    return decode_records(file, declared, raws, [100 * (i + 1) for i in range(len(raws))])


@pytest.mark.parametrize("piece_bytes", [1, 40, 1 << 20])
@pytest.mark.parametrize(
    ("header", "lines", "encoding", "csv"),
    [
        (HEADER, LINES, "utf-8", {}),
        ("job,y,id,age", ["clerk,no,k1,39", '"a,b",yes,k2,4'], "utf-8", {}),
        (HEADER, LINES, "latin-1", {"encoding": "latin-1"}),
        (HEADER, LINES, "utf-16", {}),
        (HEADER, [*LINES, 'k6,1,"two\nlines",no', 'k7,2,"cr\r\nlf",yes'], "utf-8", {"quoted_newlines": True}),
        (None, LINES, "utf-8", {"columns": ("id", "age", "job", "y"), "header": "none"}),
        (HEADER.replace(",", ";"), [x.replace(",", ";") for x in LINES], "utf-8", {"delimiter": ";"}),
    ],
    ids=["plain", "reordered", "latin-1", "utf-16", "quoted newlines", "no header", "semicolons"],
)
def test_a_record_read_alone_is_the_same_as_in_its_file(
    tmp_path, monkeypatch, header, lines, encoding, csv, piece_bytes
):
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join([*([header] if header else []), *lines, ""]).encode(encoding))
    declared = schema(**csv)
    expected = of_file(path, declared)
    monkeypatch.setattr(reader, "_PIECE_BYTES", piece_bytes)
    raws = [line.encode("latin-1" if encoding == "latin-1" else "utf-8") for line in lines]
    got = again(path, declared, raws)
    assert expected.read == got.read == len(lines)
    names = [n for n in expected.batch.schema.names if n != OFFSET]
    assert got.batch.select(names).equals(expected.batch.select(names))
    assert [(r.reason, r.column, r.detail) for r in got.rejects] == [
        (r.reason, r.column, r.detail) for r in expected.rejects
    ]
    places = {*np.asarray(got.batch.column(OFFSET)).tolist(), *(r.offset for r in got.rejects)}
    assert places == {100 * (i + 1) for i in range(len(lines))}
    for reject in got.rejects:
        assert reject.raw == raws[reject.offset // 100 - 1]


@pytest.mark.parametrize(
    ("raw", "quoted", "reason"),
    [
        (b"", False, "not_one_record"),
        (b"\r\n", False, "not_one_record"),
        (b"k1,39,clerk,no\nk2,40,clerk,no", False, "not_one_record"),
        (b'k1,39,"two\nlines",no', False, "not_one_record"),
        (b"k1,39,clerk,no\nk2,40,clerk,no", True, "not_one_record"),
        (b'k1,39,"open,no', False, "unterminated_quote"),
        (b'k1,39,"open,no', True, "unterminated_quote"),
        (b"k1,39,cl\rerk,no", False, "stray_carriage_return"),
        (b"k1," + b"9" * 200 + b",clerk,no", False, "record_too_long"),
        (b"k1,39,clerk,no\r\n", False, None),
        (b'\xef\xbb\xbfk1,39,"two\nlines",no', True, None),
    ],
)
def test_bytes_that_are_no_record_or_several_are_rejected_alone(raw, quoted, reason):
    declared = schema(quoted_newlines=quoted)
    file = csv_from_manifest("a.csv", declared, encoding="utf-8", header=tuple(HEADER.split(",")))
    got = decode_records(file, declared, [b"k8,1,a,no", raw, b"k9,2,b,yes"], [5, 6, 7], max_record_bytes=100)
    assert [(r.offset, r.reason, r.raw) for r in got.rejects] == ([(6, reason, raw)] if reason else [])
    assert np.asarray(got.batch.column(OFFSET)).tolist() == ([5, 7] if reason else [5, 6, 7])
    assert got.read == 3
