"""A replica's arguments: those of a training, also where a tuner has added to them."""

from __future__ import annotations

from tests.support.light_commands import assert_light
from trainer import task
from trainer.replica.command import trial_arguments

DIRS = ["--data_dir", "d", "--model_dir", "m"]


def test_what_a_tuner_tries_are_hyper_parameters() -> None:
    given = [*DIRS, "--max_steps=5", "--hparams", "dropout=0.1", "--learning_rate=0.01", "--hidden_units=64,32"]
    options = task.parse_options(trial_arguments(given, "replica"))
    assert options.max_steps == 5
    assert options.hparams == ("dropout=0.1", "learning_rate=0.01", "hidden_units=64,32")


def test_arguments_without_such_stay_as_they_are() -> None:
    assert trial_arguments([*DIRS, "--seed", "1"], "replica") == [*DIRS, "--seed", "1"]


def test_a_mistake_is_answered_before_tensorflow_is_imported() -> None:
    assert_light("trainer.replica", [*DIRS, "--max_steps", "0"], code=2, message="--max_steps 0: must be 1 or more")
