"""Settings that are tried in processes of their own."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from schemas.errors import MillraceError
from trainer.profiling import process_settings
from trainer.profiling.process_settings import AS_IT_IS, measure_processes
from trainer.profiling.training_process import WAY, turns
from trainer.profiling.turns import LEAST_ROUNDS, WARM_UP, Length
from trainer.spec.options import TrainOptions

BRIEF = Length(seconds=0.4, rounds=2)


@pytest.mark.parametrize(
    ("given", "cores", "expected"),
    [
        ({}, 8, ["--inter_op_threads 4", "--intra_op_threads 4", "--drop_remainder"]),
        ({}, 1, ["--drop_remainder"]),
        ({"inter_op_threads": 3, "drop_remainder": True}, 2, ["--inter_op_threads 6", "--intra_op_threads 1"]),
    ],
)
def test_half_of_the_threads_or_twice_what_was_asked_for(given, cores, expected):
    options = TrainOptions(data_dir="d", model_dir="", **given)
    found = process_settings.process_settings(options, cores)
    assert list(found) == [AS_IT_IS, *expected]
    for setting, changed in list(found.items())[1:]:
        flag, _, value = setting.removeprefix("--").partition(" ")
        settings: dict[str, Any] = {flag: int(value) if value else True}
        assert changed == dataclasses.replace(options, **settings)


def test_processes_that_take_long_to_start_are_told_of():
    options = TrainOptions(data_dir="d", model_dir="")
    assert process_settings.start_seconds(options, 2, 1.0) == 4 * (process_settings.TENSORFLOW_SECONDS + 1) / 2


@pytest.mark.slow
def test_trainings_in_processes_take_turns(people, tmp_path, monkeypatch):
    def two(options: TrainOptions, cores: int) -> dict[str, TrainOptions]:
        changed = dataclasses.replace(options, intra_op_threads=1, drop_remainder=True)
        return {AS_IT_IS: options, "changed": changed}

    monkeypatch.setattr(process_settings, "process_settings", two)
    model = "tests.support.paced_models:shape_printed"
    options = TrainOptions(data_dir=people.path, model_dir="", model=model, batch_size=16, hparams=(), seed=1)
    told: list[str] = []
    (tried,) = measure_processes(options, BRIEF, told.append, str(tmp_path))
    assert tried.setting == "changed"
    assert min(tried.before.seconds, tried.before.cpu, tried.after.seconds, tried.after.cpu) > 0
    turns_told = [line.rpartition(": ")[2] for line in told[1:]]
    assert turns_told == [AS_IT_IS, "changed"] * (len(turns_told) // 2)
    assert len(turns_told) >= 2 * LEAST_ROUNDS
    shapes = [next(tmp_path.glob(f"{place}/shape-*")).name for place in range(2)]
    assert shapes == ["shape-None", "shape-16"]


def test_a_process_that_fails_is_told_with_its_error(tmp_path):
    options = TrainOptions(data_dir=str(tmp_path / "none"), model_dir="", drop_remainder=True)
    with pytest.raises(
        MillraceError, match=r"the training as it is ended with exit code 2: .*/none: no manifest\.json"
    ):
        measure_processes(options, BRIEF, lambda line: None, str(tmp_path / "processes"))


def test_a_turn_is_timed_when_it_is_asked_for():
    answers: list[dict[str, float]] = []
    length = json.dumps(dataclasses.asdict(Length(seconds=60, rounds=1, steps=6)))
    steps = turns(iter([length, length]), answers.append)
    assert [next(steps) for _ in range(WARM_UP)] == [WAY] * WARM_UP
    assert answers == []
    next(steps)
    assert answers == [{}]
    assert len(list(steps)) == 2 * (2 + 6) - 1  # a third as many are not timed
    assert [answer.keys() for answer in answers[1:]] == [{"seconds", "cpu"}] * 2
