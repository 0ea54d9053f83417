"""A job that goes on without its launcher, on Prism: submitted, asked about, taken up by anybody, cancelled."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_jobs import job, preprocess
from beam_jobs.runs import reattach
from schemas.dataset import layout, open_dataset
from schemas.dataset.verify import verify_dataset
from tests.support import prism as prisms
from tests.support.commands import ended
from tests.support.datasets import Submitting, raw_rows, rejects_of
from tests.support.image_files import write_folders
from tests.support.people import SCHEMA, people_csv, people_row
from tests.support.prism import Prism
from tests.support.processes import until

pytestmark = pytest.mark.engines


@pytest.fixture
def there(prism: Prism, tmp_path: Path) -> Submitting:
    (tmp_path / "people.csv").write_bytes(raw_rows(tmp_path))
    return Submitting(tmp_path, str(tmp_path), "PortableRunner", prism.beam_args)


def test_a_submitted_job_is_taken_up_and_committed(there: Submitting) -> None:
    submitted = there.preprocess("--no_wait", "--json")
    assert submitted.code == 0, submitted.err
    run = submitted.data["run"]
    assert there.is_held_remotely
    assert run in (told := there.job("status", "--json")).out
    assert told.data["state"] in ("running", "done")
    taken = there.job("wait")
    assert taken.code == 0, taken.err
    there_now = open_dataset(there.output)
    assert there_now.run == run
    assert verify_dataset(there.output) == []
    assert there.holder() is None
    assert sorted(os.listdir(there.output)) == [run, "manifest.json"]
    assert "staging" not in os.listdir(there_now.run_dir)
    assert f"{run}/job.json" in {file.path for file in there_now.manifest.files}

    there.assert_as_locally(there_now)

    again = there.job("commit")
    assert (again.code, open_dataset(there.output).manifest) == (0, there_now.manifest)
    assert there.job("status", "--json").data["state"] == "committed"


@contextlib.contextmanager
def launched(there: Submitting, *flags: str) -> Iterator[Launcher]:
    """A launcher in a process of its own, on a terminal of its own, once its job runs."""
    terminal, end = pty.openpty()
    argv = [sys.executable, "-m", "beam_jobs.preprocess", *there.argv(*flags), "--runner", there.runner]
    process = subprocess.Popen([*argv, *there.beam_args], stdin=end, stdout=end, stderr=end, start_new_session=True)
    os.close(end)
    launcher = Launcher(process, terminal)
    try:
        until(lambda: process.poll() is not None or there.is_held_remotely, "the job is submitted")
        assert process.poll() is None, launcher.said()
        yield launcher
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@dataclasses.dataclass(frozen=True)
class Launcher:
    process: subprocess.Popen[bytes]
    terminal: int

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def until(self, text: str) -> str:
        """What it prints up to a text."""
        found = b""
        while text.encode() not in found:
            ready, _, _ = select.select([self.terminal], [], [], 60)
            assert ready, f"did not print {text!r}, but {found!r}"
            found += os.read(self.terminal, 4096)
        return found.decode()

    def said(self) -> str:
        """What it prints until it ends."""
        found = b""
        with contextlib.suppress(OSError):  # the terminal has no other end any more
            while data := os.read(self.terminal, 4096):
                found += data
        return found.decode()


def test_a_killed_launchers_job_is_taken_up(there: Submitting) -> None:
    with launched(there) as launcher:
        launcher.process.kill()
        launcher.process.wait()
    assert there.is_held_remotely
    taken = there.job("wait")
    assert taken.code == 0, taken.err
    assert verify_dataset(there.output) == []
    assert open_dataset(there.output).manifest.written == 300


def test_ctrl_c_asks_and_a_no_leaves_the_job_to_others(there: Submitting) -> None:
    with launched(there) as launcher:
        launcher.interrupt()
        assert "job " in launcher.until("[y/N]")
        os.write(launcher.terminal, b"n\n")
        assert "goes on" in launcher.said()
        assert launcher.process.wait(60) == 130
    assert there.is_held_remotely
    assert there.job("wait").code == 0
    assert open_dataset(there.output).manifest.written == 300


@pytest.mark.parametrize("flags", [(), ("--on_interrupt", "cancel")])
def test_ctrl_c_cancels_the_job_if_that_is_the_answer(there: Submitting, flags: tuple[str, ...]) -> None:
    with launched(there, *flags) as launcher:
        launcher.interrupt()
        if not flags:
            launcher.until("[y/N]")
            os.write(launcher.terminal, b"y\n")
        assert "interrupted; job" in (said := launcher.said())
        assert "nothing was committed" in said
        assert "Traceback" not in said
        assert launcher.process.wait(60) == 130
    assert there.holder() is None
    assert os.listdir(there.output) == []


def test_on_interrupt_leave_asks_nothing(there: Submitting) -> None:
    with launched(there, "--on_interrupt", "leave") as launcher:
        launcher.interrupt()
        assert "[y/N]" not in (said := launcher.said())
        assert "goes on" in said
    assert there.is_held_remotely
    cancelled = there.job("cancel", "--force")
    assert cancelled.code == 0, cancelled.err
    assert os.listdir(there.output) == []


def test_a_job_service_that_was_started_again_is_not_asked_about_another_job(there: Submitting, tmp_path: Path) -> None:
    """It counts its jobs from 1 again, so another job has the id of this one."""
    assert there.preprocess("--no_wait").code == 0
    run = next(name for name in os.listdir(there.output) if layout.RUN.fullmatch(name))
    (tmp_path / "other").mkdir()
    with prisms.running(tmp_path) as again:
        other = Submitting(tmp_path, f"{tmp_path}/other", "PortableRunner", again.beam_args)
        (tmp_path / "other" / "people.csv").write_bytes((tmp_path / "people.csv").read_bytes())
        submitted = other.preprocess("--no_wait", "--json")
        told = tmp_path / "out" / run / "job.json"
        mine = json.loads(told.read_text())
        mine["job"] |= {"endpoint": again.job_endpoint, "id": submitted.data["job"]["id"]}
        told.write_text(json.dumps(mine))

        for refused in (there.job("status"), there.job("cancel"), there.locally("--overwrite")):
            assert refused.code == 1, refused.out
            assert "is another job" in refused.err
        assert run in os.listdir(there.output)
        assert other.job("wait").code == 0


def test_rejects_of_the_transform_get_their_bytes_from_whoever_takes_the_job_up(prism: Prism, tmp_path: Path) -> None:
    """They are read again from the input, which may have changed by then."""
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("z_score, missing: mean", "log, missing: 1.0"))
    rows = people_csv(60).replace(",-", ",")
    bad = people_row(61).split(",")
    bad[1] = "-5"  # whose logarithm is no number
    (tmp_path / "people.csv").write_text(rows + ",".join(bad) + "\n")
    there = Submitting(tmp_path, str(tmp_path), "PortableRunner", prism.beam_args)
    assert (submitted := there.preprocess("--no_wait")).code == 0, submitted.err
    taken = there.job("wait")
    assert taken.code == 0, taken.err
    dataset = open_dataset(there.output)
    assert verify_dataset(there.output) == []
    (reject,) = rejects_of(dataset)
    assert (reject.stage, reject.raw.decode()) == ("transform", ",".join(bad))


def test_images_are_taken_up_with_the_classes_of_their_folders(prism: Prism, tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}}\n")
    write_folders(tmp_path / "raw", each=20)
    for i in range(2):
        (tmp_path / "raw" / "disc" / f"no{i}.png").write_text("this is no image")
    output, place = str(tmp_path / "out"), ["--schema", str(tmp_path / "schema.yaml")]
    argv = [*place, "--input", str(tmp_path / "raw/*/*"), "--output", output, "--quiet", "--no_wait"]
    submitted = ended(preprocess.main, [*argv, "--runner", "PortableRunner", *prism.beam_args])
    assert submitted.code == 0, submitted.err
    taken = ended(job.main, ["wait", "--output", output])
    assert taken.code == 0, taken.err
    dataset = open_dataset(output)
    assert verify_dataset(output) == []
    assert (dataset.manifest.read, dataset.manifest.rejected) == (dataset.manifest.written + 2, 2)
    assert "disc" in dataset.manifest.classes


def test_waiting_tells_the_state_and_what_the_workers_have_counted(
    there: Submitting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "SAY_SECONDS", 0.0)
    monkeypatch.setattr(reattach, "POLL_SECONDS", 0.02)
    submitted = there.preprocess("--no_wait", "--json")
    taken = there.job("wait")
    assert taken.code == 0, taken.err
    named = f"job {submitted.data['job']['id']} of PortableRunner"
    first, *_, last = taken.err.splitlines()
    assert first.startswith(f"{named}: running")
    assert last == f"{named}: done"
    assert re.search(rf"^{named}: running, \w+: [\d,]+ records", taken.err, re.MULTILINE)
