"""A training that is killed, and one whose disk is full: what they leave is valid, and training resumes."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from schemas.exports.model import ServedModel
from tests.support.forking_trainer import NO_DISK, Forking
from trainer.model_dir.checkpoints import checkpoint_fault, remove_temporary_exports, remove_temporary_files

pytestmark = pytest.mark.long

STEPS = 20
SEED = int(os.environ.get("MILLRACE_KILL_SEED", random.SystemRandom().randrange(10**6)))


class ForkingTrainer:
    """Trainings of one dataset in forked processes; see `tests.support.forking_trainer`."""

    def __init__(self, dataset: Any, forking: Forking) -> None:
        self._data_dir, self._forking = dataset.path, forking

    def __call__(self, model_dir: Path, *, log: Path, steps: int = STEPS, **request: Any) -> int:
        argv = ["--data_dir", self._data_dir, "--model_dir", str(model_dir), "--model", "linear", "--seed", "1"]
        argv += ["--max_steps", str(steps), "--save_checkpoints_steps", "10", "--batch_size", "32"]
        return self._forking(argv, log=log, **request)

    @property
    def seconds(self) -> float:
        return self._forking.seconds


@pytest.fixture(scope="module")
def trainer(wages):
    with Forking() as forking:
        yield ForkingTrainer(wages, forking)


@pytest.fixture(scope="module")
def half_way(trainer, tmp_path_factory) -> float:
    """The duration in seconds of an uninterrupted training of half the steps."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert trainer(folder / "model", log=folder / "log", steps=STEPS // 2) == 0
    return trainer.seconds


def latest_step(model_dir: Path) -> int:
    """The step of the latest checkpoint, which must be valid; -1 if there is none."""
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
    def test_at_random_moments_it_resumes_and_ends_at_max_steps(self, trainer, half_way, tmp_path):
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

        # An interrupted process may print a traceback; the uninterrupted one prints none.
        log = tmp_path / "last_log"
        assert trainer(model_dir, log=log) == 0, log.read_text()
        assert latest_step(model_dir) == STEPS
        assert {path.parent.name for path in open_exports(model_dir)} == {"best", "final"}
        assert [e["global_step"] for e in json.loads((model_dir / "evaluations.json").read_text())][-1] == STEPS
        assert "Traceback" not in log.read_text()
        assert not [name for name in files_of(model_dir) if "temp" in name or ".tmp" in name]


class TestFullDisk:
    """On a separate disk that is too small. Needs the right to mount one, or a user namespace that grants it."""

    def test_is_reported_and_the_last_good_checkpoint_stays(self, trainer, tmp_path):
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
