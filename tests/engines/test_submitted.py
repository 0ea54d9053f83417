"""A job that goes on without its launcher, on Prism: it commits by itself, is asked about, refused, cancelled."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_jobs import preprocess
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


def test_a_submitted_job_commits_by_itself(there: Submitting) -> None:
    submitted = there.preprocess("--no_wait", "--json")
    assert submitted.code == 0, submitted.err
    assert there.wait().data["state"] == "committed"
    dataset = open_dataset(there.output)
    assert dataset.run == submitted.data["run"]
    assert verify_dataset(there.output) == []
    assert sorted(os.listdir(there.output)) == [dataset.run, layout.MANIFEST]
    assert layout.STAGING not in os.listdir(dataset.run_dir)
    there.assert_as_locally(dataset)
    assert there.preprocess("--overwrite").code == 0  # and a launcher that waits reports the commit
    assert open_dataset(there.output).run != dataset.run


def test_a_refusal_leaves_the_old_dataset_and_is_told_to_whoever_asks(there: Submitting, tmp_path: Path) -> None:
    """By the launcher that waits, and after it by `millrace job status`."""
    assert there.locally().code == 0
    old = open_dataset(there.output).run
    rows = people_csv(300).splitlines()
    (tmp_path / "people.csv").write_text("\n".join([rows[0], *(row for row in rows[1:] if row.endswith("no"))]) + "\n")
    schema = tmp_path / "schema.yaml"
    schema.write_text(f"{schema.read_text()}\ndrift: 0.3\n")
    refused = there.preprocess("--overwrite")
    assert refused.code == 1
    assert "the data has drifted: the new train against train of" in refused.err
    assert "Traceback" not in refused.err
    assert there.holder() is None
    (failed,) = os.listdir(f"{there.output}/{layout.FAILED}")
    assert sorted(os.listdir(there.output)) == sorted([old, layout.FAILED, layout.MANIFEST])
    status = there.job("status", "--json").data
    assert (status["run"], status["state"]) == (failed, "failed")
    assert "the data has drifted" in status["next"]
    assert open_dataset(there.output).run == old


@contextlib.contextmanager
def launched(there: Submitting, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A launcher in a process of its own, once its job runs. `argv`: but for the runner."""
    command = [sys.executable, "-m", "beam_jobs.preprocess", *argv, "--runner", there.runner, *there.beam_args]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        until(lambda: process.poll() is not None or there.is_submitted, "the job is submitted")
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_killed_launchers_job_commits(there: Submitting) -> None:
    with launched(there, *there.argv()) as launcher:
        launcher.kill()
        launcher.wait()
    assert there.wait().data["state"] == "committed"
    assert verify_dataset(there.output) == []
    assert open_dataset(there.output).manifest.written == 300


def test_a_killed_launchers_append_commits(there: Submitting, tmp_path: Path) -> None:
    """It is added beside the dataset, and its rejects to the dataset's."""
    assert there.locally().code == 0
    header, *rows = people_csv(350).splitlines()
    (tmp_path / "more.csv").write_text("\n".join([header, *rows[300:], "too,few\n"]))
    argv = ["--append_to", there.output, "--input", str(tmp_path / "more.csv"), "--max_rejects", "1", "--quiet"]
    with launched(there, *argv) as launcher:
        launcher.kill()
        launcher.wait()
    assert there.wait().data["state"] == "committed"
    assert verify_dataset(there.output) == []
    manifest = open_dataset(there.output).manifest
    assert (manifest.written, manifest.rejected) == (350, 4)


