"""What this process of a training does between its steps: shows progress, and stops with the others."""

from __future__ import annotations

from typing import Any

from schemas.dataset import Dataset
from trainer.estimator.all_reduce import is_all_reduce
from trainer.loop.early_stopping import EarlyStopping, StopWithChief
from trainer.loop.progress import Display, ProgressHook
from trainer.spec.options import TrainOptions
from trainer.strategies.multi_worker import StopTogether, WithOthers


def training_hooks(dataset: Dataset, options: TrainOptions, config: Any, display: Display) -> list[Any]:
    """The hooks of the task that a `RunConfig` names: one process that trains alone, a chief, a worker."""
    hooks: list[Any] = []
    together = is_all_reduce(config)
    if together:
        hooks.append(WithOthers(config, display.line))
    if config.is_chief:
        batch_size = options.batch(images=dataset.image_schema is not None)
        sizes = {"max_steps": options.max_steps, "batch_size": batch_size}
        hooks.append(ProgressHook(display, **sizes, steps_an_epoch=options.steps_an_epoch(dataset)))
    elif config.task_type == "worker" and not together:
        hooks.append(StopWithChief(options.model_dir))
    if options.early_stopping_steps is not None and (config.is_chief or together):
        every = max(1, options.evaluation_steps // 10)
        stopping = EarlyStopping(
            options.model_dir,
            dataset,
            patience=options.early_stopping_steps,
            metric=options.best_metric,
            check_every=every,
        )
        # The chief alone decides: another task may see an evaluation a step later.
        decides = stopping.decides if config.is_chief else _never
        hooks.append(StopTogether(decides, every=every) if together else stopping)
    return hooks


def _never(step: int) -> bool:
    return False
