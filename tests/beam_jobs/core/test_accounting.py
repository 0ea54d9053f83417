"""read = written + rejected, whatever happens: a part that loses, merges or doubles records fails the job."""

from __future__ import annotations

import dataclasses
import gzip
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_jobs.core.options import JobOptions
from beam_jobs.core.shuffle_plan import ShardOptions, ShufflePlan
from beam_jobs.preprocess import main
from beam_jobs.records import encode
from beam_jobs.runs import write
from schemas.csv import lines, reader
from schemas.csv import parse as csv_parse
from schemas.csv.file import split_ranges
from schemas.csv.rows import CsvRows
from schemas.dataset import OpenDataset, layout
from tests.support.datasets import Folder, folder_of_people
from tests.support.people import MEASURED_SCHEMA, people_csv, people_row
from tests.support.written_records import records

BAD = [
    'stray,"quote',
    "too,few",
    people_row(5).replace(",yes", ",perhaps").replace(",no", ",perhaps"),
    people_row(6).replace("k6,", "k6,x"),
]


Fails = Callable[[], str]


@pytest.fixture
def fails(people: Folder, people_once: Folder, capsys: pytest.CaptureFixture[str]) -> Fails:
    """What the command says when it fails; nothing may have been committed.

    It is quickest with a transform that is there: none of it is about the transform.
    """

    def run() -> str:
        assert main(people.argv("--transform_from", str(people_once.output), "--quiet")) == 1
        assert not (people.output / layout.MANIFEST).exists()
        assert not list(people.output.glob("*/*.tfrecord"))
        return capsys.readouterr().err

    return run


def without_last(column: pa.Array) -> pa.Array:
    return column.slice(0, len(column) - 1)


def merged(column: pa.Array) -> pa.Array:
    """Joins the last two lines, as an unclosed quote would."""
    return pa.concat_arrays([column.slice(0, len(column) - 2), column.slice(len(column) - 1)])


def doubled(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column.slice(len(column) - 1)])


@pytest.mark.parametrize(
    ("lie", "quoted_newlines"), [(without_last, False), (doubled, False), (merged, False), (merged, True)]
)
def test_columns_that_lose_merge_or_double_lines_fail_the_job(people, fails, monkeypatch, lie, quoted_newlines):
    if quoted_newlines:
        people.schema.write_text(people.schema.read_text().replace("csv: {", "csv: {quoted_newlines: true, "))
    take = lines.take_columns
    monkeypatch.setattr(csv_parse, "take_columns", lambda *args: {p: lie(c) for p, c in take(*args).items()})
    assert "this is a bug in the reader; no rows were used" in fails()


@pytest.mark.parametrize("fault", ["a row is dropped", "a reject is forgotten"])
def test_a_parser_that_loses_a_record_fails_the_job(people, fails, monkeypatch, fault):
    people.raw.write_text(people_csv(500) + "too,few\n")
    parse = csv_parse.parse_records

    def lie(*args: Any, **options: Any) -> csv_parse.Parsed:
        parsed = parse(*args, **options)
        if fault == "a reject is forgotten":
            return dataclasses.replace(parsed, bad=[])
        columns = {place: column.slice(0, len(column) - 1) for place, column in parsed.columns.items()}
        return dataclasses.replace(parsed, columns=columns, rows=parsed.rows[:-1])

    monkeypatch.setattr(reader, "parse_records", lie)
    message = fails()
    assert "501 records near byte" in message
    counts = "500 rows and 0 rejects" if fault == "a reject is forgotten" else "499 rows and 1 rejects"
    assert f"but {counts}; this is a bug in the reader" in message


def test_a_row_that_is_lost_behind_the_parser_fails_the_job(people, fails, monkeypatch):
    process = encode.EncodeExamples.process
    monkeypatch.setattr(encode.EncodeExamples, "process", lambda self, batch: process(self, batch.slice(1)))
    assert f"{people.raw}: 500 records read, 499 written and 0 rejected: 1 unaccounted for" in fails()


def test_a_record_that_is_lost_in_the_shuffle_fails_the_job(people, fails, monkeypatch):
    encoded = encode.Encoded

    def lossy(frames: pa.LargeBinaryArray, splits: Any, *place: int) -> encode.Encoded:
        return encoded(frames[1:], splits[1:], *place)

    monkeypatch.setattr(encode, "Encoded", lossy)
    assert "499 records in the shards, 500 encoded" in fails()


@pytest.mark.parametrize("fault", [lambda parts: parts[:-1], lambda parts: [*parts, parts[-1]]], ids=["lost", "twice"])
def test_a_range_read_never_or_twice_fails_the_job(people, fails, monkeypatch, fault):
    split = split_ranges
    monkeypatch.setattr(CsvRows, "plan_ranges", lambda _, file, range_bytes: fault(split(file, range_bytes=5000)))
    assert "bytes, images or pairs were processed: some were skipped or read twice" in fails()


