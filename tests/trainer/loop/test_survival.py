"""A training that is killed, and one whose disk is full: what is there afterwards is whole, and it goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.support.forking_trainer import NO_DISK
from trainer.export.saved_model import ServedModel
from trainer.model_dir.checkpoints import checkpoint_fault
from trainer.model_dir.cleanup import remove_temporary_exports, remove_temporary_files

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
STEPS = 20
SEED = int(os.environ.get("MILLRACE_KILL_SEED", random.SystemRandom().randrange(10**6)))


class ForkingTrainer:
    """Trainings in forked processes; see `tests.support.forking_trainer`."""

    def __init__(self, dataset: Any) -> None:
        command = [sys.executable, "-m", "tests.support.forking_trainer"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._data_dir = dataset.path

    def __call__(self, model_dir: Path, *, log: Path, steps: int = STEPS, **request: Any) -> int:
        argv = ["--data_dir", self._data_dir, "--model_dir", str(model_dir), "--model", "linear", "--seed", "1"]
        argv += ["--max_steps", str(steps), "--save_checkpoints_steps", "10", "--batch_size", "32"]
        request = {"kill_after": None, "signal": None, "disk_bytes": None, "copy_to": None, **request}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": argv, "log": str(log), **request}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.seconds = float(answer["seconds"])
        return int(answer["status"])

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def trainer(wages):
    forking = ForkingTrainer(wages)
    yield forking
    forking.close()


@pytest.fixture(scope="module")
def half_way(trainer, tmp_path_factory) -> float:
    """The seconds that a training takes which ends after half of the steps, and which nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert trainer(folder / "model", log=folder / "log", steps=STEPS // 2) == 0
    return trainer.seconds


def latest_step(model_dir: Path) -> int:
    """The step of the checkpoint that is taken for the newest, which must be whole; -1 where there is none."""
    checkpoint = tf.train.latest_checkpoint(str(model_dir))
    if checkpoint is None:
        return -1
    assert checkpoint_fault(checkpoint) is None
    return int(tf.train.load_variable(checkpoint, "global_step"))


def open_exports(model_dir: Path) -> list[Path]:
    """Every export that has a number, opened and compared with its checksums."""
    exports = sorted(path for path in model_dir.glob("export/*/*") if path.name.isdecimal())
    for export in exports:
        with ServedModel(str(export)) as model:
            assert "serving_default" in model.signatures
    return exports


def files_of(model_dir: Path) -> list[str]:
    return sorted(str(path.relative_to(model_dir)) for path in model_dir.rglob("*"))


class TestKilled:
    def test_at_random_moments_it_goes_on_and_ends_where_it_should(self, trainer, half_way, tmp_path):
        print(f"MILLRACE_KILL_SEED={SEED}")
        draw = random.Random(SEED)
        model_dir, log = tmp_path / "model", tmp_path / "log"
        signals = [
            signal.SIGKILL,
            signal.SIGKILL,
            signal.SIGTERM,
            signal.SIGINT,
        ]  # at moments that every run draws anew
        draw.shuffle(signals)
        step = -1
        for sent in signals:
            status = trainer(model_dir, log=log, kill_after=draw.uniform(0.0, half_way), signal=sent)
            # A process that has not come to its handler yet, or has left it, is ended by the signal itself.
            expected = {-sent, {signal.SIGTERM: 143, signal.SIGINT: 130}.get(sent)}
            assert status in {0, *expected}, log.read_text()
            assert latest_step(model_dir) >= step  # what was saved is not lost
            step = latest_step(model_dir)
            open_exports(model_dir)

        # An interrupted process may say where it was; the one that nobody disturbs has nothing to complain of.
        log = tmp_path / "last_log"
        assert trainer(model_dir, log=log) == 0, log.read_text()
        assert latest_step(model_dir) == STEPS
        assert {path.parent.name for path in open_exports(model_dir)} == {"best", "final"}
        assert [e["global_step"] for e in json.loads((model_dir / "evaluations.json").read_text())][-1] == STEPS
        assert "Traceback" not in log.read_text()
        assert not [name for name in files_of(model_dir) if "temp" in name or ".tmp" in name]


class TestFullDisk:
    """On a disk of its own that is too small; needs the right to mount one, or a user namespace that gives it."""

    def test_is_said_and_the_last_good_checkpoint_stays(self, trainer, tmp_path):
        model_dir, kept, log = tmp_path / "model", tmp_path / "kept", tmp_path / "log"
        kept.mkdir()
        step = -1
        for kilobytes in (1100, 1600, 2200):  # each begins with what fitted on the one before
            log.unlink(missing_ok=True)
            status = trainer(model_dir, log=log, disk_bytes=kilobytes << 10, copy_to=str(kept), steps=200)
            if status == NO_DISK:
                pytest.skip(
                    "a disk of a given size needs the right to mount one, or a user namespace; "
                    "this system gives neither"
                )
            assert status == 1, log.read_text()
            assert "writing failed: " in log.read_text()
            assert "No space left on device. Free some space" in log.read_text()
            assert "Traceback" not in log.read_text()
            assert latest_step(kept) >= step
            step = latest_step(kept)
            open_exports(kept)
        # with more room the same command goes on
        status = trainer(kept, log=log, steps=step + 10)
        assert (status, latest_step(kept)) == (0, step + 10), log.read_text()


def test_what_was_left_half_written_is_removed_and_nothing_else(tmp_path):
    kept = ["model.ckpt-10.index", "model.ckpt-10.data-00000-of-00001", "checkpoint", "graph.pbtxt", "my_temp"]
    kept += ["export/best/17/saved_model.pb", "export/best/best.json", "export/mine/notes"]
    left = ["model.ckpt-20_temp/part-00000-of-00001.data-00000-of-00001", "model.ckpt-20.index.tempstate123"]
    left += ["checkpoint.tmp0123456789abcdef", f".evaluations.json.{'0' * 32}.tmp"]
    left += ["export/best/temp-12ab/saved_model.pb", "export/final/temp-34cd/18/saved_model.pb"]
    for name in (*kept, *left):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    remove_temporary_files(str(tmp_path))
    remove_temporary_exports(str(tmp_path))
    assert {name for name in files_of(tmp_path) if (tmp_path / name).is_file()} == set(kept)
    assert not [name for name in files_of(tmp_path) if "_temp/" in name or "temp-" in name]