def test_a_worker_that_is_killed_in_the_commit_leaves_the_old_dataset_or_the_new(
    there: Submitting, prism: Prism
) -> None:
    """Whichever it is, the dataset is whole, the launcher says which, and the next job works."""
    assert there.locally().code == 0
    old = open_dataset(there.output).run
    with launched(there, *there.argv("--overwrite")) as launcher:
        until(lambda: list(Path(there.output).glob(f"*/{layout.SCHEMA_YAML}"))[1:], "the commit begins")
        for pid in prism.workers():
            os.kill(pid, signal.SIGKILL)
        printed, code = launcher.communicate(timeout=60)[0], launcher.returncode
    assert verify_dataset(there.output) == []
    assert (open_dataset(there.output).run == old) == (code == 1), printed
    assert there.preprocess("--overwrite").code == 0
    assert verify_dataset(there.output) == []
    left = set(os.listdir(there.output)) - {layout.FAILED, layout.MANIFEST}
    assert left == {open_dataset(there.output).run, *open_dataset(there.output).manifest.previous}


def test_ctrl_c_leaves_the_job_which_commits_by_itself(there: Submitting) -> None:
    with launched(there, *there.argv()) as launcher:
        launcher.send_signal(signal.SIGINT)
        printed = launcher.communicate(timeout=60)[0]
        assert f"it goes on and commits by itself; `millrace job cancel --output {there.output}` ends it" in printed
        assert "Traceback" not in printed
        assert launcher.returncode == 130
    assert there.wait().data["state"] == "committed"
    assert open_dataset(there.output).manifest.written == 300


def test_a_job_that_cannot_be_asked_about_keeps_its_lease_until_it_is_broken(there: Submitting, tmp_path: Path) -> None:
    """Its job service has ended; another one at the same address gives its id to another job."""
    (tmp_path / "prism").mkdir()
    with prisms.mute() as nobody, prisms.running(tmp_path / "prism", pool=nobody) as ending:  # no worker ever begins
        lost = dataclasses.replace(there, beam_args=ending.beam_args)
        submitted = lost.preprocess("--no_wait", "--json")
    assert submitted.code == 0, submitted.err
    run = submitted.data["run"]
    for refused in (there.job("status"), there.job("cancel"), there.locally()):
        assert refused.code == 1, refused.out
        assert "cannot be asked" in refused.err
    assert there.is_held_remotely
    assert "give --break_lease" in there.locally().err
    broken = there.locally("--break_lease")
    assert broken.code == 0, broken.err
    assert run not in os.listdir(there.output)
    assert verify_dataset(there.output) == []


def test_rejects_of_the_transform_get_their_bytes_in_the_last_step(prism: Prism, tmp_path: Path) -> None:
    """They are read again from the input."""
    (tmp_path / "schema.yaml").write_text(SCHEMA.replace("z_score, missing: mean", "log, missing: 1.0"))
    rows = people_csv(60).replace(",-", ",")
    bad = people_row(61).split(",")
    bad[1] = "-5"  # whose logarithm is no number
    (tmp_path / "people.csv").write_text(rows + ",".join(bad) + "\n")
    there = Submitting(tmp_path, str(tmp_path), "PortableRunner", prism.beam_args)
    assert (waited := there.preprocess()).code == 0, waited.err
    dataset = open_dataset(there.output)
    assert verify_dataset(there.output) == []
    (reject,) = rejects_of(dataset)
    assert (reject.stage, reject.raw.decode()) == ("transform", ",".join(bad))


def test_a_job_on_images_commits_with_the_classes_of_their_folders(prism: Prism, tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}}\n")
    write_folders(tmp_path / "raw", per_class=20)
    for i in range(2):
        (tmp_path / "raw" / "disc" / f"no{i}.png").write_text("this is no image")
    output, place = str(tmp_path / "out"), ["--schema", str(tmp_path / "schema.yaml")]
    argv = [*place, "--input", str(tmp_path / "raw/*/*"), "--output", output, "--quiet"]
    waited = ended(preprocess.main, [*argv, "--runner", "PortableRunner", *prism.beam_args])
    assert waited.code == 0, waited.err
    dataset = open_dataset(output)
    assert verify_dataset(output) == []
    assert (dataset.manifest.read, dataset.manifest.rejected) == (dataset.manifest.written + 2, 2)
    assert "disc" in dataset.manifest.classes
