"""Any runs on one output, in any order: killed, refused by the disk, retried, overtaken, left to a cluster.

Whatever happens to a command, the dataset is whole, and holds each record of the inputs that it names once; a command
that ended with 0 has done all of its work, and any other one nothing of it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from schemas.dataset import command, layout, open_dataset
from schemas.dataset.manifest import Manifest, read_manifest
from schemas.dataset.prune import leftovers
from schemas.dataset.verify import verify_dataset
from tests.beam_jobs.conftest import Run
from tests.support import forking
from tests.support.csv_datasets import AGES
from tests.support.datasets import rejects_of
from tests.support.written_records import examples

DAYS = range(3)
ROWS = 30  # of a day; one more is rejected, for want of a label
CRASHED = "20200101T000000Z-0000"


@dataclasses.dataclass(frozen=True)
class Held:
    """What a dataset holds: the rows of some days, and of some of these the row that was rejected and then replayed."""

    days: frozenset[int]
    replayed: frozenset[int] = frozenset()

    @property
    def ids(self) -> list[str]:
        return sorted([f"d{day}-{i}" for day in self.days for i in range(ROWS)] + [f"d{d}-bad" for d in self.replayed])


@dataclasses.dataclass(frozen=True)
class Command:
    """A command on the output: write, append, replay, prune, or the last step of the job that was submitted."""

    kind: str
    days: frozenset[int] = frozenset()
    more: tuple[str, ...] = ()

    def after(self, content: Held | None) -> Held | None:
        """What the dataset holds when the command has ended; the same where it has nothing to do, or is refused."""
        if self.kind in ("write", "commit"):
            return Held(self.days)
        if content is None or self.kind == "prune":
            return content
        if self.kind == "replay":
            return Held(content.days, content.days) if self.days == content.days else content
        if self.days & content.days:
            return content
        return Held(content.days | self.days, content.replayed)


some_days = st.frozensets(st.sampled_from(DAYS), min_size=1)
a_day = st.sampled_from(DAYS).map(lambda day: frozenset({day}))
twice = st.sampled_from([(), forking.TWICE])
commands = st.one_of(
    st.builds(Command, st.just("write"), some_days, twice),
    st.builds(Command, st.just("append"), a_day, twice),
    st.builds(Command, st.just("replay"), st.none(), twice),
    st.builds(Command, st.just("prune")),
)
steps = st.integers(1, 80)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def listed(manifest: Manifest) -> set[str]:
    return {file.path for file in manifest.contents}


def named(folder: Path) -> dict[str, bytes]:
    """The manifest, and all files that it lists."""
    if not (folder / layout.MANIFEST).exists():
        return {}
    names = {layout.MANIFEST, *listed(read_manifest(str(folder)))}
    return {name: data for name, data in contents(folder).items() if name in names}


class Runs(RuleBasedStateMachine):
    """One output, and what it holds.

    Attributes:
      held: what the dataset holds; None if there is none.
      submitted: the last step of the job that a cluster has done but for this.
    """

    def __init__(self, run_jobs: Run, folder: Path) -> None:
        super().__init__()
        self.run_jobs, self.folder = run_jobs, folder
        self.output, self.copies = folder / "out", folder / "copies"
        self.held: Held | None = None
        self.submitted: Command | None = None
        (folder / "schema.yaml").write_text(AGES)
        for day in DAYS:
            rows = (f"d{day}-{i},{i},{'no' if i % 2 else 'yes'}" for i in range(ROWS))
            self.raw(day).write_text("\n".join(["id,age,y", *rows, f"d{day}-bad,1", ""]))

    def raw(self, day: int) -> Path:
        return self.folder / f"day{day}.csv"

    @initialize(left=st.booleans())
    def a_killed_job_has_left_files(self, left: bool) -> None:
        if left:
            (self.output / CRASHED / layout.STAGING).mkdir(parents=True)
            (self.output / CRASHED / layout.STAGING / "fragment-1").write_bytes(b"x")
            (self.output / f".{layout.MANIFEST}.{'0' * 32}.tmp").write_bytes(b"{")

    @rule(what=commands)
    def runs(self, what: Command) -> None:
        """It does its work, unless a job on a cluster is at work."""
        what, before = self.of_now(what), named(self.output)
        report = self.run(what)
        if self.submitted is not None:
            self.check(self.held)
            assert report["status"] or what.after(self.held) == self.held
            return
        if what.after(self.held) != self.held or what.kind == "write":
            self.check_succeeded(what, report, before)
        self.check(what.after(self.held))

    @rule(what=commands, moment=st.integers(0, 1000))
    def is_killed(self, what: Command, moment: int) -> None:
        """Copies of the folder before each file operation are what kills leave there. The next command finds one."""
        self.check_kills(self.of_now(what), moment)

    @rule(what=commands, step=steps)
    def is_refused_by_the_disk(self, what: Command, step: int) -> None:
        what = self.of_now(what)
        report = self.run(what, fail_at=step)
        done = report["status"] == 0 and self.submitted is None
        self.check(what.after(self.held) if done else self.held)

    @rule(what=commands, step=steps, other=commands)
    @precondition(lambda self: self.submitted is None)
    def is_overtaken(self, what: Command, step: int, other: Command) -> None:
        """It is stopped for so long that another command takes the lease over, does all of its work and ends."""
        what, other, before = self.of_now(what), self.of_now(other), self.held
        report = self.run(what, stop_at=step, meanwhile={**self.asked(other), "takes_over": True})
        meanwhile = report["meanwhile"]
        done, other_done = report["status"] == 0, meanwhile is not None and meanwhile["status"] == 0
        allowed = [what.after(before) if done else before]
        if other_done:
            allowed = [other.after(allowed[0])]
            if done and other.after(before) == before:
                allowed.append(what.after(before))
        self.check(*allowed)
        if not done and meanwhile is not None:
            assert "lease" in report["stderr"] or "already in" in report["stderr"] or report["status"] == 2

    @rule(first=commands, second=commands)
    @precondition(lambda self: self.submitted is None)
    def two_run_at_once(self, first: Command, second: Command) -> None:
        """They come one after the other, or one of them names the other, and does nothing."""
        both = [self.of_now(first), self.of_now(second)]
        reports = self.run_jobs(*map(self.asked, both))
        done = [what for what, report in zip(both, reports, strict=True) if report["status"] == 0]
        for what, report in zip(both, reports, strict=True):
            if report["status"] == 1 and what.after(self.held) != self.held:
                assert "another job is writing to it" in report["stderr"]
        allowed = []
        for order in (done, done[::-1]):
            after = self.held
            for what in order:
                after = what.after(after)
            allowed.append(after)
        self.check(*allowed)

    @rule(days=some_days)
    @precondition(lambda self: self.submitted is None)
    def is_left_to_a_cluster(self, days: frozenset[int]) -> None:
        what = Command("write", days, ("--no_wait", *forking.ARGUMENTS))
        report = self.run(what)
        assert report["status"] == 0, report["stderr"]
        self.check(self.held)
        self.submitted = Command("commit", days)

    @rule(moment=st.integers(0, 1000), other=st.none() | some_days)
    @precondition(lambda self: self.submitted is not None)
    def its_commit_is_killed(self, moment: int, other: frozenset[int] | None) -> None:
        """If that was behind the commit, it may hold the lease still: it is ended by itself, or by any other job."""
        assert self.submitted is not None
        before = named(self.output)
        self.check_kills(self.submitted, moment)
        if named(self.output) == before:
            return
        if other is None:
            self.its_commit_succeeds()
        self.submitted = None
        if other is not None:
            self.runs(Command("write", other))

    @rule(step=steps)
    @precondition(lambda self: self.submitted is not None)
    def its_commit_is_refused_by_the_disk(self, step: int) -> None:
        """It may be tried again."""
        assert self.submitted is not None
        self.run(self.submitted, fail_at=step)
        self.its_commit_succeeds()

    @rule(step=steps)
    @precondition(lambda self: self.submitted is not None)
    def two_commit_it(self, step: int) -> None:
        """One does all of its work before any step of the other."""
        assert self.submitted is not None
        report = self.run(self.submitted, stop_at=step, meanwhile=self.asked(self.submitted))
        assert report["status"] == 0, report["stderr"]
        assert report["meanwhile"] is None or report["meanwhile"]["status"] == 0, report["meanwhile"]["stderr"]
        self.its_commit_succeeds()

    @rule(step=steps, days=some_days)
    @precondition(lambda self: self.submitted is not None)
    def another_job_overtakes_its_commit(self, step: int, days: frozenset[int]) -> None:
        """As one does to which the cluster says that the job has failed."""
        assert self.submitted is not None
        other = Command("write", days)
        meanwhile = {**self.asked(other), "takes_over": True, "cluster": "FAILED"}
        report = self.run(self.submitted, stop_at=step, meanwhile=meanwhile)
        if report["meanwhile"] is not None:
            assert report["meanwhile"]["status"] == 0, report["meanwhile"]["stderr"]
            self.check(other.after(self.held))
        else:
            assert report["status"] == 0, report["stderr"]
            self.check(self.submitted.after(self.held))
        self.submitted = None

    @rule()
    @precondition(lambda self: self.submitted is not None)
    def its_commit_succeeds(self) -> None:
        """Once more, too, if it is committed already."""
        assert self.submitted is not None
        for _ in range(2):
            report = self.run(self.submitted)
            assert report["status"] == 0, report["stderr"]
        self.check(self.submitted.after(self.held))
        self.submitted = None

    @rule()
    @precondition(lambda self: self.submitted is not None)
    def it_is_cancelled(self) -> None:
        argv = ["cancel", "--output", str(self.output)]
        (cancelled,) = self.run_jobs({"argv": argv, "program": "job", "cluster": "RUNNING"})
        assert cancelled["status"] == 0, cancelled["stderr"]
        self.check(self.held)
        self.submitted = None

    def teardown(self) -> None:
        """Nothing is left but the dataset, the one before, and the rejects of failed runs."""
        if self.submitted is not None:
            self.its_commit_succeeds()
        prune(self.output)
        self.check(self.held)
        assert self.held is None or leftovers(str(self.output)) == []

    def of_now(self, what: Command) -> Command:
        """A replay is of the days that the dataset holds when the command is written."""
        days = frozenset() if self.held is None else self.held.days
        return dataclasses.replace(what, days=days) if what.kind == "replay" else what

    def run(self, what: Command, **trouble: Any) -> dict[str, Any]:
        (report,) = self.run_jobs({**self.asked(what), **trouble})
        assert report["status"] in (0, 1, 2), report["stderr"]
        for unflushed in (report["unflushed"], (report["meanwhile"] or {}).get("unflushed", [])):
            assert all(names == [] for names in unflushed), "a power cut behind the commit would take these"
        return report

    def asked(self, what: Command) -> dict[str, Any]:
        """The command, as `tests.support.forking` has it."""
        inputs = ["--input", *(str(self.raw(day)) for day in sorted(what.days))]
        match what.kind:
            case "write":
                schema = ["--schema", str(self.folder / "schema.yaml"), "--output", str(self.output), "--overwrite"]
                argv = [*schema, *inputs, *what.more, "--quiet"]
            case "append":
                argv = ["--append_to", str(self.output), *inputs, *what.more, "--quiet"]
            case "replay":
                corrected = self.folder / f"corrected-{'-'.join(map(str, sorted(what.days)))}.jsonl"
                corrected.write_text("".join(map(self.correction, what.days)))
                argv = ["--replay", str(corrected), "--append_to", str(self.output), *what.more, "--quiet"]
            case "commit":
                return {"argv": [str(self.output)], "program": "last_step"}
            case _:
                return {"argv": ["prune", str(self.output)], "program": "dataset"}
        return {"argv": argv, "cluster": "DONE" if self.submitted is None else "RUNNING"}

    def correction(self, day: int) -> str:
        raw = self.raw(day).read_bytes()
        line = {"source": str(self.raw(day)), "offset": raw.index(f"d{day}-bad".encode()), "raw": f"d{day}-bad,1,yes"}
        return f"{json.dumps(line)}\n"

    def check(self, *allowed: Held | None) -> None:
        """The dataset is whole, and one of these."""
        self.held = self.found()
        assert self.held in allowed

    def found(self) -> Held | None:
        """What the dataset holds, each record once, and all accounted for."""
        if not (self.output / layout.MANIFEST).exists():
            return None
        dataset = open_dataset(str(self.output))
        assert verify_dataset(dataset.path) == []
        manifest = dataset.manifest
        days = frozenset(day for day in DAYS if str(self.raw(day)) in {file.path for file in manifest.inputs})
        assert collections.Counter(file.path for file in manifest.inputs) == {str(self.raw(day)): 1 for day in days}
        ids = [record["id"][0].decode() for split in dataset.splits for record in examples(dataset, split)]
        content = Held(days, frozenset(day for day in days if f"d{day}-bad" in ids))
        assert sorted(ids) == content.ids
        rejected = len(content.days) - len(content.replayed)
        assert (manifest.read, manifest.written, manifest.rejected) == (len(ids) + rejected, len(ids), rejected)
        assert len(rejects_of(dataset)) == rejected
        return content

    def check_succeeded(self, what: Command, report: dict[str, Any], before: dict[str, bytes]) -> None:
        """Readers of the dataset before may go on, and nothing else is left behind."""
        assert report["status"] == 0, report["stderr"]
        assert len(report["unflushed"]) == 1
        now = read_manifest(str(self.output))
        present = set(os.listdir(self.output))
        assert present - {layout.FAILED} == {layout.MANIFEST, *now.runs, *now.previous}
        after = contents(self.output)
        assert {name: data for name, data in before.items() if name != layout.MANIFEST}.items() <= after.items()
        assert {n for n in after if n.startswith(now.run)} == {n for n in listed(now) if n.startswith(now.run)}

    def check_kills(self, what: Command, moment: int) -> None:
        """Kills a command before each of its file operations, and goes on from one of these folders."""
        shutil.rmtree(self.copies, ignore_errors=True)
        old, before = named(self.output), self.held
        report = self.run(what, snapshots=[str(self.output), str(self.copies)])
        self.check(before, what.after(before))
        new, after = named(self.output), self.held
        copies = sorted(self.copies.glob("*"), key=lambda path: int(path.name))
        assert len(copies) == len(report["steps"])
        if not copies:
            return
        committed = [contents(copy).get(layout.MANIFEST) != old.get(layout.MANIFEST) for copy in copies]
        assert committed == sorted(committed)
        chosen = copies[moment % len(copies)]
        for copy, is_new in zip(copies, committed, strict=True):
            valid, now = new if is_new else old, contents(copy)
            assert valid.items() <= now.items()
            assert old.keys() <= now.keys()  # readers have them open
            if copy != chosen and what.kind != "commit" and self.submitted is None:
                prune(copy)
                assert valid.items() <= contents(copy).items()
                assert not valid or leftovers(str(copy)) == []
        shutil.rmtree(self.output)
        chosen.rename(self.output)
        self.check(after if committed[copies.index(chosen)] else before)


def prune(output: Path) -> None:
    """Removes what is left behind; where there is no dataset, the next job does that."""
    if (output / layout.MANIFEST).exists():
        with contextlib.redirect_stdout(None):
            assert command.main(["prune", str(output)]) == 0


@pytest.mark.long
def test_any_runs_on_one_output_each_do_all_of_their_work_or_none(run_jobs: Run, tmp_path: Path) -> None:
    def machine() -> Runs:
        return Runs(run_jobs, Path(tempfile.mkdtemp(dir=tmp_path)))

    run_state_machine_as_test(
        machine,  # type: ignore[arg-type]
        settings=settings(
            max_examples=8,
            stateful_step_count=8,
            deadline=None,
            phases=(Phase.generate,),  # a step falls elsewhere each time, so that nothing can be shrunk
            suppress_health_check=list(HealthCheck),
        ),
    )


PENDING = re.compile(r"[0-9a-f]{32}")
SEED = int(os.environ.get("MILLRACE_KILL_SEED", random.SystemRandom().randrange(10**6)))


def names(output: Path) -> frozenset[str]:
    """Without what is drawn in the names of pending files, and without the lease, which is renewed now and then."""
    relative_paths = (PENDING.sub("", str(path.relative_to(output))) for path in output.rglob("*"))
    return frozenset(name for name in relative_paths if layout.LEASE not in name)


@pytest.mark.long
def test_a_copy_is_what_a_kill_leaves(run_jobs: Run, tmp_path: Path) -> None:
    def prepared(name: str) -> tuple[Path, dict[str, Any]]:
        output = tmp_path / name
        for run in (CRASHED, f"{CRASHED[:-1]}1"):
            (output / run / layout.STAGING).mkdir(parents=True)
            for i in range(3):
                (output / run / layout.STAGING / f"fragment-{i}").write_bytes(b"x")
        return output, {"argv": ["prune", str(output)], "program": "dataset"}

    output, command = prepared("out")
    (unhurt,) = run_jobs({**command, "snapshots": [str(output), str(tmp_path / "copies")]})
    copied = [names(tmp_path / "copies" / str(n)) for n in range(1, len(unhurt["steps"]) + 1)]
    assert len(set(copied)) > 5
    print(f"MILLRACE_KILL_SEED={SEED}")
    for n in random.Random(SEED).sample(range(1, len(copied) + 1), 3):
        killed, command = prepared(f"killed-{n}")
        (report,) = run_jobs({**command, "kill_at": n})
        if report["status"] == 0:  # it had ended before: the copied run was slow enough to renew its lease
            assert len(report["steps"]) < n
            continue
        assert report["status"] == -9, report["stderr"]
        assert names(killed) in copied


@pytest.mark.long
def test_a_job_killed_while_it_reads_changes_nothing(run_jobs: Run, tmp_path: Path) -> None:
    runs = Runs(run_jobs, tmp_path)
    what = Command("write", frozenset({0}))
    runs.runs(what)
    seconds = runs.run(what)["seconds"]
    print(f"MILLRACE_KILL_SEED={SEED}")
    append = Command("append", frozenset({1}))
    for part in random.Random(SEED).choices((0.3, 0.5, 0.7, 0.9, 1.1), k=2):
        before = named(runs.output)
        (killed,) = run_jobs({**runs.asked(append), "kill_after": part * seconds})
        runs.check(runs.held, append.after(runs.held))
        assert before.keys() <= contents(runs.output).keys()
        assert killed["status"] in (0, -9, 2), killed["stderr"]
    runs.runs(append)
    runs.check(Held(frozenset({0, 1})))
