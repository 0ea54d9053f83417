"""`model.json`: the model in a model directory, and the data that it was trained on.

`model-next.json`: the same of a training that goes on from another one's checkpoint, until it has one of its own.

`evaluations.json`: all evaluations of a training. Early stopping and studies read it, here without TensorFlow.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.errors import MillraceError, UsageError
from schemas.spec.forms import Strict
from schemas.storage.json_files import as_written, check_version_of, parse_json
from trainer.models import BUILT_IN, is_grown
from trainer.spec.task_spec import LabelScale

FORMAT_VERSION = 1

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
NEXT_JSON = "model-next.json"
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
    eval_split: str = "eval"
    label: LabelScale = LabelScale()


class Training(Strict):
    """One training: model, hyper-parameters, data, augmentation and plan.

    `warm_start_from` is the checkpoint that it was asked to begin with.
    """

    started: str
    model: str
    hparams: dict[str, Any]
    augment: dict[str, Any]
    warm_start_from: str | None = None
    plan: Plan
    data: TrainedOn
    versions: dict[str, str]


class ModelManifest(Strict):
    """The content of `model.json`.

    Attributes:
      current: the training that writes the checkpoints.
      earlier: earlier trainings with other models or data, if this one resumed from them with --allow_changes.
    """

    format_version: Literal[1] = 1
    current: Training
    earlier: tuple[Training, ...] = ()


class NextModel(Strict):
    """The content of `model-next.json`: what `model.json` will hold.

    Attributes:
      after_step: the step of the checkpoint from which the training resumed, which is of the training before.
    """

    after_step: int
    manifest: ModelManifest


Form = TypeVar("Form", ModelManifest, NextModel)


def describe_training(
    dataset: Dataset,
    *,
    model: str,
    hparams: dict[str, Any],
    augment: dict[str, Any],
    warm_start_from: str | None = None,
    plan: Plan,
) -> Training:
    """The entry for a training that begins now. Tuples in `hparams` become lists, as in JSON."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return Training(
        started=f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}",
        model=model,
        hparams=_as_json(hparams),
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
    """Reads `model_dir/model.json`; None if it does not exist.

    Raises:
      MillraceError: it cannot be parsed.
    """
    return _read(layout.join(model_dir, MODEL_JSON), ModelManifest)


def _read(path: str, form: type[Form]) -> Form | None:
    if not storage.exists(path):
        return None
    data = storage.read_bytes(path)
    try:
        return form.model_validate_json(data)
    except ValidationError as error:
        check_version_of(data, path, FORMAT_VERSION, advice="use another --model_dir")
        reason, name = error.errors()[0]["msg"], os.path.basename(path)
        raise MillraceError(f"{path}: not a valid {name} ({reason}); use another --model_dir") from None


def model_dir_of(path: str) -> str | None:
    """The model directory that a path is, or that the export at it lies in, at most three folders deep; else None."""
    for _ in range(4):
        if storage.exists(layout.join(path, MODEL_JSON)):
            return path
        path = os.path.dirname((path if "://" in path else os.path.abspath(path)).rstrip("/"))
        if "://" not in path and not os.path.isabs(path):
            return None  # a bucket and the root lie in no folder
    return None


