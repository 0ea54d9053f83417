"""Rebuilds the Estimator of a trained model from its `model.json`."""

from __future__ import annotations

from typing import Any

from schemas.dataset import Dataset, layout
from schemas.errors import MillraceError, UsageError
from trainer.estimator import tf_estimator
from trainer.export.outputs import Watch, with_keys_and_classes
from trainer.model_dir.model_json import MODEL_JSON, read_model_manifest
from trainer.models import BUILT_IN, custom
from trainer.spec.task_spec import read_task_spec


def restore_estimator(model_dir: str, dataset: Dataset, *, scratch: str, watch: Watch | None = None) -> Any:
    """The Estimator of the model in `model_dir`, for predictions from a checkpoint that the caller passes to it.

    Its own model directory is `scratch`, an empty folder, so that nothing in `model_dir` changes.
    `watch` gives evaluations further hooks.

    Raises:
      UsageError: `model_dir` contains no model, or one whose function cannot be imported, or is not to be: the file
        names it, and the dataset was opened without `trust`.
      MillraceError: its `model.json` cannot be read.
    """
    manifest = read_model_manifest(model_dir)
    if manifest is None:
        raise UsageError(
            f"{model_dir}: no {MODEL_JSON}, so this is not a model directory of trainer.task; set --model_dir"
        )
    training, path = manifest.current, layout.join(model_dir, MODEL_JSON)
    if training.model not in BUILT_IN and not dataset.trust:
        raise UsageError(
            f"{path}: names the model {training.model!r}, a function that would be imported and called. If you trust "
            "who wrote the file, give --trust."
        )
    model = BUILT_IN.get(training.model) or custom.load(training.model, asked=f"{path}: model")
    hparams = {name: tuple(v) if isinstance(v, list) else v for name, v in training.hparams.items()}
    try:
        values = model.hparams(**hparams)
    except (TypeError, ValueError) as error:
        raise MillraceError(f"{path}: its hparams are not those of the model {training.model!r}: {error}") from error
    estimator = model.build(read_task_spec(dataset), values, tf_estimator.RunConfig(model_dir=scratch))
    return with_keys_and_classes(estimator, dataset, watch=watch)
