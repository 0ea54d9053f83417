"""The arguments of a trial: what a tuner has added to those of the training."""

from __future__ import annotations

import pytest

from trainer import task
from trainer.replica.command import trial_arguments

DIRS = ["--data_dir", "d", "--model_dir", "m"]


@pytest.mark.parametrize(
    "tried",
    [
        ["--learning_rate=0.01", "--hidden_units=64,32", "--batch_size=64"],
        ["--learning_rate", "0.01", "--hidden_units", "64,32", "--batch_size", "64"],  # as in Google's documentation
    ],
)
def test_what_is_no_flag_of_the_training_is_a_hyper_parameter(tried: list[str]) -> None:
    given = [*DIRS, "--max_steps=5", "--eval_steps", "64", "--hparams", "dropout=0.1", *tried]
    options = task.parse_options(trial_arguments(given, "replica"))
    assert (options.max_steps, options.eval_steps, options.batch_size) == (5, 64, 64)
    assert options.hparams == ("dropout=0.1", "learning_rate=0.01", "hidden_units=64,32")


@pytest.mark.parametrize("more", [["--seed", "1"], ["--unknown"], ["--unknown", "--quiet"]])
def test_other_arguments_stay_as_they_are(more: list[str]) -> None:
    assert trial_arguments([*DIRS, *more], "replica") == [*DIRS, *more]


def test_a_negative_number_is_a_value() -> None:
    assert trial_arguments([*DIRS, "--shift", "-0.5"], "replica") == [*DIRS, "--hparams", "shift=-0.5"]
