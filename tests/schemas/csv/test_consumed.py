"""Batches say how much of their file has been read, in bytes as the file is stored, whatever its encoding."""

from __future__ import annotations

import gzip
import random

import pytest

from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from tests.support.csv_reading import schema_of

ROWS = 20_000
TEXT = "a,b,c\n" + "".join(f"{random.Random(i).random()},some text {i},c{i % 3}\n" for i in range(ROWS))


@pytest.mark.parametrize(
    ("data", "options"),
    [
        (TEXT.encode(), {}),
        (TEXT.encode(), {"quoted_newlines": True}),
        (gzip.compress(TEXT.encode()), {}),
        (TEXT.encode("utf-16"), {"encoding": "utf-16"}),
        (TEXT.replace("\n", "\r").encode(), {}),
    ],
    ids=["plain", "quoted newlines", "gzip", "utf-16", "carriage returns"],
)
@pytest.mark.parametrize("range_bytes", [1 << 30, 300_000])
def test_what_is_consumed_grows_to_the_size_of_the_range(tmp_path, data, options, range_bytes) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(data)
    schema = schema_of(**options)
    file = open_csv(str(path), schema)
    rows = 0
    for part in split_ranges(file, range_bytes=range_bytes):
        batches = list(read_range(part, schema, batch_bytes=50_000))
        consumed = [batch.consumed for batch in batches]
        assert consumed == sorted(consumed)
        assert consumed[0] < consumed[-1]
        assert part.covers <= consumed[-1] < part.covers + (1 << 16) + 2  # with the rest of the range's last line
        rows += sum(batch.batch.num_rows for batch in batches)
    assert rows == ROWS
