"""Child processes that decode rows for a local job: the same records as without, and what happens when one ends."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.rows import children
from beam_jobs.rows import groups as groups_module
from beam_jobs.rows.children import (
    MIN_BYTES,
    Children,
    Collected,
    collect_profiles,
    steps_of,
    wait_for,
    workers_by_default,
)
from beam_jobs.rows.groups import Group, Unit, cache_path, decode, grouped, read_cache
from schemas.csv.file import open_csv, split_ranges
from schemas.dataset import OpenDataset
from schemas.errors import MillraceError
from tests.support.csv_reading import table_schema
from tests.support.datasets import BAD, BROKEN, FEW, FEW_HEADER, FEW_ROWS, Folder, rejects_of, written
from tests.support.people import people_csv
from tests.support.processes import until
from tests.support.written_records import examples

RANGE_BYTES = 200
ROWS = "\n".join([FEW_HEADER, *BAD, *FEW_ROWS]) + "\n"


def groups_of(path: Path, text: str = ROWS) -> list[Group]:
    path.write_text(text)
    return list(grouped(split_ranges(open_csv(str(path), table_schema(FEW)), range_bytes=RANGE_BYTES), group_bytes=500))


EVERY = Collected(statistics=True, leakage=True)


@contextlib.contextmanager
def started(groups: list[Group], folder: Path, *, children: int = 1, units: Sequence[Unit] = ()) -> Iterator[Children]:
    folder.mkdir(exist_ok=True)
    steps = steps_of(groups, units, EVERY, str(folder))
    with contextlib.closing(Children(table_schema(FEW), steps, str(folder), children=children)) as workers:
        yield workers


def idle(workers: Children) -> bool:
    """Whether nothing is left to do."""
    return not workers._todo and not workers._busy


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_children_cache_what_the_parent_would_decode(tmp_path: Path) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    assert len(groups) == 5
    with started(groups, tmp_path / "cache", children=2) as workers:
        assert len(workers.pids) == 2
        until(lambda: idle(workers), "all groups are decoded")
        for group in groups:
            wait_for(str(tmp_path / "cache"), group)
    for group in groups:
        again = list(read_cache(cache_path(str(tmp_path / "cache"), group)))
        assert again == list(decode(group, table_schema(FEW), digests=True))
    assert len(os.listdir(tmp_path / "cache")) == len(groups)


def test_what_a_child_cannot_decode_is_left_to_the_parent_and_its_message(tmp_path: Path) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    (tmp_path / "rows.csv").write_text(ROWS + "more\n")
    with started(groups, tmp_path / "cache") as workers:
        until(lambda: idle(workers), "the child has tried all groups")
        wait_for(str(tmp_path / "cache"), groups[0])
    assert not list(tmp_path.glob("cache/*"))
    with pytest.raises(MillraceError, match=r"rows\.csv.*changed"):
        list(decode(groups[0], table_schema(FEW), digests=False))


def test_a_file_that_cannot_be_cut_is_left_to_the_parent(tmp_path: Path) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    groups: list[Group] = [
        tuple(split_ranges(open_csv(str(tmp_path / "rows.csv.gz"), table_schema(FEW)), range_bytes=RANGE_BYTES))
    ]
    assert list(steps_of(groups, (), EVERY, str(tmp_path / "cache"))) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_child_that_is_killed_is_an_error_with_a_remedy(tmp_path: Path, number: signal.Signals) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    with started(groups, tmp_path / "cache") as workers:
        (pid,) = workers.pids
        os.kill(pid, signal.SIGSTOP)  # so that it has not done all steps when it is killed
        os.kill(pid, number)
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(MillraceError) as error:  # also where the parent has begun the group itself
            until(lambda: wait_for(str(tmp_path / "cache"), groups[-1]), "the error")
    assert f"process {pid}, which worked for this job, was killed by {number.name}" in str(error.value)
    assert ("memory ran out" in str(error.value)) == (number == signal.SIGKILL)
    assert "Give --workers 1" in str(error.value)


def test_the_parent_decodes_and_observes_while_it_waits_for_a_child(tmp_path: Path) -> None:
    """A child that hangs at the first step does not keep the others from being done."""
    groups = groups_of(tmp_path / "rows.csv")
    folder, units = tmp_path / "cache", [(group,) for group in groups]
    with started(groups, folder, units=units) as workers:
        os.kill(workers.pids[0], signal.SIGSTOP)
        until(lambda: cache_path(str(folder), groups[0]) in workers._busy, "the child is given the first group")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(wait_for, str(folder), groups[0])
            until(lambda: len(list(folder.glob("decoded-*.arrow"))) == len(groups) - 1, "the parent decodes the others")
            assert not waiting.done()
            os.kill(workers.pids[0], signal.SIGCONT)
            waiting.result(timeout=600)
        together = collect_profiles(table_schema(FEW), str(folder), units, EVERY, [])
    with started([], folder, children=0):
        again = collect_profiles(table_schema(FEW), str(folder), units, EVERY, [])
    assert together is not None
    assert again is not None
    assert together.statistics is not None
    assert again.statistics is not None
    assert together.statistics.to_bytes() == again.statistics.to_bytes()
    assert sum(again.statistics.rows.values()) == len(FEW_ROWS) + len(BAD) - len(BROKEN)
    assert not list(folder.glob("observed-*"))


def test_a_child_that_cannot_write_profiles_leaves_them_to_the_parent(tmp_path: Path) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    folder, units = tmp_path / "cache", [(group,) for group in groups]
    for number in range(len(units)):
        (folder / f"observed-{number}").mkdir(parents=True)
    with started(groups, folder, children=2, units=units) as workers:
        until(lambda: idle(workers), "the children have tried all units")
        here = collect_profiles(table_schema(FEW), str(folder), units, EVERY, [])
        assert here is not None
        assert here.statistics is not None
        assert sum(here.statistics.rows.values()) == len(FEW_ROWS) + len(BAD) - len(BROKEN)


def test_closing_ends_a_child_that_does_not_answer(tmp_path: Path) -> None:
    with started(groups_of(tmp_path / "rows.csv"), tmp_path / "cache") as workers:
        os.kill(workers.pids[0], signal.SIGSTOP)
    assert gone(workers.pids[0])


def late(folder: Path) -> list[str]:
    """Rows whose labels the train split lacks, a good many, and a unit in which all rows are rejected."""
    rows = [row.replace("yes", f"only{i}") if i % 3 == 2 else row for i, row in enumerate(FEW_ROWS)]
    (folder / "a.csv").write_text("\n".join([FEW_HEADER, *(20 * [BAD[3]]), *rows, *BAD, *rows]) + "\n")
    return ["a.csv"]


def mixed(folder: Path) -> list[str]:
    (folder / "a.csv").write_text(ROWS)
    (folder / "b.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    (folder / "c.csv").write_bytes(ROWS.encode("utf-16"))
    (folder / "none.csv").write_text(FEW_HEADER + "\n")
    (folder / "without_end.csv").write_text(ROWS.rstrip("\n"))
    return ["*.csv", "*.gz"]


UNMEASURED = FEW.replace("transform: z_score", "transform: none").replace(
    "kind: category}", 'kind: category, values: ["no", "yes"]}'
)


def account(dataset: OpenDataset) -> tuple[Any, ...]:
    """All that a job has found: the records in their order, the counts, the digests of the inputs, the rejects."""
    manifest, run = dataset.manifest, Path(dataset.run_dir)
    shards = {split: [shard.rows for shard in content.shards] for split, content in manifest.splits.items()}
    stored = {split: examples(dataset, split) for split in dataset.splits}
    rejects = sorted((r.source, r.offset, r.stage, r.reason, r.raw) for r in rejects_of(dataset))
    statistics = json.loads((run / "statistics.json").read_text())
    return shards, stored, rejects, manifest.outcomes, manifest.inputs, statistics, (run / "leakage.json").read_text()


@pytest.mark.parametrize(
    ("inputs", "schema"),
    [(late, FEW), (mixed, UNMEASURED)],
    ids=["late rejects", "mixed files, read once"],
)
def test_records_counts_rejects_and_statistics_do_not_depend_on_the_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs, schema
) -> None:
    monkeypatch.setattr(groups_module, "UNIT_BYTES", 2 * RANGE_BYTES)
    (tmp_path / "raw").mkdir()
    patterns = [str(tmp_path / "raw" / name) for name in inputs(tmp_path / "raw")]
    accounts = {}
    for workers in (1, 3):
        changes = {"workers": workers, "range_mb": RANGE_BYTES / 2**20, "max_reject_fraction": 1.0}
        dataset = written(tmp_path, schema, *patterns, output=str(tmp_path / f"out{workers}"), **changes)
        accounts[workers] = account(dataset)
    assert accounts[1] == accounts[3]
    if inputs is late:
        assert any(reason == "label_not_in_vocabulary" for *_, reason, _ in accounts[1][2]) == (schema == FEW)


GB = 1 << 30


@pytest.mark.parametrize(
    ("size", "cores", "memory", "expected"),
    [
        (MIN_BYTES - 1, 8, 64, 1),
        (MIN_BYTES, 1, 64, 1),
        (MIN_BYTES, 2, 64, 2),
        (MIN_BYTES, 3, 64, 3),
        (1 << 40, 64, 64, 8),
        (1 << 40, 64, 3, 2),
        (1 << 40, 64, 2, 1),
    ],
)
def test_the_workers_by_default(
    monkeypatch: pytest.MonkeyPatch, size: int, cores: int, memory: int, expected: int
) -> None:
    monkeypatch.setattr(children, "usable_cores", lambda: cores)
    monkeypatch.setattr(children, "available_memory", lambda: memory * GB)
    assert workers_by_default(size) == expected


def test_workers_that_cannot_be_used_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path)
    folder.job(FEW, folder.write("rows.csv.gz", [FEW_HEADER, *FEW_ROWS]), workers=3, quiet=False)
    note = "note: --workers 3: one process does it all, as with images, output in a bucket, and input in buckets, "
    assert note in capsys.readouterr().err


def children_of(pid: int) -> list[int]:
    """The decoding processes of a job."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                pids += [int(folder.name)] if b"serve_parent" in (folder / "cmdline").read_bytes() else []
    return pids


