"""Trainings, by the command or by calling Estimator, and their results."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from schemas.dataset import OpenDataset
from schemas.exports.session import plain_session
from trainer import task
from trainer.estimator import tf_estimator
from trainer.evaluation.watch import Watch
from trainer.export.outputs import with_keys_and_classes

ALL_STEPS = ("--early_stopping_steps", "0")


@dataclasses.dataclass
class Trained:
    """An Estimator, and the dataset that it was trained on."""

    dataset: Any
    estimator: Any

    @property
    def folder(self) -> Path:
        return Path(self.estimator.model_dir)


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A model directory of `trainer.task`, and its best export."""

    model_dir: Path

    @property
    def export(self) -> Path:
        (export,) = (path for path in (self.model_dir / "export" / "best").iterdir() if path.name.isdecimal())
        return export


def measured(estimator: Any, dataset: Any) -> Any:
    """An Estimator as `trainer.task` wraps it: with keys and classes, and its evaluations measured."""
    watch = Watch(dataset)
    return with_keys_and_classes(estimator, dataset, watch=watch)


def brief_config(model_dir: object, **settings: Any) -> Any:
    """The `RunConfig` of a training of few steps: it neither optimizes its graph nor writes it, which takes longer."""
    return tf_estimator.RunConfig(
        model_dir=str(model_dir),
        tf_random_seed=1,
        session_config=plain_session(),
        checkpoint_save_graph_def=False,
        **settings,
    )


def run(dataset, model_dir, *argv: str, model: str = "softmax", steps: int = 40) -> int:
    """The exit code of `trainer.task`, with a checkpoint and an evaluation every 20 steps, and without a report.

    Of the built-in models, `softmax` has the smallest graphs: its training takes half as long as that of `linear`.
    It takes all of its steps, unless `argv` has another `--early_stopping_steps`: whether an evaluation is better
    than the last one depends on the machine's arithmetic.
    """
    fixed = ["--data_dir", dataset.path, "--model_dir", str(model_dir), "--model", model, "--max_steps", str(steps)]
    fixed += ["--save_checkpoints_steps", "20", "--batch_size", "32", "--seed", "1", "--no_report", *ALL_STEPS]
    return task.main([*fixed, *argv])


def train_own(dataset: OpenDataset, model_dir: Path, *, steps: int) -> None:
    """Trains `own_image_models`, evaluates and exports it once."""
    argv = ["--data_dir", dataset.path, "--model_dir", str(model_dir)]
    argv += ["--model", "tests.support.own_models:image_model_fn", "--max_steps", str(steps), "--batch_size", "16"]
    assert task.main([*argv, "--save_checkpoints_steps", str(steps), "--seed", "1", "--no_report"]) == 0
