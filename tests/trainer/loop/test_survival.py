"""A training that is killed, and one whose disk is full: what is left is valid, and resumes where it was."""

from __future__ import annotations

import collections
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.exports.model import ServedModel
from tests.support.forking import CRASHED
from tests.support.forking_trainer import NO_DISK, Forking
from trainer.data.input_options import InputOptions, Position
from trainer.model_dir.checkpoints import checkpoint_fault, remove_temporary_exports, remove_temporary_files
from trainer.model_dir.input_order import INPUT_JSON, resume_input

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
            # Before the command's own work, an interrupt is an exception to whoever runs it.
            early = sent == signal.SIGINT and log.read_text().rstrip().endswith("KeyboardInterrupt")
            assert status in {0, *expected, *({CRASHED} if early else ())}, log.read_text()
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
        model_dir, copy_dir, log = tmp_path / "model", tmp_path / "kept", tmp_path / "log"
        copy_dir.mkdir()
        step = -1
        for kilobytes in (550, 700, 850):  # each begins with what fitted on the one before
            log.unlink(missing_ok=True)
            status = trainer(model_dir, log=log, disk_bytes=kilobytes << 10, copy_to=str(copy_dir), steps=200)
            if status == NO_DISK:
                pytest.skip(
                    "a disk of a given size needs the right to mount one, or a user namespace; "
                    "this system gives neither"
                )
            assert status == 1, log.read_text()
            assert "writing failed: " in log.read_text()
            assert "No space left on device. Free some space" in log.read_text()
            assert "Traceback" not in log.read_text()
            assert latest_step(copy_dir) >= step
            step = latest_step(copy_dir)
            open_exports(copy_dir)
        # with more room the same command goes on
        status = trainer(copy_dir, log=log, steps=step + 10)
        assert (status, latest_step(copy_dir)) == (0, step + 10), log.read_text()


def test_what_was_left_half_written_is_removed_and_nothing_else(tmp_path):
    permanent_files = [
        "model.ckpt-10.index",
        "model.ckpt-10.data-00000-of-00001",
        "checkpoint",
        "graph.pbtxt",
        "my_temp",
    ]
    permanent_files += ["export/best/17/saved_model.pb", "export/best/best.json", "export/mine/notes"]
    left = ["model.ckpt-20_temp/part-00000-of-00001.data-00000-of-00001", "model.ckpt-20.index.tempstate123"]
    left += ["checkpoint.tmp0123456789abcdef", f".evaluations.json.{'0' * 32}.tmp"]
    left += ["export/best/temp-12ab/saved_model.pb", "export/final/temp-34cd/18/saved_model.pb"]
    for name in (*permanent_files, *left):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    remove_temporary_files(str(tmp_path))
    remove_temporary_exports(str(tmp_path))
    assert {name for name in files_of(tmp_path) if (tmp_path / name).is_file()} == set(permanent_files)
    assert not [name for name in files_of(tmp_path) if "_temp/" in name or "temp-" in name]


BATCH, SAVED = 32, 7
EXACT = ("--batch_size", str(BATCH), "--seed", "1", "--deterministic", "--early_stopping_steps", "0")


@pytest.fixture(scope="module")
def forked():
    with Forking() as forking:
        yield forking


