"""Reads and writes `model.json`, which describes the model in a model directory and the data that it was trained on.

Also reads `evaluations.json`, which lists all evaluations of a training, and `rounds.json`. Early stopping and studies
read them without importing TensorFlow.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from typing import Any, Literal

from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.errors import UsageError
from schemas.spec.forms import Strict
from schemas.storage.json_files import as_written, parse_as, parse_json
from trainer.models import BUILT_IN
from trainer.spec.task_spec import LabelScale

FORMAT_VERSION = 1

EVALUATIONS = "evaluations.json"
ROUNDS = "rounds.json"  # boosted trees' losses after each round, by split

Metrics = dict[str, float]


def read_evaluations(model_dir: str) -> list[Metrics]:
    """Returns the metrics of each evaluation, with `global_step`, in the order of steps.

    The list is empty before the first evaluation.
    """
    path = layout.join(model_dir, EVALUATIONS)
    if not storage.exists(path):
        return []
    with as_written(path, "evaluations"):
        return [dict(metrics) for metrics in parse_json(storage.read_bytes(path))]


def read_rounds(model_dir: str) -> dict[str, list[float]]:
    """Returns the losses of boosted trees by split, one number for each round; empty if there is no record."""
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
    """The run of a dataset that a model was trained on."""

    path: str
    name: str
    run: str
    schema_fingerprint: str


class RecordedPlan(Strict):
    """The length of a training, its evaluations, and the scale of its label; see `trainer.loop.plan`."""

    batch_size: int
    max_steps: int
    save_checkpoints_steps: int
    early_stopping_steps: int
    patience_from: int = 0
    best_metric: str | None = None
    eval_split: str = "eval"
    label: LabelScale = LabelScale()


class RecordedTraining(Strict):
    """One training: model, hyper-parameters, data, augmentation and plan.

    `warm_start_from` is the path from which the training was asked to take its first weights; None if it was not.
    """

    started: str
    model: str
    hparams: dict[str, Any]
    augment: dict[str, Any]
    warm_start_from: str | None = None
    plan: RecordedPlan
    data: TrainedOn
    versions: dict[str, str]


class ModelManifest(Strict):
    """The content of `model.json`: the training that writes the directory's checkpoints."""

    format_version: Literal[1] = 1
    current: RecordedTraining


def describe_training(
    dataset: OpenDataset,
    *,
    model: str,
    hparams: dict[str, Any],
    augment: dict[str, Any],
    warm_start_from: str | None = None,
    plan: RecordedPlan,
) -> RecordedTraining:
    """Returns the record of a training that begins now.

    Tuples in `hparams` become lists, as in JSON.
    """
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return RecordedTraining(
        started=f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
        model=model,
        hparams={name: list(value) if isinstance(value, tuple) else value for name, value in hparams.items()},
        augment=augment,
        warm_start_from=warm_start_from,
        plan=plan,
        data=TrainedOn(
            path=os.path.abspath(dataset.path) if storage.is_local(dataset.path) else dataset.path,
            name=dataset.declared.name,
            run=dataset.run,
            schema_fingerprint=dataset.declared.fingerprint,
        ),
        versions={"python": platform.python_version(), **versions},
    )


def read_model_manifest(model_dir: str) -> ModelManifest | None:
    """Reads `model.json` in a model directory; returns None if it does not exist.

    Raises:
      MillraceError: the file cannot be parsed.
    """
    path = layout.join(model_dir, MODEL_JSON)
    if not storage.exists(path):
        return None
    data = storage.read_bytes(path)
    return parse_as(ModelManifest.model_validate_json, data, path, FORMAT_VERSION, "a model", "use another --model_dir")


def model_dir_of(path: str) -> str | None:
    """Finds the model directory to which a path belongs.

    The path may be the model directory itself, or an export in it: up to three parent folders are searched. Returns
    None if there is no model directory.
    """
    for _ in range(4):
        if storage.exists(layout.join(path, MODEL_JSON)):
            return path
        path = os.path.dirname((path if "://" in path else os.path.abspath(path)).rstrip("/"))
        if "://" not in path and not os.path.isabs(path):
            return None  # a bucket or the root has no parent folder
    return None


def claim_model_dir(model_dir: str, training: RecordedTraining, *, resumes: bool) -> None:
    """Records a training in `model.json` when it starts, or when it resumes from a checkpoint.

    Args:
      model_dir: the model directory.
      training: the training.
      resumes: whether the directory contains a checkpoint from which the training resumes.

    Raises:
      UsageError: the checkpoint belongs to another model, other hyper-parameters or other data. Nothing was written.
    """
    if resumes:
        manifest = read_model_manifest(model_dir)
        problem = f"contains checkpoints but no {MODEL_JSON}, so their model is unknown"
        if manifest is not None:
            changes = "; ".join(_differences(manifest.current, training))
            problem = f"contains a model of another training: {changes}" if changes else ""
        if problem:
            raise UsageError(
                f"{model_dir}: {problem}. Use another --model_dir; --warm_start_from {model_dir} begins there with the "
                "weights that fit."
            )
    content = ModelManifest(current=training).model_dump_json(indent=1)
    storage.write_bytes(layout.join(model_dir, MODEL_JSON), content.encode() + b"\n")


def _differences(previous: RecordedTraining, requested: RecordedTraining) -> Iterator[str]:
    """Describes the differences between the recorded training and the requested one."""
    if previous.model != requested.model:
        yield f"its model is {previous.model!r}, not {requested.model!r}"
    else:
        yield from _changed(previous.hparams, requested.hparams)
    yield from _changed(previous.augment, requested.augment)
    if previous.data.run != requested.data.run:
        yield f"it was trained on run {previous.data.run} of {previous.data.path}, not on run {requested.data.run}"


def _changed(previous: dict[str, Any], requested: dict[str, Any]) -> Iterator[str]:
    """Describes the settings that differ."""
    for name in sorted({*previous, *requested}):
        if previous.get(name) != requested.get(name):
            yield f"its {name} is {previous.get(name)}, not {requested.get(name)}"


def check_trusted(training: RecordedTraining, model_dir: str, *, trust: bool, instead: str = "") -> None:
    """Refuses a `model.json` that could make this process run or read something, unless its author is trusted.

    A `model.json` may name a function to import and call (a user's own model), or a file to build a network from.

    Args:
      training: the recorded training.
      model_dir: the model directory.
      trust: whether the user trusts the author of `model.json`.
      instead: for the message, an alternative to --trust: the flag that names the function or the file.

    Raises:
      UsageError: `model.json` names a function or a file, and `trust` is false.
    """
    network = training.hparams.get("path") if training.model == "backbone" else None
    if trust or (training.model in BUILT_IN and network is None):
        return
    what = f"the model {training.model!r}, a function that would be imported and called"
    if network is not None:
        what = f"the file {network}, from which a network would be built"
    raise UsageError(
        f"{layout.join(model_dir, MODEL_JSON)}: names {what}. If you trust who wrote {MODEL_JSON}, give "
        f"--trust{instead}."
    )
