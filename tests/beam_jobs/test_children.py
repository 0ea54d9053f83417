"""Child processes that decode rows for a local job: the same records as without, also when one ends."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.rows import children
from beam_jobs.rows import groups as groups_module
from beam_jobs.rows.cache import cache_path, claim, claimed, read_cache
from beam_jobs.rows.children import MIN_BYTES, Children, SharedWork, workers_by_default
from beam_jobs.rows.groups import Group, Unit, decode, grouped
from schemas.csv.file import open_csv, split_ranges
from schemas.dataset import OpenDataset
from schemas.profile.columns import columns_of
from schemas.profile.leakage import watched_rows
from schemas.profile.profiles import Profiles
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "cache"
    path.mkdir()
    return path


def shared(groups: Sequence[Group], folder: Path, *, units: Sequence[Unit] = ()) -> SharedWork:
    schema = table_schema(FEW)
    return SharedWork(schema, str(folder), tuple(groups), tuple(units), columns_of(schema), watched_rows(schema))


@contextlib.contextmanager
def started(work: SharedWork, *, children: int = 1) -> Iterator[Children]:
    with contextlib.closing(Children(work, children=children)) as workers:
        yield workers


def cached(folder: Path) -> int:
    return len(list(folder.glob("decoded-*.arrow")))


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet has, too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_children_cache_what_the_parent_would_decode(tmp_path: Path, folder: Path) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    assert len(groups) == 5
    with started(shared(groups, folder), children=2) as workers:
        assert len(workers.pids) == 2
        until(lambda: all(map(gone, workers.pids)), "the children have done it all")
    for group in groups:
        again = list(read_cache(cache_path(str(folder), group)))
        assert again == list(decode(group, table_schema(FEW), digests=True))
    assert cached(folder) == len(groups)


def test_what_a_child_cannot_do_is_left_to_the_parent(tmp_path: Path, folder: Path) -> None:
    """A group that has changed has no cache; the profiles of a unit cannot be written in the place of a folder."""
    groups = groups_of(tmp_path / "rows.csv")
    work = shared(groups, folder, units=[(group,) for group in groups])
    for number in range(len(groups)):
        Path(work.profile_path(number)).mkdir()
    with started(work) as workers:
        until(lambda: gone(workers.pids[0]), "the child has tried all steps")
    assert cached(folder) == len(groups)
    assert sum(rows_of(work.observe_all([])).values()) == len(FEW_ROWS) + len(BAD) - len(BROKEN)
    (tmp_path / "rows.csv").write_text(ROWS + "more\n")
    (tmp_path / "empty").mkdir()
    with started(shared(groups, tmp_path / "empty")) as workers:
        until(lambda: gone(workers.pids[0]), "the child has tried all groups")
    assert not cached(tmp_path / "empty")


def rows_of(profiles: Profiles) -> dict[str, int]:
    assert profiles.statistics is not None
    return profiles.statistics.rows


def test_a_file_that_cannot_be_cut_is_left_to_the_parent(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
    file = open_csv(str(tmp_path / "rows.csv.gz"), table_schema(FEW))
    assert shared([tuple(split_ranges(file, range_bytes=RANGE_BYTES))], folder).divisible() == []


def test_a_step_is_left_to_the_worker_that_has_claimed_it(tmp_path: Path, folder: Path) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    path = cache_path(str(folder), groups[1])
    with claim(path) as is_ours, started(shared(groups, folder)) as workers:
        assert is_ours
        until(lambda: gone(workers.pids[0]), "the child does the others")
    assert cached(folder) == len(groups) - 1
    assert not os.path.exists(path)


CLAIM = """
import sys, time
from beam_jobs.rows.cache import claimed
with claimed(sys.argv[1]):
    print(flush=True)
    time.sleep(600)
"""


def test_the_claim_of_a_killed_child_ends(tmp_path: Path, folder: Path) -> None:
    path = str(folder / "file")
    with subprocess.Popen([sys.executable, "-c", CLAIM, path], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with claim(path) as is_ours:
            assert not is_ours
        child.kill()
        with claimed(path):  # waits for it
            assert gone(child.pid)


def test_profiles_do_not_depend_on_the_worker_that_collects_them(tmp_path: Path, folder: Path) -> None:
    groups = groups_of(tmp_path / "rows.csv")
    work = shared(groups, folder, units=[(group,) for group in groups])
    alone = work.observe_all([])
    with started(work, children=2) as workers:
        until(lambda: all(map(gone, workers.pids)), "the children have done it all")
        assert len(list(folder.glob("observed-?"))) == len(groups)
        together = work.observe_all([])
    assert alone.statistics is not None
    assert together.statistics is not None
    assert together.statistics.to_bytes() == alone.statistics.to_bytes()


def test_closing_ends_a_child_that_does_not_answer(tmp_path: Path, folder: Path) -> None:
    with started(shared(groups_of(tmp_path / "rows.csv"), folder)) as workers:
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
@pytest.mark.parametrize("victim", ["child", "job"])
def test_a_job_outlives_its_children_and_they_do_not_outlive_it(measured: Folder, victim: str) -> None:
    header, rows = people_csv(500).split("\n", 1)
    measured.raw.write_text(header + "\n" + 150 * rows)
    argv = measured.argv("--range_mb", "0.05", "--workers", "3")
    job = subprocess.Popen([sys.executable, "-c", SMALL_UNITS, *argv], stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: len(children_of(job.pid)) == 2, "the children are there")
        pids = children_of(job.pid)
        for pid in pids if victim == "child" else [job.pid]:
            os.kill(pid, signal.SIGKILL)
        _, printed = job.communicate(timeout=300)
    finally:
        job.kill()
    until(lambda: all(map(gone, pids)), "the children end")
    assert "Traceback" not in printed
    assert job.returncode == (0 if victim == "child" else -signal.SIGKILL), printed
    assert (measured.output / "manifest.json").exists() == (victim == "child")