class Training:
    """Trainings in one model directory, and what each step of them has read."""

    def __init__(self, forked: Forking, dataset: OpenDataset, folder: Path) -> None:
        self.trainer, self.dataset, self.folder = forked, dataset, folder
        folder.mkdir()

    def run(self, steps: int, *flags: str, kill_at: int | None = None, sent: int = signal.SIGKILL) -> int:
        if kill_at is not None:
            (self.folder / "kill_at").write_text(f"{kill_at} {int(sent)}")
        argv = ["--data_dir", self.dataset.path, "--model_dir", str(self.folder / "model"), "--max_steps", str(steps)]
        argv += ["--model", "tests.support.reading_models:model_fn", "--hparams", f"folder={self.folder}"]
        argv += ["--save_checkpoints_steps", str(SAVED), "--no_report", *flags]
        return self.trainer(argv, log=self.folder / "log")

    def ids(self) -> list[tuple[int, int, list[int]]]:
        """(step, replica, ids) in the order in which they were read."""
        lines = (self.folder / "steps.jsonl").read_text().splitlines()
        return [(line["step"], line["replica"], line["ids"]) for line in map(json.loads, lines)]

    def by_step(self) -> dict[int, list[int]]:
        """The ids that all replicas have read in each step; of a step that was repeated, those of its second time."""
        last = {(step, replica): ids for step, replica, ids in self.ids()}
        ids_by_step: dict[int, list[int]] = {}
        for step, replica in sorted(last):
            ids_by_step.setdefault(step, []).extend(last[step, replica])
        return ids_by_step

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def whole(forked, numbers, tmp_path_factory) -> dict[int, list[int]]:
    """What each step of an uninterrupted training on one device has read."""
    training = Training(forked, numbers, tmp_path_factory.mktemp("reading") / "whole")
    assert training.run(steps_of(numbers), *EXACT) == 0, training.log
    return training.by_step()


