"""`--profile`: phases that add up, time that steps wait for their batch, a trace, and the setting most worth trying."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset
from tests.support.training import run
from trainer.loop.plan import plan_training
from trainer.loop.profile import (
    FIRST_TRACED,
    TRACED_STEPS,
    Phase,
    Profile,
    ProfileSteps,
    Stopwatch,
    advise,
)
from trainer.spec.options import TrainOptions


class HandClock:
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class TestStopwatch:
    def test_phases_within_phases_add_up(self):
        clock = HandClock()
        stopwatch = Stopwatch(90.0, clock)
        stopwatch.enter(Phase.STEPS)
        clock.now += 3
        with stopwatch.phase(Phase.EVALUATIONS):
            clock.now += 2
            with stopwatch.phase(Phase.REPORTS):
                clock.now += 1
            clock.now += 2
        clock.now += 4
        stopwatch.enter(Phase.REST)
        assert {phase: s for phase, s in stopwatch.seconds.items() if s} == {
            Phase.START: 10,
            Phase.STEPS: 7,
            Phase.EVALUATIONS: 4,
            Phase.REPORTS: 1,
        }


def test_a_step_that_waits_for_its_batch_is_time_of_the_input(tmp_path):
    """Every batch takes 20 ms to make, and is made when the step asks for it."""

    def slowly(value: tf.Tensor) -> Any:
        time.sleep(0.02)
        return value

    with tf.Graph().as_default():
        stopwatch = Stopwatch()
        hook = ProfileSteps(stopwatch, str(tmp_path))
        batch = hook.timed(tf.data.Dataset.range(5).map(lambda value: tf.py_function(slowly, [value], tf.int64)))
        with tf.compat.v1.train.SingularMonitoredSession(hooks=[hook]) as session:
            values = [int(session.run(batch)) for _ in range(5)]
    assert values == [0, 1, 2, 3, 4]
    assert stopwatch.seconds[Phase.INPUT] >= 2 * 0.02  # clocks may be set meanwhile
    assert (hook.steps, hook.has_trace) == (5, False)


@pytest.mark.slow
def test_a_training_says_where_its_time_went(late, tmp_path, capsys):
    model_dir = tmp_path / "model"
    assert run(late, model_dir, "--profile", "--deterministic", "--json") == 0
    out, err = capsys.readouterr()
    profile = json.loads(out)["profile"]
    assert list(profile["seconds"]) == [*Phase]
    assert all(profile["seconds"][phase] > 0 for phase in Phase if phase != Phase.REPORTS)
    assert profile["seconds"]["reports"] == 0  # with --no_report
    assert profile["steps"] == 40 >= FIRST_TRACED + TRACED_STEPS
    assert list(model_dir.glob("plugins/profile/*/*.xplane.pb"))
    assert "where the time went:\n  start " in err
    assert f"A trace of 10 steps for TensorBoard (pip install xprof) is in {model_dir}." in err
    assert "Most worth trying: " in err


def plan(dataset: OpenDataset, **flags: Any) -> Any:
    return plan_training(dataset, TrainOptions(data_dir=dataset.path, model_dir="", **flags))


def advised(dataset: OpenDataset, flags: dict[str, Any], seconds: Any, *, gpu: bool = False) -> str:
    return advise(dataset, plan(dataset, **flags), seconds, has_gpu=gpu) or ""


LONGEST = {phase: {other: 9.0 if other == phase else 1.0 for other in Phase} for phase in Phase}


class TestAdvice:
    @pytest.mark.parametrize(
        ("flags", "phase", "advice"),
        [
            ({"shuffle_buffer": 0}, Phase.INPUT, "leave out --shuffle_buffer, so that memory holds the split."),
            ({"deterministic": True, "seed": 1}, Phase.INPUT, "leave out --deterministic, which reads more slowly."),
            ({"max_steps": 120}, Phase.EVALUATIONS, "--save_checkpoints_steps 30 evaluates less often."),
            ({"early_stopping_steps": 1}, Phase.EVALUATIONS, "--no_report writes no report; "),  # cannot be rarer
        ],
    )
    def test_is_of_the_longest_phase(self, wages, flags, phase, advice):
        assert advised(wages, flags, LONGEST[phase]).startswith(advice)

    def test_a_gpu_takes_larger_batches(self, wages):
        assert advised(wages, {"batch_size": 16}, LONGEST[Phase.STEPS], gpu=True).startswith("--batch_size 64: ")

    def test_there_may_be_none(self, wages):
        every = {"no_report": True, "max_steps": 10, "save_checkpoints_steps": 10, "early_stopping_steps": 10}
        assert advise(wages, plan(wages, **every), LONGEST[Phase.STEPS], has_gpu=False) is None

    def test_images_that_are_decoded_in_every_epoch(self, stripes, monkeypatch):
        monkeypatch.setattr("trainer.data.input_options.memory_at_first", lambda: 0)
        assert "store: raw" in advised(stripes, {"augment": ("color_jitter=0.4",)}, LONGEST[Phase.INPUT])


def test_shares_are_of_the_whole():
    seconds = {**dict.fromkeys(Phase, 0.0), Phase.INPUT: 1.0, Phase.STEPS: 3.0}
    lines = Profile(seconds, 100, None, None).lines()
    assert "  input            1.00 s   25%  steps wait for their batch" in lines
    assert lines[-3:] == [
        "  in all           4.00 s",
        "A step took 40.00 ms: it waited 10.00 ms, and computed for 30.00 ms.",
        "No setting is known to make this training faster.",
    ]
