"""A training that is killed in the middle of an epoch goes on with the records that it has not read, by their ids."""

from __future__ import annotations

import collections
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import Dataset
from tests.support.forking_trainer import Forking
from trainer.data.input_options import InputOptions, Position
from trainer.model_dir.input_order import INPUT_JSON, resume_input

pytestmark = pytest.mark.long

BATCH, SAVED = 32, 7
EXACT = ("--batch_size", str(BATCH), "--seed", "1", "--deterministic")


@pytest.fixture(scope="module")
def trainer():
    with Forking() as forking:
        yield forking


class Training:
    """Trainings in one model directory, and what each step of them has read."""

    def __init__(self, trainer: Forking, dataset: Dataset, folder: Path) -> None:
        self.trainer, self.dataset, self.folder = trainer, dataset, folder
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
        found: dict[int, list[int]] = {}
        for step, replica in sorted(last):
            found.setdefault(step, []).extend(last[step, replica])
        return found

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture(scope="module")
def whole(trainer, numbers, tmp_path_factory) -> dict[int, list[int]]:
    """What each step of an uninterrupted training on one device has read."""
    training = Training(trainer, numbers, tmp_path_factory.mktemp("reading") / "whole")
    assert training.run(steps_of(numbers), *EXACT) == 0, training.log
    return training.by_step()


def steps_of(dataset: Dataset) -> int:
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
def test_after_a_signal_training_reads_what_it_has_not_read(trainer, numbers, whole, tmp_path, flags, signals):
    training, rows, steps = Training(trainer, numbers, tmp_path / "killed"), numbers.rows("train"), steps_of(numbers)
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


class TestWhereItBegins:
    """By the step of the checkpoint, of a batch of 32; 10 steps are most of an epoch."""

    @staticmethod
    def resume(model_dir: Path, dataset: Dataset, step: int, *, exact: bool = True, **changed: Any) -> tuple:
        records = changed.pop("records", BATCH)
        options = InputOptions(**{"batch_size": records, "seed": 1, "deterministic": True, **changed})
        return resume_input(str(model_dir), dataset, options, step=step, records=records, exact=exact)

    def test_a_new_training(self, numbers, tmp_path):
        assert self.resume(tmp_path, numbers, 0) == (Position(), "")

    def test_goes_on(self, numbers, tmp_path):
        rows = numbers.rows("train")
        self.resume(tmp_path, numbers, 0)
        told = f"input: goes on in epoch 2 after {20 * BATCH - rows} of {rows} records"
        for _ in range(2):
            assert self.resume(tmp_path, numbers, 20) == (Position(1, 20 * BATCH - rows), told)

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
        start, told = self.resume(tmp_path, numbers, 6, **changed)
        if changed.get("exact", True):
            assert start == Position(1, changed.get("records", BATCH))
        else:
            assert (start, told) == (Position(1), f"input: begins epoch 2: {reason}")

    def test_settings_that_do_not_change_the_order(self, numbers, tmp_path):
        self.resume(tmp_path, numbers, 0)
        assert self.resume(tmp_path, numbers, 5, prefetch=3, read_threads=2)[0] == Position(0, 5 * BATCH)

    def test_other_data(self, numbers, wages, tmp_path):
        self.resume(tmp_path, numbers, 0)
        start, told = self.resume(tmp_path, wages, 5)
        assert start.record == 0
        assert f"data_run was {numbers.run}, and is {wages.run}" in told

    @pytest.mark.parametrize("content", [None, b"{", b"{}"])
    def test_an_unknown_order(self, numbers, tmp_path, content):
        if content is not None:
            (tmp_path / INPUT_JSON).write_bytes(content)
        start, told = self.resume(tmp_path, numbers, 5)
        assert start == Position(1)
        assert told.endswith(f"the checkpoint's order is unknown ({INPUT_JSON} is missing or damaged)")

    def test_an_older_checkpoint(self, numbers, tmp_path):
        self.resume(tmp_path, numbers, 0)
        self.resume(tmp_path, numbers, 10, records=16)
        start, told = self.resume(tmp_path, numbers, 5, records=16)
        assert start.record == 0
        assert "older than the order of input.json, which began at step 10" in told
