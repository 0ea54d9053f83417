"""Plans a training: fills in the options that the user left out.

A new training is planned by the size of its data. Its length is counted in epochs, so that a small table is not read
hundreds of times, and a large table is not read only in part. If the model directory has a checkpoint, the training
continues with the settings that `model.json` records. A flag that the user gives takes precedence over both.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.errors import UsageError, counted
from schemas.exports.notes import FINAL, numbered
from schemas.spec.features import CategoryLabel, Text
from trainer.model_dir.model_json import (
    Metrics,
    RecordedPlan,
    RecordedTraining,
    check_trusted,
    read_evaluations,
    read_model_manifest,
)
from trainer.models import BUILT_IN, is_grown
from trainer.models.selection import check_model
from trainer.spec.hparams import parse_hparams, settings_of, split_settings
from trainer.spec.metrics import best_metric
from trainer.spec.options import TrainingPlan, TrainOptions
from trainer.spec.task_spec import AS_IT_IS


@dataclasses.dataclass(frozen=True)
class Pace:
    """How long a model is trained, and with which hyper-parameters.

    Attributes:
      epochs: how often the train split is read.
      hparams: hyper-parameters by name. Hyper-parameters that the user gives take precedence.
      below_rows: the pace is for train splits with fewer rows than this.
      from_rows: the pace is for train splits with at least this many rows.
      best_metric: the metric that chooses the best export, unless the user names one; None: the loss.
    """

    epochs: float = 15.0
    hparams: Mapping[str, float] = dataclasses.field(default_factory=dict)
    below_rows: float = math.inf
    from_rows: int = 0
    best_metric: str | None = None


ANY = Pace()
# `tabular` on few rows. At the usual rate, the model would learn the rows by heart within a few epochs; even the
# smallest number of steps makes dozens of epochs.
SMALL = Pace(hparams={"learning_rate": 0.001, "frequency_scale": 0.1}, below_rows=640)
# `tabular` on a few thousand rows whose label is a number. 15 epochs are too short to learn the places in a column at
# which the label jumps.
NUMBERS = Pace(45.0, {"learning_rate": 0.002, "frequency_scale": 2.0, "weight_decay": 0.3}, below_rows=12_800)
# `tabular` on many rows whose label is a class. The default, a low frequency scale, gives smooth embeddings of numbers.
# They keep the model from learning few rows by heart, but they cannot represent the places in a column at which the
# class changes.
MANY_OF_CLASSES = Pace(hparams={"frequency_scale": 1.0}, from_rows=10_000)
# An epoch has as many pairs as images, which are a small part of all possible pairs. On people outside of the train
# split, the loss is smallest early, when all probabilities are near one half; the order of the pairs still improves
# later.
PAIRS = Pace(40.0, best_metric="auc")
LEAST_STEPS, MOST_STEPS = 300, 20_000
MOST_COUNTED = 2**53  # steps: a float represents every integer up to this
EVALUATIONS = 12
MOST_BETWEEN = 10_000  # steps between two checkpoints: a crash loses at most so many
BATCHES = (512, 256, 128, 64)  # batch sizes for rows; an epoch should have at least STEPS_AN_EPOCH steps
STEPS_AN_EPOCH = 50
IMAGES = 64
FEW_IMAGES = 1_000  # with fewer, `convnet` learns more than `squeezenext`


def plan_training(dataset: OpenDataset, options: TrainOptions) -> TrainingPlan:
    """Fills in the options of a training that the user left out.

    A new training reads the train split 15 times, in 300 to 20,000 steps, and is evaluated a dozen times. It ends early
    when evaluations have not improved for a third of its length. A resumed training continues as `model.json` records.

    Args:
      dataset: the dataset.
      options: the options as the user gave them.

    Raises:
      UsageError: the options do not fit the training that is recorded in the model directory, or ask for too many
        steps.
    """
    before = _recorded(options.model_dir) if options.model_dir else None
    if before is not None:
        return _resumed(dataset, options, before)
    images = dataset.image_schema is not None
    rows = max(dataset.rows("train"), 1)
    batch = options.batch_size or (IMAGES if images else _batch(rows))
    model = options.model or _model(dataset, rows)
    pace = _pace(dataset, model, rows)
    steps = _steps(options, rows, batch) or _by_data(pace.epochs, rows, batch)
    every, patience = _evaluated(options, steps)
    settings = settings_of(pace.hparams, without=options.hparams)
    plan = _plan(
        options,
        model=model,
        hparams=(*settings, *options.hparams),
        batch_size=batch,
        max_steps=steps,
        save_checkpoints_steps=every,
        early_stopping_steps=patience,
        best_metric=options.best_metric or pace.best_metric,
    )
    if is_grown(plan.model):
        return dataclasses.replace(plan, chosen=_rounds_summary(plan))
    size = f"{pace.from_rows:,} rows or more" if pace.from_rows else f"fewer than {pace.below_rows:,} rows"
    reason = f"; for {size}: {' '.join(settings)}" if settings else ""
    return dataclasses.replace(plan, chosen=f"{_summary(plan, rows)}{reason}")


def _steps(options: TrainOptions, rows: int, batch: int) -> int | None:
    """Returns the number of steps that --max_steps or --epochs asks for; None if neither is given.

    Raises:
      UsageError: the number is above `MOST_COUNTED`.
    """
    name, length = ("max_steps", options.max_steps) if options.epochs is None else ("epochs", options.epochs)
    if length is None:
        return None
    steps = length if options.epochs is None else length * rows / batch
    if steps > MOST_COUNTED:
        raise UsageError(f"--{name} {length}: is more than {MOST_COUNTED:,} steps; train for fewer")
    return math.ceil(steps)


def _by_data(epochs: float, rows: int, batch: int) -> int:
    """Returns the number of steps in a number of epochs, at least `LEAST_STEPS` and at most `MOST_STEPS`."""
    return min(max(math.ceil(epochs * rows / batch), LEAST_STEPS), MOST_STEPS)


def _pace(dataset: OpenDataset, model: str, rows: int) -> Pace:
    """Returns the pace for a model and a number of rows."""
    if dataset.image_schema is not None:
        return PAIRS if dataset.image_schema.pairs and model in BUILT_IN else ANY
    if model != "tabular":
        return ANY
    if rows < SMALL.below_rows:
        # Each n-gram occurs in few rows, so its weight would not move far at a low learning rate.
        has_ngrams = any(isinstance(feature, Text) and feature.weighted for feature in dataset.schema.inputs)
        return ANY if has_ngrams else SMALL
    is_number = not isinstance(dataset.schema.label, CategoryLabel)
    if is_number:
        return NUMBERS if rows < NUMBERS.below_rows else ANY
    return MANY_OF_CLASSES if rows >= MANY_OF_CLASSES.from_rows else ANY


def _batch(rows: int) -> int:
    """Returns the batch size for a table: the largest with at least `STEPS_AN_EPOCH` steps in an epoch."""
    return next((size for size in BATCHES if rows >= STEPS_AN_EPOCH * size), BATCHES[-1])


def _model(dataset: OpenDataset, rows: int) -> str:
    """Returns the default model for the data."""
    if dataset.image_schema is None:
        return "tabular"
    if dataset.image_schema.pairs:
        return "face_pairs"
    return "convnet" if rows < FEW_IMAGES else "squeezenext"


def _evaluated(options: TrainOptions, steps: int) -> tuple[int, int]:
    """Returns the steps between evaluations, and the steps without improvement that end the training."""
    every, patience = options.save_checkpoints_steps, options.early_stopping_steps
    if every is None:
        # A dozen evaluations, but at least one within the patience, and never too long without a checkpoint.
        every = min(math.ceil(steps / EVALUATIONS), MOST_BETWEEN, patience or MOST_BETWEEN)
    return every, max(every, math.ceil(steps / 3)) if patience is None else patience


def _plan(options: TrainOptions, **chosen: Any) -> TrainingPlan:
    """Returns the options as a plan, with the chosen values."""
    return TrainingPlan(**{**vars(options), "epochs": None, **chosen})


def _recorded(model_dir: str) -> RecordedTraining | None:
    """Returns the training that `model.json` records; None if the directory has no checkpoint or no `model.json`."""
    if not storage.exists(layout.join(model_dir, "checkpoint")):
        return None
    manifest = read_model_manifest(model_dir)
    return None if manifest is None else manifest.current


def _resumed(dataset: OpenDataset, options: TrainOptions, before: RecordedTraining) -> TrainingPlan:
    """Returns the plan of a training that resumes.

    Raises:
      UsageError: `model.json`, but not the user, names a function or a file to use, and `model.json` is not trusted; or
        `--best_metric` differs from the metric by which the best export was chosen.
    """
    rows, last = max(dataset.rows("train"), 1), before.plan
    batch = options.batch_size or last.batch_size
    steps = _steps(options, rows, batch) or last.max_steps
    every, patience = options.save_checkpoints_steps, options.early_stopping_steps
    if patience is None:
        patience = _patience(last, every, 0 if steps == last.max_steps else math.ceil(steps / 3))
    model = options.model or before.model
    hparams = options.hparams
    path_named = any(setting.startswith("path=") for setting in split_settings(hparams))
    named = path_named if model in BUILT_IN else options.model is not None
    if model == before.model and not named:
        flag = "--hparams path=PATH" if model in BUILT_IN else f"--model {model}"
        check_trusted(before, options.model_dir, trust=options.trust, instead=f", or {flag}")
    if model == before.model:
        hparams = (*settings_of(before.hparams, without=hparams), *hparams)
    plan = _plan(
        options,
        model=model,
        hparams=hparams,
        batch_size=batch,
        max_steps=steps,
        save_checkpoints_steps=every or min(last.save_checkpoints_steps, patience or last.save_checkpoints_steps),
        early_stopping_steps=patience,
        patience_from=_patience_from(options.model_dir, last, steps, patience),
        best_metric=last.best_metric,
        label=last.label,
    )
    if options.best_metric not in (None, last.best_metric):
        raise UsageError(
            f"--best_metric {options.best_metric}: the best checkpoint of {options.model_dir} is chosen by "
            f"{last.best_metric or 'the loss'}; leave it out, or use another --model_dir"
        )
    check_model(plan)
    summary = _rounds_summary(plan) if is_grown(model) else _summary(plan, rows)
    return dataclasses.replace(plan, chosen=f"{summary}: {_state(before, plan)}")


def _state(before: RecordedTraining, plan: TrainingPlan) -> str:
    """Describes how a training continues from the checkpoint in its directory.

    Raises:
      UsageError: the directory holds finished trees, which cannot be grown further.
    """
    folder, step = plan.model_dir, _last_step(plan.model_dir)
    if plan.model != before.model:
        return f"{folder} holds a {before.model} model"
    if is_grown(plan.model):
        if numbered(layout.join(folder, "export", FINAL)):
            raise UsageError(
                f"{folder}: holds a finished training, and boosted trees are not grown further; use another --model_dir"
            )
        return f"those of {folder} are grown, and are evaluated and exported"
    changed = _changed(before, plan)
    if step >= plan.max_steps:
        return f"{folder} is at step {step:,}, so nothing is left to train{changed}"
    ended = ended_early(plan, step)
    if ended is not None:
        return f"{folder} ended at step {step:,} with {ended}, so nothing is left to train{changed}"
    return f"{folder} resumes at step {step:,}{changed}"


def _changed(before: RecordedTraining, plan: TrainingPlan) -> str:
    """Lists the settings of the plan that differ from the recorded ones; '' if there are none."""
    now = as_recorded(plan).model_dump(exclude={"patience_from", "label"})
    was = {name: getattr(before.plan, name) for name in now}
    changes = [f"{name} {now[name]} (was {was[name] or 'not set'})" for name in now if now[name] != was[name]]
    return f", with {', '.join(changes)}" if changes else ""


def _last_step(model_dir: str) -> int:
    """Returns the step of the last checkpoint, from the file that names it; 0 if there is no step in the file."""
    first = storage.read_bytes(layout.join(model_dir, "checkpoint")).partition(b"\n")[0]
    match = re.search(rb'-([0-9]+)"', first)
    return int(match[1]) if match else 0


def _patience(last: RecordedPlan, every: int | None, longer: int) -> int:
    """Returns the patience of a resumed training, at least as long as before; 0 (no early stopping) stays 0."""
    return max(last.early_stopping_steps, every or 0, longer) if last.early_stopping_steps else 0


def _patience_from(model_dir: str, last: RecordedPlan, steps: int, patience: int) -> int:
    """Returns the step from which a resumed training counts steps without improvement.

    A user who makes a training longer or more patient wants it to continue, even if its best evaluation is long ago. In
    that case, counting starts at the last evaluation.
    """
    if steps <= last.max_steps and (patience or math.inf) <= (last.early_stopping_steps or math.inf):
        return last.patience_from
    return max((int(evaluation["global_step"]) for evaluation in read_evaluations(model_dir)), default=0)


def _summary(plan: TrainingPlan, rows: int) -> str:
    """Describes a plan in one line: model, steps, batch size, epochs, evaluations and early stopping."""
    epochs = plan.max_steps * plan.batch_size / rows
    patience = plan.early_stopping_steps
    stops = f", stopping after {counted(patience, 'steps')} without improvement" if patience else ""
    return (
        f"{plan.model}, {counted(plan.max_steps, 'steps')} of {counted(plan.batch_size, 'examples')} "
        f"({counted(epochs, 'epochs', ',.3g')} of {rows:,}), evaluated every "
        f"{counted(plan.save_checkpoints_steps, 'steps')}{stops}"
    )


def _rounds_summary(plan: TrainingPlan) -> str:
    """Describes a plan for boosted trees in one line."""
    hparams = parse_hparams(BUILT_IN[plan.model].hparams, plan.hparams, model=plan.model)
    patience = (
        0 if plan.eval_split == "train" else hparams.early_stopping_round
    )  # the loss on the train split never stops it
    stops = f", stopping after {patience:,} without improvement on {plan.eval_split}" if patience else ""
    return f"{plan.model}, up to {counted(hparams.num_iterations, 'rounds')}{stops}"


def as_recorded(plan: TrainingPlan) -> RecordedPlan:
    """Returns the part of a plan that `model.json` records."""
    return RecordedPlan(
        batch_size=plan.batch_size,
        max_steps=plan.max_steps,
        save_checkpoints_steps=plan.save_checkpoints_steps,
        early_stopping_steps=plan.early_stopping_steps,
        patience_from=plan.patience_from,
        best_metric=plan.best_metric,
        eval_split=plan.eval_split,
        label=plan.label or AS_IT_IS,
    )


def ended_early(plan: TrainingPlan, step: int) -> str | None:
    """Returns why the training ends at a step, or None if it continues.

    It ends if evaluations up to this step have not improved for `early_stopping_steps`. The answer depends only on the
    recorded evaluations, so a training that was interrupted ends at the same step as it would have without
    interruption.
    """
    if not plan.early_stopping_steps:
        return None
    # After resuming from an earlier checkpoint, evaluations of later steps belong to the discarded training.
    evaluations = [e for e in read_evaluations(plan.model_dir) if e["global_step"] <= step]
    worse = steps_without_improvement(evaluations, metric=plan.best_metric, since=plan.patience_from)
    return None if worse < plan.early_stopping_steps else f"no better evaluation for {counted(worse, 'steps')}"


def steps_without_improvement(evaluations: list[Metrics], *, metric: str | None, since: int = 0) -> int:
    """Returns the number of steps from the best evaluation, or from `since` if that is later, to the last evaluation.

    Args:
      evaluations: the metrics of each evaluation with `global_step`, in the order of steps.
      metric: the metric that selects the best export; None: the loss.
      since: the step from which counting starts at the earliest.

    Raises:
      UsageError: the evaluations have no such metric.
    """
    if not evaluations:
        return 0
    measure = best_metric(evaluations[-1], metric)
    best: float | None = None
    best_step = evaluations[0]["global_step"]
    for evaluation in evaluations:
        value = evaluation.get(measure.name)
        if value is not None and measure.improves(value, best):
            best, best_step = value, evaluation["global_step"]
    return max(0, int(evaluations[-1]["global_step"] - max(best_step, since)))
