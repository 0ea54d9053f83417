"""The split's hash is pinned: datasets written years apart must agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from schemas.errors import UsageError
from schemas.spec.split_hash import assign_splits, file_split, hash_rows, hash_strings, uneven_splits
from schemas.spec.table import SPLIT, FileSplit, HashSplit
from tests.support.csv_reading import read_bytes, schema_of, table_schema

MASK = (1 << 64) - 1


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_hash_of_version_1_never_changes() -> None:
    assert hash_strings(pa.array([b"", b"Private", "é".encode()], pa.binary())).tolist() == [
        0xB4B2797457A0A6E4,
        0xDE97322BF0818F04,
        0x2F19F3EF8BBF1ACB,
    ]
    assert hash_rows([f32(0, 1, -2.5, np.nan)]).tolist() == [
        0x5357C4EA56B7A0AD,
        0xA9BF043DE39D649D,
        0x240DDC66707A55E5,
        0x4E3763D11AE349F0,
    ]
    matrix = np.array([[0, 1], [1, 0], [np.nan, 3]], np.float32)
    strings = hash_strings(pa.array([b"a", b"b", b""], pa.binary()))
    assert hash_rows([matrix, strings, f32(1, 2, 3)]).tolist() == [
        0xA1DA553B64274C3F,
        0x124317D3D7BA6A6D,
        0xCED8B8FABCB7AF28,
    ]


def test_rows_of_a_wide_matrix_are_hashed_as_each_alone() -> None:
    """Also the only row of its piece, and the last one of a whole number of pieces."""
    for rows in (4096, 4097):
        matrix = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        assert hash_rows([matrix])[[0, -1]].tolist() == hash_rows([matrix[[0, -1]]]).tolist()


def test_minus_zero_and_every_nan_count_as_one() -> None:
    nans = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    assert len(set(hash_rows([nans]).tolist())) == 1
    assert len(set(hash_rows([np.append(nans, f32(1))])[:3].tolist())) == 1  # beside a number, too
    assert len(set(hash_rows([f32(0.0, -0.0)]).tolist())) == 1


@pytest.mark.parametrize(
    ("split", "shares"),
    [
        (HashSplit(), [0.8, 0.1, 0.1]),
        (HashSplit(train=0.5, eval=0.5, test=0.0), [0.5, 0.5, 0]),
        (HashSplit(train=0.7, eval=0.0, test=0.3), [0.7, 0, 0.3]),
    ],
)
def test_rows_fall_into_splits_by_their_shares(split: HashSplit, shares: list[float]) -> None:
    splits = assign_splits(hash_rows([np.arange(100_000, dtype=np.float32)]), split)
    assert splits.dtype == np.int8
    assert np.bincount(splits, minlength=3) / 100_000 == pytest.approx(shares, abs=0.005)
    assert set(splits) == {i for i, share in enumerate(shares) if share}


def test_a_hash_at_a_limit_belongs_to_the_next_split() -> None:
    split = HashSplit(train=0.5, eval=0.25, test=0.25)
    hashes = np.array([0, 2**63 - 1, 2**63, 2**63 + 2**62 - 1, 2**63 + 2**62, MASK], np.uint64)
    assert assign_splits(hashes, split).tolist() == [0, 0, 1, 1, 2, 2]


FEATURES = (
    {"name": "age", "kind": "numeric", "missing": "mean"},
    {"name": "job", "kind": "category", "missing": "none"},
    {"name": "hot", "kind": "one_hot", "columns": ["h1", "h2"]},
    {"name": "flag", "kind": "bool", "missing": False},
    {"name": "person", "kind": "ignore"},
)
ROWS = [
    b"3,Private,0,1,yes,p,a",
    b"3.0, Private ,0,1,TRUE,p, a",
    b"+3e0,Private,0.0,1.0,1,q,A.",
    b"?,?,1,0,?,p,b",
    b" , ,1,0, ,q,b",
]


def splits_of(folder: Path, by: Any) -> list[tuple[int, ...]]:
    schema = schema_of(
        FEATURES,
        label={"name": "y", "kind": "category", "values": ["a", "b"], "aliases": {"A.": "a"}},
        missing=["", "?"],
        split={"by": by, "train": 0.4, "eval": 0.3, "test": 0.3},
    )
    header = b"age,job,h1,h2,flag,person,y\n"
    assignments = []
    for pad in range(40):  # other rows before, in other batches: nothing changes
        rows = b"\n".join(row.replace(b"Private", b"Job%d" % pad).replace(b"p,", b"p%d," % pad) for row in ROWS)
        reading = read_bytes(folder, header + rows, schema, with_split=True, batch_bytes=20)
        assert reading.rejects == []
        assignments.append(tuple(reading.column(SPLIT)))
    return assignments


def test_rows_that_mean_the_same_land_in_the_same_split(tmp_path: Path) -> None:
    assignments = splits_of(tmp_path, "row")
    assert all(a == b == c and d == e for a, b, c, d, e in assignments)
    assert len({row[0] for row in assignments}) == 3


def test_a_split_by_columns_looks_at_nothing_else(tmp_path: Path) -> None:
    assignments = splits_of(tmp_path, ["person"])
    assert all(a == b == d and c == e for a, b, c, d, e in assignments)
    assert len({row[0] for row in assignments}) == 3
    assert len({row[2] for row in assignments}) == 1


BY_FILE = FileSplit(by="file", train="*.data", eval="eval/*", test="adult.test")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/x/adult.csv", "/x/adult.csv: matches none of the patterns under split (train: '*.data', eval: 'eval/*'"),
        ("/x/my_adult.test", "matches none"),
        ("/x/eval/b/a.csv", "matches none"),
        ("/x/eval/a.data", "matches the patterns of train and of eval"),
    ],
)
def test_a_file_of_no_split_or_two_is_refused(path: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        file_split(path, BY_FILE)
    assert message in str(caught.value)


def test_rows_of_a_split_by_file_carry_it(tmp_path: Path) -> None:
    schema = schema_of(split={"by": "file", "train": "*.txt", "test": "*.csv"})
    reading = read_bytes(tmp_path, b"a,b,c\n1,2,3\n1,2\n4,5,6\n", schema, with_split=True)
    assert reading.column(SPLIT) == [2, 2]


SCHEMA = "name: t\nformat: csv\nfeatures: [{name: town, kind: category}]\nlabel: {name: y, kind: category}\nsplit: "
TWO = "{by: row, train: 0.8, eval: 0.2, test: 0}"


@pytest.mark.parametrize(
    ("split", "rows", "uneven"),
    [
        (TWO, {"train": 140, "eval": 160}, True),
        (TWO, {"train": 300}, True),
        (TWO, {"train": 260, "eval": 40}, False),
        (TWO, {"train": 12}, False),
        (TWO, {"train": 79_000, "eval": 21_000}, False),  # more than chance, and little
        (TWO, {}, False),
        ("{by: row}", {"train": 240, "test": 60}, True),
        ('{by: file, train: "a*", eval: "b*"}', {"train": 10, "eval": 990}, False),
    ],
)
def test_sizes_are_uneven_that_chance_does_not_explain(split: str, rows: dict[str, int], uneven: bool) -> None:
    assert (uneven_splits(table_schema(SCHEMA + split), rows) is not None) == uneven


def test_the_cause_is_named() -> None:
    assert uneven_splits(table_schema(SCHEMA + TWO), {"train": 140, "eval": 160}) == (
        "the splits are uneven (rows, and what the schema's shares would give: train 140 for 240, eval 160 for 60), "
        "since rows of equal values are in one split, and few rows are distinct. To divide equal rows, number the rows "
        "in a column of the file, and divide by it: split: {by: [number]}"
    )
    by_town = uneven_splits(table_schema(SCHEMA + "{by: [town]}"), {"train": 300})
    assert "since rows that have the same town are in one split" in str(by_town)
