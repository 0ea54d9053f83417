"""Work that is measured in processes of its own, and what becomes of a run in which some of it fails."""

from __future__ import annotations

import dataclasses
import multiprocessing

import numpy as np
import pytest

from benchmarks import (
    bench,
    everything,
    machine,
    rounds,
)
from benchmarks.contests import (
    OURS,
    Contest,
    Entry,
)
from benchmarks.measure import WorkFailed, measure
from benchmarks.sources import QUICK, Sources
from benchmarks.task import Task
from benchmarks.worker import cpu_seconds
from tests.support.measured_work import burn

HANG_SECONDS = 300
SMALL = dataclasses.replace(QUICK, covertype=200, tiny=100)


def test_a_measurement_is_of_its_own_process(tmp_path):
    ballast = np.ones(300 << 20, np.uint8)  # what this process holds is not counted
    found = measure("tests.support.measured_work:write", Task(source="", output=str(tmp_path), rows=7))
    assert (tmp_path / "done").exists()
    assert found.count == 7
    assert found.whole_seconds >= found.seconds > 0
    assert found.whole_cpu >= found.cpu
    assert 100 << 20 < (found.peak_bytes or 0) < len(ballast) + (100 << 20)


def test_work_that_fails_says_why(tmp_path):
    with pytest.raises(WorkFailed, match=r"the disk is full"):
        measure("tests.support.measured_work:fail", Task(source="", output=str(tmp_path)))


def test_work_that_hangs_is_killed(tmp_path):
    with pytest.raises(WorkFailed, match=r"not done after 2 s"):
        measure("tests.support.measured_work:hang", Task(source="", output=str(tmp_path)), limit=2)


def contest_of(name: str, *does: str, source: str = "covertype_tiny") -> Contest:
    own = Entry(name=OURS, does="tests.support.measured_work:write", source="covertype_tiny")
    others = (Entry(name=way, does=f"tests.support.measured_work:{way}", source=source) for way in does)
    return Contest(name=name, title=name, kind="write", unit="rows", entries=(own, *others), quick=True)


def test_a_way_that_fails_leaves_the_others_and_is_listed_at_the_end(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(machine, "PACKAGES", ())  # they are the rivals'
    first = contest_of("startup", "fail")  # whose output is not read back
    monkeypatch.setattr(bench, "CONTESTS", (first, dataclasses.replace(first, entries=first.entries[:1])))
    assert bench.main(["--quick", "--rounds", "2", "--work", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out.count(f"of 2: {OURS}: ") == 4
    assert out.count("of 2: fail: FAILED") == 1
    assert "contest 2 of 2" in out
    listed = err.splitlines()
    assert listed[0] == "benchmarks.bench: failed (1):"
    assert listed[1].startswith("startup: fail: tests.support.measured_work:fail: exit status 1")
    assert "the disk is full" in err


def test_every_part_runs_and_what_failed_is_listed_at_the_end(monkeypatch, capfd):
    parts = (("json.tool", "/nowhere.json"), ("this",))
    monkeypatch.setattr(everything, "PARTS", parts)
    assert everything.main() == 1
    out, err = capfd.readouterr()
    assert "part 2 of 2: python -m this" in out
    assert "Beautiful is better than ugly" in out
    assert err.startswith("failed: python -m json.tool /nowhere.json: exit status")
    assert "python -m this" not in err
    monkeypatch.setattr(everything, "PARTS", parts[1:])
    assert everything.main() == 0


def test_a_way_without_its_input_leaves_the_others(tmp_path):
    ready, (failure,) = rounds.prepare(contest_of("any", "fail", source="nothing"), Sources(str(tmp_path), SMALL))
    assert [entry.name for entry in ready] == [OURS]
    assert (failure.contest, failure.way) == ("any", "fail")
    assert "its input, nothing" in failure.why


def test_a_command_may_stand_before_each_measurement(tmp_path):
    measure("tests.support.measured_work:write", Task(source="", output=str(tmp_path)), under=("env", "X=1"))


@pytest.mark.slow
def test_processes_read_each_shard_once(tmp_path):
    for i in range(5):
        (tmp_path / f"{i}.tar").touch()
    task = Task(source=str(tmp_path), batch_size=8, rows=40)
    found = measure("tests.support.measured_work:read_shards", task)
    assert found.classes == {str(i): 8 for i in range(5)}
    found = measure("tests.support.measured_work:read_shards", dataclasses.replace(task, epochs=0, seconds=1.0))
    assert found.count > 0
    assert found.whole_cpu >= found.cpu


def test_the_cpu_of_a_process_is_counted_while_it_runs():
    """It has used half a second by its own account, however long that took; this one only waits."""
    told, tells = multiprocessing.Pipe(duplex=False)
    before = cpu_seconds()
    process = multiprocessing.get_context("spawn").Process(target=burn, args=(tells, 0.5))
    process.start()
    try:
        assert told.poll(HANG_SECONDS)
        assert process.is_alive()
        assert cpu_seconds() - before >= 0.4
    finally:
        process.kill()
        process.join()


def test_a_process_that_fails_fails_the_reading(tmp_path):
    (tmp_path / "0.tar").touch()
    with pytest.raises(WorkFailed, match=r"ended with 1"):
        measure("tests.support.measured_work:read_badly", Task(source=str(tmp_path)))
