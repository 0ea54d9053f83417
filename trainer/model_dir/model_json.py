"""`model.json`: the model in a model directory, and the data that it was trained on.

`evaluations.json`: all evaluations of a training. Early stopping and studies read it, here without TensorFlow.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.metadata
import os
import platform
from typing import Any, Literal

from pydantic import ValidationError

from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.errors import MillraceError, UsageError
from schemas.spec.forms import Strict
from schemas.storage.json_files import as_written, parse_json
from trainer.models import BUILT_IN, is_grown
from trainer.spec.task_spec import LabelScale

EVALUATIONS = "evaluations.json"
ROUNDS = "rounds.json"  # of boosted trees: the loss after each round, by split

Metrics = dict[str, float]


def read_evaluations(model_dir: str) -> list[Metrics]:
    """The metrics of each evaluation, including `global_step`, in the order of steps; empty before the first one."""
    path = layout.join(model_dir, EVALUATIONS)
    if not storage.exists(path):
        return []
    with as_written(path, "evaluations"):
        return [dict(metrics) for metrics in parse_json(storage.read_bytes(path))]


def read_rounds(model_dir: str) -> dict[str, list[float]]:
    """The losses of boosted trees by split, a number for each round; empty where none were noted."""
    path = layout.join(model_dir, ROUNDS)
    if not storage.exists(path):
        return {}
    with as_written(path, "losses by round"):
        return {
            str(split): [float(loss) for loss in losses]
            for split, losses in parse_json(storage.read_bytes(path)).items()
        }


MODEL_JSON = layout.MODEL_JSON
_PACKAGES = ("tensorflow", "tensorflow-estimator", "tensorflow-transform", "tf_keras", "numpy")


class TrainedOn(Strict):
    """The dataset run that a model was trained on."""

    path: str
    name: str
    run: str
    schema_fingerprint: str


class Plan(Strict):
    """How long a training is, how it is evaluated, and how its model sees the label; see `trainer.loop.plan`."""

    batch_size: int
    max_steps: int
    save_checkpoints_steps: int
    early_stopping_steps: int
    patience_from: int = 0
    best_metric: str | None = None
    label: LabelScale = LabelScale()


class Training(Strict):
    """One training: model, hyper-parameters, data, augmentation and plan (None: written before these were recorded).

    `warm_start_from` is the checkpoint that it was asked to begin with.
    """

    started: str
    model: str
    hparams: dict[str, Any]
    augment: dict[str, Any] | None = None
    warm_start_from: str | None = None
    plan: Plan | None = None
    data: TrainedOn
    versions: dict[str, str]


class ModelManifest(Strict):
    """The content of `model.json`.

    Attributes:
      current: the training that writes the checkpoints.
      earlier: earlier trainings with other models or data, if this one resumed from them with --allow_changes.
    """

    format_version: Literal[1, 2] = 2  # 1: of release 0.2, without plans
    current: Training
    earlier: tuple[Training, ...] = ()


def describe_training(
    dataset: Dataset,
    *,
    model: str,
    hparams: dict[str, Any],
    augment: dict[str, Any] | None,
    warm_start_from: str | None = None,
    plan: Plan | None = None,
) -> Training:
    """The entry for a training that begins now. Tuples in `hparams` become lists, as in JSON."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return Training(
        started=f"{dt.datetime.now(dt.timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        model=model,
        hparams=_as_json(hparams),
        augment=augment,
        warm_start_from=warm_start_from,
        plan=plan,
        data=TrainedOn(
            path=dataset.path,
            name=dataset.declared.name,
            run=dataset.run,
            schema_fingerprint=dataset.declared.fingerprint,
        ),
        versions={"python": platform.python_version(), **versions},
    )


def read_model_manifest(model_dir: str) -> ModelManifest | None:
    """Reads `model_dir/model.json`; None if it does not exist.

    Raises:
      MillraceError: it cannot be parsed.
    """
    path = layout.join(model_dir, MODEL_JSON)
    if not storage.exists(path):
        return None
    try:
        return ModelManifest.model_validate_json(storage.read_bytes(path))
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise MillraceError(f"{path}: not a valid model.json ({reason}); use another --model_dir") from None


def model_dir_of(path: str) -> str | None:
    """The model directory that a path is, or that the export at it lies in, at most three folders deep; else None."""
    for _ in range(4):
        if storage.exists(layout.join(path, MODEL_JSON)):
            return path
        path = os.path.dirname((path if "://" in path else os.path.abspath(path)).rstrip("/"))
        if "://" not in path and not os.path.isabs(path):
            return None  # a bucket and the root lie in no folder
    return None


def claim_model_dir(model_dir: str, training: Training, *, has_checkpoint: bool, allow_changes: bool) -> bool:
    """Writes `model.json` for a training that starts, or resumes from a checkpoint.

    Returns:
      Whether existing evaluations in the directory belong to another model or other data.

    Raises:
      UsageError: the directory contains another model, other hyper-parameters, or a model of other data, and
        `allow_changes` is false.
    """
    found = read_model_manifest(model_dir)
    resume = "" if is_grown(training.model) else ", or resume from its last checkpoint with --allow_changes"
    if found is None and has_checkpoint and not allow_changes:
        raise UsageError(
            f"{model_dir}: contains checkpoints but no {MODEL_JSON}, so their model is unknown. Use another "
            f"--model_dir{resume}."
        )
    differences = [] if found is None or not has_checkpoint else list(_differences(found.current, training))
    if differences and not allow_changes:
        raise UsageError(
            f"{model_dir}: contains a model of another training: {'; '.join(differences)}. Use another "
            f"--model_dir{resume}."
        )
    earlier = () if found is None or not has_checkpoint else found.earlier
    if found is not None and differences:
        earlier = (*earlier, found.current)
    manifest = ModelManifest(current=training, earlier=earlier)
    storage.write_bytes(layout.join(model_dir, MODEL_JSON), manifest.model_dump_json(indent=1).encode() + b"\n")
    return found is None or (found.current.model, found.current.data.run) != (training.model, training.data.run)


def _differences(found: Training, asked: Training) -> Any:
    if found.model != asked.model:
        yield f"its model is {found.model!r}, not {asked.model!r}"
    else:
        yield from _changed(recorded_hparams(found), asked.hparams)
    if found.augment is not None and asked.augment is not None:
        yield from _changed(found.augment, asked.augment)
    if found.data.run != asked.data.run:
        yield f"it was trained on run {found.data.run} of {found.data.path}, not on run {asked.data.run}"


def recorded_hparams(training: Training) -> dict[str, Any]:
    """The hyper-parameters of a recorded training, with those that its release did not have yet.

    A hyper-parameter that came later is what the model did without it: the field's `before`, or else its default.
    """
    if training.model not in BUILT_IN:
        return training.hparams
    fields = dataclasses.fields(BUILT_IN[training.model].hparams)
    return _as_json({field.name: field.metadata.get("before", field.default) for field in fields}) | training.hparams


def _as_json(hparams: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in hparams.items()}


def _changed(found: dict[str, Any], asked: dict[str, Any]) -> Any:
    for name in sorted({*found, *asked}):
        if found.get(name) != asked.get(name):
            yield f"its {name} is {found.get(name)}, not {asked.get(name)}"
