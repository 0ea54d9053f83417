"""A training that resumes: where its input begins, and with which learning rate it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schemas.dataset import Dataset
from schemas.errors import MillraceError
from trainer.data.interleave import part_rows
from trainer.data.position import Position
from trainer.data.reading import input_options
from trainer.estimator import tf_estimator
from trainer.estimator.all_reduce import is_all_reduce
from trainer.model_dir.input_order import resume_input
from trainer.models import BUILT_IN
from trainer.spec.options import TrainOptions


def input_start(
    dataset: Dataset, options: TrainOptions, config: Any, *, step: int, tell: Callable[[str], None]
) -> Position:
    """The first record of the train split that is not read yet, as far as that is known; else an epoch's beginning.

    Args:
      dataset: the dataset.
      options: those of the training.
      config: the `RunConfig`. Where tasks of a cluster read at speeds of their own, each begins an epoch.
      step: that of the checkpoint.
      tell: called with a line that says where it begins, if training resumes.

    Raises:
      MillraceError: there are fewer records than tasks.
    """
    records = options.batch(images=dataset.image_schema is not None)
    together = is_all_reduce(config)
    if not (config.is_chief or together):
        return Position().after(step * records, rows=dataset.rows("train")).next_epoch()
    read = input_options(dataset, options, split="train", mode=tf_estimator.ModeKeys.TRAIN)
    if together:
        read = read.for_task(config)
    if not part_rows(dataset, "train", num_workers=read.num_workers, worker=read.worker):
        raise MillraceError(f"{dataset.path}: too few records for {read.num_workers} tasks to train on; use fewer")
    resumed = resume_input(
        options.model_dir,
        dataset,
        read,
        step=step,
        records=records,
        exact=options.deterministic and options.seed is not None and (together or not config.cluster_spec),
        note=config.is_chief,
    )
    if not config.is_chief:
        return resumed.start
    if resumed.told and step < options.max_steps:
        tell(resumed.told)
    return resumed.start


def tell_resumed(options: TrainOptions, hparams: Any, *, step: int, tell: Callable[[str], None]) -> None:
    """Says with which learning rate a training goes on, or begins from the weights of another one.

    Args:
      options: those of the training.
      hparams: the model's hyper-parameters. Of a model of one's own, the rate is not known.
      step: that of the checkpoint; 0: it begins.
      tell: called with each line.
    """
    if step and options.warm_start_from is not None:
        tell(f"warm start: none, since {options.model_dir} has a checkpoint of its own, from which training resumes")
    left = options.max_steps - step
    if options.model not in BUILT_IN or left <= 0 or not (step or options.warm_start_from):
        return
    rates = [BUILT_IN[options.model].rate(hparams, at, options.max_steps) for at in (step, options.max_steps - 1)]
    tell(f"learning rate: {rates[0]:.3g} at step {step:,}, {rates[1]:.3g} at the last step, {options.max_steps - 1:,}")
