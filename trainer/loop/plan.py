"""Plans a training where its options leave it open: by the data, or as its checkpoint was trained before.

Steps are counted in epochs, so that a small table is not read hundreds of times, nor a large one once in part. A model
directory with a checkpoint keeps what `model.json` records of its training. A flag that is given counts before both.
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
      hparams: by name, unless the user gives them.
      below_rows: the size of the train split from which on another pace is better.
      from_rows: the size from which on this pace is better than another.
      best_metric: the metric that chooses the best export, unless the user names one; None: the loss.
    """

    epochs: float = 15.0
    hparams: Mapping[str, float] = dataclasses.field(default_factory=dict)
    below_rows: float = math.inf
    from_rows: int = 0
    best_metric: str | None = None


ANY = Pace()
# `tabular` on few rows: it would learn them by heart within a few epochs, of which the least of steps makes dozens.
SMALL = Pace(hparams={"learning_rate": 0.001, "frequency_scale": 0.1}, below_rows=640)
# `tabular` on a few thousand rows whose label is a number: 15 epochs end before the steps in the columns are learned.
NUMBERS = Pace(45.0, {"learning_rate": 0.002, "frequency_scale": 2.0, "weight_decay": 0.3}, below_rows=12_800)
# `tabular` on many rows whose label is a class: smooth embeddings of numbers, which keep it from learning fewer rows by
# heart, would miss steps in the columns.
MANY_OF_CLASSES = Pace(hparams={"frequency_scale": 1.0}, from_rows=10_000)
# An epoch of pairs has as many as there are images, which is a small part of all pairs. On people that were not trained
# on, the loss is least early, by probabilities near one half, while the order of the pairs still improves.
PAIRS = Pace(40.0, best_metric="auc")
LEAST_STEPS, MOST_STEPS = 300, 20_000
MOST_COUNTED = 2**53  # steps, each of which a float has, too
EVALUATIONS = 12
MOST_BETWEEN = 10_000  # steps between two checkpoints, which is what a crash may lose
BATCHES = (512, 256, 128, 64)  # of rows: the largest with so many steps an epoch
STEPS_AN_EPOCH = 50
IMAGES = 64
FEW_IMAGES = 1_000  # with fewer, `convnet` learns more than `squeezenext`