def steps_of(dataset: OpenDataset) -> int:
    """A bit more than two epochs."""
    return 2 * dataset.rows("train") // BATCH + 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "signals"),
    [
        ((), (signal.SIGKILL, signal.SIGKILL)),
        (("--strategy", "mirrored", "--logical_cpus", "2"), (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)),
    ],
    ids=["one device", "two replicas"],
)
def test_after_a_signal_training_reads_what_it_has_not_read(forked, numbers, whole, tmp_path, flags, signals):
    training, rows, steps = Training(forked, numbers, tmp_path / "killed"), numbers.rows("train"), steps_of(numbers)
    # In the first epoch after a checkpoint, and in the second, in whose middle the first one ended
    for sent, kill_at in zip(signals, (SAVED + 2, rows // BATCH + 3, 2 * rows // BATCH), strict=False):
        status = training.run(steps, *EXACT, *flags, kill_at=kill_at, sent=sent)
        assert status == (-sent if sent == signal.SIGKILL else 128 + sent), training.log
    assert training.run(steps, *EXACT, *flags) == 0, training.log
    assert f"input: goes on in epoch 1 after {SAVED * BATCH} of {rows} records" in training.log

    by_step = training.by_step()
    assert by_step == whole
    assert len(training.ids()) > len({(step, replica) for step, replica, _ in training.ids()})
    assert len({replica for _, replica, _ in training.ids()}) == (2 if flags else 1)
    read = [i for step in sorted(by_step) for i in by_step[step]]
    once = collections.Counter(read[:rows])
    assert set(once.values()) == {1}
    assert len(once) == rows
    assert once == collections.Counter(read[rows : 2 * rows])


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_the_best_checkpoint_is_exported_by_the_process_that_ends_the_training(forked, numbers, tmp_path, sent):
    training = Training(forked, numbers, tmp_path / "killed")
    model_dir, flags = training.folder / "model", ("--keep_checkpoints", "1")
    # All evaluations are alike, so that the first one stays the best; its checkpoint is deleted after the next one.
    assert training.run(5 * SAVED, *EXACT, *flags, kill_at=2 * SAVED + 2, sent=sent) != 0
    assert json.loads((model_dir / "export/best/kept.json").read_text())["global_step"] == SAVED
    assert not (model_dir / f"model.ckpt-{SAVED}.index").exists()
    assert open_exports(model_dir) == []
    # Without more steps, and then with some
    for steps in (latest_step(model_dir), 4 * SAVED):
        assert training.run(steps, *EXACT, *flags) == 0, training.log
        best = json.loads((model_dir / "export/best/best.json").read_text())
        assert best["global_step"] == SAVED
        exports = {path.parent.name: path for path in open_exports(model_dir)}
        exported = {name: str(path / "variables/variables") for name, path in exports.items()}
        assert {name: tf.train.load_variable(path, "global_step") for name, path in exported.items()} == {
            "best": SAVED,
            "final": steps,
        }
        assert not [name for name in files_of(model_dir) if "kept" in name or "temp" in name]


class TestWhereItBegins:
    """By the step of the checkpoint, of a batch of 32; 10 steps are most of an epoch."""

    @staticmethod
    def resume(model_dir: Path, dataset: OpenDataset, step: int, *, exact: bool = True, **changed: Any) -> tuple:
        records = changed.pop("records", BATCH)
        options = InputOptions(**{"batch_size": records, "seed": 1, "deterministic": True, **changed})
        return resume_input(str(model_dir), dataset, options, step=step, records=records, exact=exact)

    def test_goes_on(self, numbers, tmp_path):
        rows = numbers.rows("train")
        self.resume(tmp_path, numbers, 0)
        message = f"input: goes on in epoch 2 after {20 * BATCH - rows} of {rows} records"
        for _ in range(2):
            assert self.resume(tmp_path, numbers, 20) == (Position(1, 20 * BATCH - rows), message)

    @pytest.mark.parametrize(
        ("changed", "reason"),
        [
            ({"records": 16}, "batch_size was 32, and is 16"),
            ({"seed": 2}, "seed was 1, and is 2"),
            (
                {"shuffle_buffer": 7, "cycle_length": 2},
                "shuffle_buffer was 50000, and is 7; cycle_length was 8, and is 2",
            ),
            (
                {"exact": False},
                "a place in an epoch is known only with --seed and --deterministic, and not with parameter servers",
            ),
        ],
    )
    def test_other_settings_begin_an_epoch_and_are_followed_from_there(self, numbers, tmp_path, changed, reason):
        self.resume(tmp_path, numbers, 0)
        assert self.resume(tmp_path, numbers, 5, **changed) == (Position(1), f"input: begins epoch 2: {reason}")
        start, message = self.resume(tmp_path, numbers, 6, **changed)
        if changed.get("exact", True):
            assert start == Position(1, changed.get("records", BATCH))
        else:
            assert (start, message) == (Position(1), f"input: begins epoch 2: {reason}")

    def test_a_limit_of_images_that_decides_nothing_is_no_other_order(self, stripes, tmp_path):
        """It is a part of the memory that is available when a training begins, or resumes."""
        self.resume(tmp_path, stripes, 0, cache_bytes=128 << 20)
        assert self.resume(tmp_path, stripes, 1, cache_bytes=512 << 20)[1].startswith("input: goes on in epoch 1 ")
        _, message = self.resume(tmp_path, stripes, 1, cache_bytes=1)
        assert message == "input: begins epoch 2: in_memory was True, and is False"

    def test_pairs_of_images_that_are_drawn_from_windows_go_on(self, patterns, tmp_path):
        self.resume(tmp_path, patterns, 0, cache_bytes=1000)
        assert self.resume(tmp_path, patterns, 1, cache_bytes=1000)[1].startswith("input: goes on in epoch 1 ")

    def test_other_data(self, numbers, wages, tmp_path):
        self.resume(tmp_path, numbers, 0)
        start, message = self.resume(tmp_path, wages, 5)
        assert start.record == 0
        assert f"data_run was {numbers.run}, and is {wages.run}" in message

    @pytest.mark.parametrize("content", [None, b"{", b"{}"])
    def test_an_unknown_order(self, numbers, tmp_path, content):
        if content is not None:
            (tmp_path / INPUT_JSON).write_bytes(content)
        start, message = self.resume(tmp_path, numbers, 5)
        assert start == Position(1)
        assert message.endswith(f"the checkpoint's order is unknown ({INPUT_JSON} is missing or damaged)")

    def test_an_older_checkpoint(self, numbers, tmp_path):
        self.resume(tmp_path, numbers, 0)
        self.resume(tmp_path, numbers, 10, records=16)
        start, message = self.resume(tmp_path, numbers, 5, records=16)
        assert start.record == 0
        assert "older than the order of input.json, which began at step 10" in message