SMALL_UNITS = """
import sys
from beam_jobs.rows import groups
groups.UNIT_BYTES = 200_000
from beam_jobs.preprocess import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ended", "step"),
    [
        ("child", "observing"),
        ("killed", "decoding"),
    ],
)
def test_no_process_outlives_the_job_and_nothing_is_committed(measured: Folder, ended: str, step: str) -> None:
    header, rows = people_csv(500).split("\n", 1)
    measured.raw.write_text(header + "\n" + 150 * rows)
    argv = measured.argv("--range_mb", "0.05", "--workers", "3")
    job = subprocess.Popen([sys.executable, "-c", SMALL_UNITS, *argv], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(children_of(job.pid)) == 2, "the children are there")
        pids = children_of(job.pid)
        if step == "observing":
            until(lambda: any(measured.output.glob("*/*/*/observed-*")), "a unit is observed")
        os.kill(pids[0] if ended == "child" else job.pid, signal.SIGKILL)
        _, printed = job.communicate(timeout=300)
    finally:
        job.kill()
    until(lambda: all(map(gone, pids)), "the children end")
    assert job.returncode == {"child": 1, "killed": -9}[ended], printed
    if ended == "child":
        assert f"process {pids[0]}, which worked for this job, was killed by SIGKILL" in printed
    assert "Traceback" not in printed
    if job.returncode > 0:
        assert list(measured.output.iterdir()) == []
