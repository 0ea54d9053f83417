"""What the first read decoded comes back as it was, or not at all."""

from __future__ import annotations

import os
import resource

import pyarrow as pa
import pytest

from beam_jobs.rows.read import cache_path, read_cache, write_through
from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.rows import Decoded
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema
from tests.support.people import LEAN_SCHEMA, make_job, people_csv


@pytest.fixture
def decoded(tmp_path):
    """Three batches of people, one of them with a reject whose bytes are no UTF-8."""
    job = make_job(tmp_path, LEAN_SCHEMA)
    job.raw.write_bytes(people_csv(300).encode() + b"\xff\xfe,too short\n")
    schema = load_schema(str(job.schema))
    assert isinstance(schema, Schema)
    (part,) = split_ranges(open_csv(str(job.raw), schema), range_bytes=1 << 20)
    found = list(read_range(part, schema, batch_bytes=8000, with_split=True))
    assert len(found) > 2
    assert [r.raw for d in found for r in d.rejects] == [b"\xff\xfe,too short"]
    return found


def same(a: Decoded, b: Decoded) -> bool:
    rows = [repr((batch.schema, batch.to_pylist())) for batch in (a.batch, b.batch)]  # NaN equals nothing
    return rows[0] == rows[1] and (a.rejects, a.read) == (b.rejects, b.read)


def test_batches_rejects_and_counts_are_read_back(tmp_path, decoded):
    path = str(tmp_path / "made" / "kept.arrow")
    in_group = list(zip([0, 2, *[3] * (len(decoded) - 2)], decoded, strict=True))
    assert list(write_through(path, iter(in_group))) == in_group
    for (place, found), (expected_place, expected) in zip(read_cache(path), in_group, strict=True):
        assert place == expected_place
        assert same(found, expected)
    assert os.listdir(tmp_path / "made") == ["kept.arrow"]


def test_ranges_have_different_cache_files(tmp_path):
    job = make_job(tmp_path, LEAN_SCHEMA)
    schema = load_schema(str(job.schema))
    assert isinstance(schema, Schema)
    parts = split_ranges(open_csv(str(job.raw), schema), range_bytes=5000)
    groups = [*((part,) for part in parts), tuple(parts), tuple(parts[:2])]
    assert len({cache_path("folder", group) for group in groups}) == len(groups) > 3


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_read_that_ends_early_keeps_nothing(tmp_path, decoded, taken):
    path = str(tmp_path / "made" / "kept.arrow")
    items = write_through(path, ((0, item) for item in decoded))
    for _ in range(taken):
        next(items)
    items.close()
    assert taken == 0 or os.listdir(tmp_path / "made") == []


def test_a_read_that_fails_keeps_nothing(tmp_path, decoded):
    def failing():
        yield 0, decoded[0]
        raise ValueError("the file has changed")

    path = str(tmp_path / "kept.arrow")
    with pytest.raises(ValueError, match="has changed"):
        list(write_through(path, failing()))
    with pytest.raises(FileNotFoundError):
        list(read_cache(path))


def test_a_file_that_was_cut_is_no_shorter_file(tmp_path, decoded):
    path = tmp_path / "kept.arrow"
    list(write_through(str(path), ((0, item) for item in decoded)))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(pa.ArrowInvalid):
        list(read_cache(str(path)))


@pytest.mark.parametrize("room", [0, 100, 10_000])
def test_a_full_disk_ends_the_keeping_and_not_the_read(tmp_path, decoded, room):
    path = str(tmp_path / "made" / "kept.arrow")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limit[1]))  # what is beyond cannot be written, as on a full disk
    try:
        read = write_through(path, ((0, item) for item in decoded))
        begun = [next(read) for _ in decoded]
        assert os.listdir(tmp_path / "made") == []  # its room is given back at once
        assert [item for _, item in [*begun, *read]] == decoded
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert os.listdir(tmp_path / "made") == []
