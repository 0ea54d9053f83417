"""Builds the Estimator for a training's options, and finds where a resumed training continues to read its input."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.errors import UsageError
from trainer.data.input_fn import training_spec
from trainer.data.input_options import Position, input_options
from trainer.data.labels import measure_label
from trainer.estimator import tf_estimator
from trainer.export.outputs import Measure, with_keys_and_classes
from trainer.model_dir.input_order import resume_input
from trainer.models import BUILT_IN, BuiltIn, custom
from trainer.models.optimizers import learning_rate
from trainer.models.warm_start import WarmStart, checkpoint_at
from trainer.spec.hparams import parse_hparams
from trainer.spec.options import TrainingPlan
from trainer.spec.task_spec import AS_IT_IS, Ids, TaskSpec, read_table_task_spec, read_task_spec
from trainer.strategies.tpu import as_tpu_estimator


def input_start(
    dataset: OpenDataset, options: TrainingPlan, config: Any, *, step: int, tell: Callable[[str], None]
) -> Position:
    """Returns the place in the train split where the training begins to read.

    This is the first record that has not been read yet, if that can be known. Otherwise it is the beginning of an
    epoch.

    Args:
      dataset: the dataset.
      options: the options of the training.
      config: the `RunConfig`. In a cluster, the tasks read at different speeds, so each task begins at an epoch.
      step: the step of the checkpoint from which the training resumes; 0 if it begins.
      tell: prints a message; called if the training resumes.
    """
    records = options.batch_size
    if not config.is_chief:
        return Position().after(step * records, rows=dataset.rows("train")).next_epoch()
    read = input_options(dataset, options, split="train", mode=tf_estimator.ModeKeys.TRAIN)
    start, line = resume_input(
        options.model_dir,
        dataset,
        read,
        step=step,
        records=records,
        exact=options.deterministic and options.seed is not None and not config.cluster_spec,
    )
    if line and step < options.max_steps:
        tell(line)
    return start


def tell_resumed(options: TrainingPlan, hparams: Any, *, step: int, tell: Callable[[str], None]) -> None:
    """Prints the learning rate with which a training resumes, or begins with the weights of another training.

    Args:
      options: the options of the training.
      hparams: the model's hyper-parameters. The rate of a user's own model is not known and not printed.
      step: the step of the checkpoint; 0 if the training begins.
      tell: prints a message.
    """
    if step and options.warm_start_from is not None:
        tell(f"warm start: none, since {options.model_dir} has a checkpoint of its own, from which training resumes")
    left = options.max_steps - step
    if options.model not in BUILT_IN or left <= 0 or not (step or options.warm_start_from):
        return
    kind, last = BUILT_IN[options.model].rate, options.max_steps - 1
    rates = [float(learning_rate(kind, hparams, at, options.max_steps)) for at in (step, last)]
    tell(f"learning rate: {rates[0]:.3g} at step {step:,}, {rates[1]:.3g} at the last step, {last:,}")


def find_model(options: TrainingPlan) -> tuple[BuiltIn | custom.Custom, Any]:
    """Returns the model that the options name, and its hyper-parameters.

    Raises:
      UsageError: the model or a hyper-parameter is unknown.
    """
    model = BUILT_IN[options.model] if options.model in BUILT_IN else custom.load(options.model)
    return model, parse_hparams(model.hparams, options.hparams, model=options.model)


def with_label(dataset: OpenDataset, options: TrainingPlan) -> TrainingPlan:
    """Returns the plan with its `label` filled in: the scale of the label, measured in the train split.

    A plan that already has a `label` (from `model.json`, when a training resumes) is returned unchanged.

    Raises:
      MillraceError: a numeric label is the same in all records, or has no logarithm although the model learns it.
    """
    if options.label is not None:
        return options
    label = AS_IT_IS
    if options.model in BUILT_IN and BUILT_IN[options.model].scales_label:
        spec = read_task_spec(dataset)
        if isinstance(spec, TaskSpec):  # images always have a class
            label = measure_label(dataset, spec.classes)
    return dataclasses.replace(options, label=label)


def check_compiles(dataset: OpenDataset, options: TrainingPlan) -> None:
    """Refuses a dataset with features that XLA cannot compile for a TPU.

    Raises:
      UsageError: names the first such feature.
    """
    built_in, reasons = options.model in BUILT_IN, {}
    if dataset.image_schema is not None:
        if built_in:
            reason = "images are normalized by the dataset's transform graph, which holds strings"
            reasons = dict.fromkeys(dataset.image_schema.image_names, reason)
    else:
        inputs = read_table_task_spec(dataset).inputs if built_in else ()
        ids = [entry.name for entry in inputs if isinstance(entry, Ids)]
        reasons = dict.fromkeys(ids, "TensorFlow's feature columns make sparse tensors of ids")
        for name, entry in training_spec(dataset).items():
            if entry.dtype == tf.string or not isinstance(entry, tf.io.FixedLenFeature):
                reasons[name] = "it is a list or a text, and no dense tensor of numbers"
    for name, reason in reasons.items():
        raise UsageError(
            f"--tpu: XLA cannot compile a step that reads {name!r} for a TPU: {reason}. Train without --tpu, or "
            "without this feature"
        )


def build_estimator(
    dataset: OpenDataset,
    options: TrainingPlan,
    config: Any,
    tell: Callable[[str], None] = lambda line: None,
    watch: Measure | None = None,
) -> Any:
    """Builds the Estimator for a training's options, with its files in `config.model_dir`.

    Args:
      dataset: the dataset.
      options: the options of the training.
      config: the `RunConfig`.
      tell: prints a message.
      watch: computes the metrics of evaluations; None: no metrics are computed.

    Raises:
      UsageError: the model or a hyper-parameter is unknown, the model cannot read such data, or --tpu is given and the
        model cannot be trained on a TPU.
      MillraceError: no model can be built for the dataset.
    """
    model, hparams = find_model(options)
    if options.seed is not None and isinstance(model, custom.Custom):
        # Keras layers draw their initial weights from Keras's own generator, which ignores the Estimator's seed.
        tf.keras.utils.set_random_seed(options.seed)
    task_spec = read_task_spec(dataset, max_steps=options.max_steps, label=options.label)
    if options.tpu is not None:
        check_compiles(dataset, options)
    warm_start = None
    if options.warm_start_from is not None:
        warm_start = WarmStart(options.warm_start_from, options.warm_start_vars or "", tell)
        if tf.train.latest_checkpoint(options.model_dir) is None:
            checkpoint_at(options.warm_start_from, flag="--warm_start_from ")  # raises before a graph is built
    estimator = with_keys_and_classes(
        model.build(task_spec, hparams, config), dataset, warm_start=warm_start, watch=watch
    )
    if options.tpu is None:
        return estimator
    size, eval_size = (input_options(dataset, options, split="train", mode=m).batch_size for m in ("train", "eval"))
    return as_tpu_estimator(estimator, options, batch_size=size, eval_batch_size=eval_size)