def account(dataset: OpenDataset) -> dict[str, Any]:
    """What a dataset says of its input, without what depends on when and how it was written."""
    manifest = dataset.manifest
    for file in manifest.inputs:
        of_file = [c for c in manifest.counts if c.input == file.path]
        assert file.read == file.written + file.rejected
        assert file.written == sum(c.rows for c in of_file if c.outcome == "written")
        assert file.rejected == sum(c.rows for c in of_file if c.outcome == "rejected")
    rejects = Counter(
        line for path in Path(dataset.run_dir).glob("rejects-*.jsonl") for line in path.read_text().splitlines()
    )
    by_outcome = Counter((c.input, c.stage, c.reason) for c in manifest.counts for _ in range(c.rows) if c.reason)
    reject_counts = Counter((r["source"], r["stage"], r["reason"]) for r in map(json.loads, rejects.elements()))
    assert by_outcome == reject_counts
    return {
        "records": {split: records(dataset, split) for split in dataset.splits},
        "rejects": rejects,
        "counts": sorted(c.model_dump_json() for c in manifest.counts),
        "inputs": manifest.inputs,
    }


@dataclasses.dataclass(frozen=True)
class Shaken:
    """A job, and the result of its first run."""

    people: Folder
    account: dict[str, Any] = dataclasses.field(repr=False)


@pytest.fixture(scope="module")
def shaken(tmp_path_factory: pytest.TempPathFactory) -> Shaken:
    """Three files, one of them gzip'd, with some bad rows, and the result of the first run."""
    people = folder_of_people(tmp_path_factory.mktemp("shaken"), MEASURED_SCHEMA)
    rows = people_csv(250).splitlines()
    for i in range(10):
        rows.insert(10 + 20 * i, BAD[i % len(BAD)])
    header, body = rows[0], rows[1:]
    people.raw.unlink()
    for name, part in (("a.csv", body[:100]), ("b.csv", body[100:150])):
        (people.path / name).write_text("\r\n".join([header, *part]))
    (people.path / "c.csv.gz").write_bytes(gzip.compress("\n".join([header, *body[150:]]).encode()))
    first = account(people.run(input=(str(people.path / "[abc].csv*"),)))
    assert sum(first["rejects"].values()) == 10
    assert len(first["inputs"]) == 3
    return Shaken(people, first)


@pytest.mark.slow
@settings(max_examples=3, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    range_bytes=st.sampled_from([1000, 1777, 9000, 1 << 20]),
    num_shards=st.sampled_from([None, 1, 3, 40]),
    threads=st.integers(1, 4),
    seed=st.integers(0, 9),
    batch_bytes=st.sampled_from([300, 8 << 20]),
    shuffle=st.sampled_from(["local files", "by value", "by file"]),
)
def test_records_and_rejects_are_the_same_for_every_way_to_do_the_work(
    shaken, range_bytes, num_shards, threads, seed, batch_bytes, shuffle
):
    plan_shards = write.plan_shards

    def by_either_shuffle(options: JobOptions, *args: Any) -> ShardOptions:
        """A cluster's shuffle has to know the number of shards in advance."""
        planned = plan_shards(options, *args)
        counts = (num_shards or 2, 1, 2)
        plan = ShufflePlan(buckets=counts, seed=seed)
        spills = planned.staging if shuffle == "by file" else None
        cluster = dataclasses.replace(planned, plan=plan, num_shards=counts, fragments=None, spills=spills)
        return planned if shuffle == "local files" else cluster

    defaults = {**(reader.read_range.__kwdefaults__ or {}), "batch_bytes": batch_bytes}
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(write, "plan_shards", by_either_shuffle),
        mock.patch.object(reader.read_range, "__kwdefaults__", defaults),
    ):
        dataset = shaken.people.run(
            input=(str(shaken.people.path / "[abc].csv*"),),
            output=f"{folder}/out",
            range_mb=range_bytes / 2**20,
            num_shards=num_shards,
            seed=seed,
            beam_args=("--direct_num_workers", str(threads), "--direct_running_mode", "multi_threading"),
        )
        assert account(dataset) == shaken.account


@pytest.mark.parametrize(("fraction", "code"), [(0.2, 0), (0.19, 1)])
def test_the_fraction_of_rejects_is_of_the_records_that_were_read(people, people_once, capsys, fraction, code):
    rows = people_csv(60).splitlines()
    rows[1:13] = ["too,few"] * 12
    people.raw.write_text("\n".join(rows) + "\n")
    flags = ("--transform_from", str(people_once.output), "--quiet", "--max_rejects", "0")
    assert main(people.argv(*flags, "--max_reject_fraction", str(fraction))) == code
    assert (people.output / layout.MANIFEST).exists() == (code == 0)
    if code:
        assert "rejected 12 of 60 records, which is more than" in capsys.readouterr().err
