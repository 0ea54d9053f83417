"""A replica's arguments: those of a training."""

from __future__ import annotations

from tests.support.light_commands import assert_light


def test_a_mistake_is_answered_before_tensorflow_is_imported() -> None:
    argv = ["--data_dir", "d", "--model_dir", "m", "--max_steps", "0"]
    assert_light("trainer.replica", argv, code=2, message="--max_steps 0: must be 1 or more")
