"""Raw files read for a comparison: which column is which, with a header and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_jobs.raw_files import read_rows
from schemas.comparison import compare
from schemas.errors import UsageError
from schemas.spec.loader import parse_schema

POSITIONAL = b"""\
name: parcels
format: csv
csv: {header: none, num_columns: 4}
features:
  - {name: size, columns: [0, 1], kind: numeric}
  - {name: city, column: 3, kind: category}
label: {name: late, column: 2, kind: category, values: ["0", "1"]}
"""

NUMBERED = b"""\
name: numbered
format: csv
csv: {header: none, columns: ["0", "1", "2"]}
features:
  - {name: first, column: "0", kind: numeric}
  - {name: second, column: "1", kind: numeric}
label: {name: late, column: "2", kind: category, values: ["0", "2"]}
"""


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("1,2,0,a\n3,4,1,b\n", ()),
        ("1,2,a\n3,4,b\n", ("late",)),
        ("id,city,size[1],size[0],prediction\n7,a,2,1,0\n8,b,4,3,1\n", ("late",)),
        ('"size.0","size.1","city","_id","_prediction"\n1,2,"a","r1","0"\n3,4,"b","r2","1"\n', ("late",)),
    ],
)
def test_columns_by_their_places(tmp_path: Path, text: str, lacks: tuple[str, ...]) -> None:
    (tmp_path / "raw.csv").write_text(text)
    schema = parse_schema(POSITIONAL, "s.yaml")
    found = read_rows([str(tmp_path / "raw.csv")], schema, max_input_ratio=100)  # type: ignore[arg-type]
    assert (found.read, found.lacks, found.rejected) == (2, lacks, {})
    assert found.sample is not None
    assert [column.values.count for column in found.sample.columns.values()] == [2] * (4 - len(lacks))
    same = read_rows([str(tmp_path / "raw.csv")], schema, max_input_ratio=100)  # type: ignore[arg-type]
    assert same.sample is not None
    assert not compare(found.sample, same.sample).drifted


def test_numbers_are_no_header_also_if_columns_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text("1,0,2\n0,1,2\n1,1,0\n")
    found = read_rows([str(tmp_path / "raw.csv")], parse_schema(NUMBERED, "s.yaml"), max_input_ratio=100)  # type: ignore[arg-type]
    assert (found.read, found.lacks, found.rejected) == (3, (), {})


def test_a_header_of_a_file_of_positions_that_lacks_a_column(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text("size.0,size.2,city,_id\n1,2,a,7\n")
    with pytest.raises(UsageError, match=r"raw\.csv: the header lacks 'size\[1\]', which the dataset's features read"):
        read_rows([str(tmp_path / "raw.csv")], parse_schema(POSITIONAL, "s.yaml"), max_input_ratio=100)  # type: ignore[arg-type]


def test_a_sample_is_from_all_over_the_file(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("".join(f"{i},{i % 7},0,a\n" for i in range(300_000)))
    found = read_rows([str(raw)], parse_schema(POSITIONAL, "s.yaml"), max_input_ratio=100, sample=50_000)  # type: ignore[arg-type]
    assert not found.complete
    assert 50_000 <= found.read < 100_000
    assert found.sample is not None
    assert found.sample.columns["size[0]"].values.high > 150_000  # type: ignore[union-attr]