def plan_training(dataset: OpenDataset, options: TrainOptions) -> TrainingPlan:
    """Chooses what the options leave open.

    A new training reads the train split 15 times, in 300 to 20,000 steps, is evaluated a dozen times, and ends when
    evaluations have not improved for a third of it. One that resumes goes on as `model.json` says.
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
    """The steps that were asked for.

    Raises:
      UsageError: they are more than are counted.
    """
    name, length = ("max_steps", options.max_steps) if options.epochs is None else ("epochs", options.epochs)
    if length is None:
        return None
    steps = length if options.epochs is None else length * rows / batch
    if steps > MOST_COUNTED:
        raise UsageError(f"--{name} {length}: is more than {MOST_COUNTED:,} steps; train for fewer")
    return math.ceil(steps)


def _by_data(epochs: float, rows: int, batch: int) -> int:
    return min(max(math.ceil(epochs * rows / batch), LEAST_STEPS), MOST_STEPS)


def _pace(dataset: OpenDataset, model: str, rows: int) -> Pace:
    """How a model is trained on so many rows."""
    if dataset.image_schema is not None:
        return PAIRS if dataset.image_schema.pairs and model in BUILT_IN else ANY
    if model != "tabular":
        return ANY
    if rows < SMALL.below_rows:
        # The weights of n-grams, of which a row has few, would not come far at a low rate.
        has_ngrams = any(isinstance(feature, Text) and feature.weighted for feature in dataset.schema.inputs)
        return ANY if has_ngrams else SMALL
    is_number = not isinstance(dataset.schema.label, CategoryLabel)
    if is_number:
        return NUMBERS if rows < NUMBERS.below_rows else ANY
    return MANY_OF_CLASSES if rows >= MANY_OF_CLASSES.from_rows else ANY


def _batch(rows: int) -> int:
    return next((size for size in BATCHES if rows >= STEPS_AN_EPOCH * size), BATCHES[-1])


def _model(dataset: OpenDataset, rows: int) -> str:
    if dataset.image_schema is None:
        return "tabular"
    if dataset.image_schema.pairs:
        return "face_pairs"
    return "convnet" if rows < FEW_IMAGES else "squeezenext"


def _evaluated(options: TrainOptions, steps: int) -> tuple[int, int]:
    """The steps between evaluations, and without improvement until the end."""
    every, patience = options.save_checkpoints_steps, options.early_stopping_steps
    if every is None:
        every = min(math.ceil(steps / EVALUATIONS), MOST_BETWEEN, patience or MOST_BETWEEN)
    return every, max(every, math.ceil(steps / 3)) if patience is None else patience


def _plan(options: TrainOptions, **chosen: Any) -> TrainingPlan:
    return TrainingPlan(**{**vars(options), "epochs": None, **chosen})


def _recorded(model_dir: str) -> RecordedTraining | None:
    """The training whose checkpoint is in the directory; None where there is none, or no `model.json`."""
    if not storage.exists(layout.join(model_dir, "checkpoint")):
        return None
    manifest = read_model_manifest(model_dir)
    return None if manifest is None else manifest.current


def _resumed(dataset: OpenDataset, options: TrainOptions, before: RecordedTraining) -> TrainingPlan:
    """The plan of a training that goes on.

    Raises:
      UsageError: `model.json` alone names what would be run or read, and it is not trusted; or its best export is
        chosen by another metric.
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
    """How a training goes on from the checkpoint in its directory.

    Raises:
      UsageError: it holds finished trees.
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
    """The settings of the plan that are not as before."""
    now = as_recorded(plan).model_dump(exclude={"patience_from", "label"})
    was = {name: getattr(before.plan, name) for name in now}
    changes = [f"{name} {now[name]} (was {was[name] or 'not set'})" for name in now if now[name] != was[name]]
    return f", with {', '.join(changes)}" if changes else ""


def _last_step(model_dir: str) -> int:
    """The step of the last checkpoint, by the file that names it; 0 where it cannot be read."""
    first = storage.read_bytes(layout.join(model_dir, "checkpoint")).partition(b"\n")[0]
    match = re.search(rb'-([0-9]+)"', first)
    return int(match[1]) if match else 0


def _patience(last: RecordedPlan, every: int | None, longer: int) -> int:
    return max(last.early_stopping_steps, every or 0, longer) if last.early_stopping_steps else 0


def _patience_from(model_dir: str, last: RecordedPlan, steps: int, patience: int) -> int:
    """Who makes a training longer, or more patient, wants it to go on, however long ago its best evaluation is."""
    if steps <= last.max_steps and (patience or math.inf) <= (last.early_stopping_steps or math.inf):
        return last.patience_from
    return max((int(evaluation["global_step"]) for evaluation in read_evaluations(model_dir)), default=0)


def _summary(plan: TrainingPlan, rows: int) -> str:
    epochs = plan.max_steps * plan.batch_size / rows
    patience = plan.early_stopping_steps
    stops = f", stopping after {counted(patience, 'steps')} without improvement" if patience else ""
    return (
        f"{plan.model}, {counted(plan.max_steps, 'steps')} of {counted(plan.batch_size, 'examples')} "
        f"({counted(epochs, 'epochs', ',.3g')} of {rows:,}), evaluated every "
        f"{counted(plan.save_checkpoints_steps, 'steps')}{stops}"
    )


def _rounds_summary(plan: TrainingPlan) -> str:
    """The summary of a plan for boosted trees, which are grown as a whole."""
    hparams = parse_hparams(BUILT_IN[plan.model].hparams, plan.hparams, model=plan.model)
    patience = 0 if plan.eval_split == "train" else hparams.early_stopping_round  # by what it learns, nothing stops it
    stops = f", stopping after {patience:,} without improvement on {plan.eval_split}" if patience else ""
    return f"{plan.model}, up to {counted(hparams.num_iterations, 'rounds')}{stops}"


def as_recorded(plan: TrainingPlan) -> RecordedPlan:
    """Returns what `model.json` records of a plan."""
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
    """Returns why a training ends at a step: no evaluation until then has improved for long enough. None: it goes on.

    A training that resumes so ends where it would have ended without the interruption.
    """
    if not plan.early_stopping_steps:
        return None
    # After resuming from an earlier checkpoint, evaluations of later steps belong to the discarded training.
    evaluations = [e for e in read_evaluations(plan.model_dir) if e["global_step"] <= step]
    worse = steps_without_improvement(evaluations, metric=plan.best_metric, since=plan.patience_from)
    return None if worse < plan.early_stopping_steps else f"no better evaluation for {counted(worse, 'steps')}"


def steps_without_improvement(evaluations: list[Metrics], *, metric: str | None, since: int = 0) -> int:
    """Returns the steps from the best evaluation, or from `since`, to the last one.

    The metric that selects the best export says which is best.

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
