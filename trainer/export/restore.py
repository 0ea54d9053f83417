"""Rebuilds the Estimator of a trained model from its `model.json`."""

from __future__ import annotations

from typing import Any

from schemas.dataset import Dataset
from schemas.errors import UsageError
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
      UsageError: `model_dir` contains no model, or one whose function cannot be imported.
    """
    manifest = read_model_manifest(model_dir)
    if manifest is None:
        raise UsageError(
            f"{model_dir}: no {MODEL_JSON}, so this is not a model directory of trainer.task; set --model_dir"
        )
    training = manifest.current
    model = BUILT_IN[training.model] if training.model in BUILT_IN else custom.load(training.model)
    hparams = {name: tuple(v) if isinstance(v, list) else v for name, v in training.hparams.items()}
    config = tf_estimator.RunConfig(model_dir=scratch)
    estimator = model.build(read_task_spec(dataset), model.hparams(**hparams), config)
    return with_keys_and_classes(estimator, dataset, watch=watch)