def claim_model_dir(
    model_dir: str,
    training: Training,
    *,
    step: int | None,
    allow_changes: bool,
    misfits: Callable[[Training | None], Sequence[str]] = lambda before: (),
) -> bool:
    """Notes a training that starts, or resumes from a checkpoint.

    One that differs from the training that wrote the checkpoint is noted in `model-next.json`, which replaces
    `model.json` when it has a checkpoint of its own: see `adopt_next`.

    Args:
      model_dir: the model directory.
      training: the training.
      step: that of the checkpoint; None: there is none.
      allow_changes: whether the training may differ from the one that wrote the checkpoint.
      misfits: called with that one, or None if it is not recorded, where it differs: why the model of `training` cannot
        go on from the checkpoint.

    Returns:
      Whether existing evaluations in the directory belong to another model or other data.

    Raises:
      UsageError: the directory contains another model, other hyper-parameters, or a model of other data, and
        `allow_changes` is false, or the checkpoint does not fit. Nothing was written.
    """
    found = read_model_manifest(model_dir)
    current = None if found is None else found.current
    differences = []
    if step is not None and current is None:
        differences = [f"contains checkpoints but no {MODEL_JSON}, so their model is unknown"]
    elif step is not None and current is not None and (changes := list(_differences(current, training))):
        differences = [f"contains a model of another training: {'; '.join(changes)}"]
    if differences:
        reasons = misfits(current)
        if reasons:
            raise UsageError(
                f"{model_dir}: {differences[0]}. Its last checkpoint cannot go on so: {'; '.join(reasons)}. Use "
                f"another --model_dir; --warm_start_from {model_dir} begins there with the weights that fit."
            )
        if not allow_changes:
            resume = "" if is_grown(training.model) else ", or resume from its last checkpoint with --allow_changes"
            raise UsageError(f"{model_dir}: {differences[0]}. Use another --model_dir{resume}.")
    earlier = () if found is None or step is None else found.earlier
    if current is not None and differences:
        earlier = (*earlier, current)
    manifest = ModelManifest(current=training, earlier=earlier)
    if step is not None and differences:
        _write(layout.join(model_dir, NEXT_JSON), NextModel(after_step=step, manifest=manifest))
    else:
        _write(layout.join(model_dir, MODEL_JSON), manifest)
    return current is None or (current.model, current.data.run) != (training.model, training.data.run)


def training_at(model_dir: str, step: int) -> Training | None:
    """The training that wrote the last checkpoint, whose step this is; None if none is recorded."""
    following = _read(layout.join(model_dir, NEXT_JSON), NextModel)
    if following is not None and step > following.after_step:
        return following.manifest.current
    manifest = read_model_manifest(model_dir)
    return None if manifest is None else manifest.current


def adopt_next(model_dir: str, step: int | None = None) -> None:
    """Replaces `model.json` by `model-next.json`, if there is one, when the training that it notes has a checkpoint.

    Args:
      model_dir: the model directory.
      step: that of the last checkpoint. If the one that the training began with is still the last, it had none of its
        own when it was killed, and its note is removed. None: the training has ended, and the model is its own.

    Raises:
      MillraceError: the note cannot be read.
    """
    path = layout.join(model_dir, NEXT_JSON)
    found = _read(path, NextModel)
    if found is None:
        return
    if step is None or step > found.after_step:
        _write(layout.join(model_dir, MODEL_JSON), found.manifest)
    storage.delete(path)


def _write(path: str, content: Strict) -> None:
    storage.write_bytes(path, content.model_dump_json(indent=1).encode() + b"\n")


def _differences(found: Training, asked: Training) -> Any:
    if found.model != asked.model:
        yield f"its model is {found.model!r}, not {asked.model!r}"
    else:
        yield from _changed(found.hparams, asked.hparams)
    yield from _changed(found.augment, asked.augment)
    if found.data.run != asked.data.run:
        yield f"it was trained on run {found.data.run} of {found.data.path}, not on run {asked.data.run}"


def check_trusted(training: Training, model_dir: str, *, trust: bool, instead: str = "") -> None:
    """Refuses what a stranger's `model.json` could have run or read: a function by its name, a network by its path.

    Args:
      training: what `model.json` records, as far as it is used.
      model_dir: the model directory.
      trust: whether its author is trusted.
      instead: what names it on the command line, for the message.

    Raises:
      UsageError: it names one of them, and `trust` is false.
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


def _as_json(hparams: dict[str, Any]) -> dict[str, Any]:
    return {name: list(v) if isinstance(v, tuple) else v for name, v in hparams.items()}


def _changed(found: dict[str, Any], asked: dict[str, Any]) -> Any:
    for name in sorted({*found, *asked}):
        if found.get(name) != asked.get(name):
            yield f"its {name} is {found.get(name)}, not {asked.get(name)}"
