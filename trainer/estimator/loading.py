"""Loads the package tensorflow-estimator 2.15 into a newer TensorFlow.

    from trainer.estimator import tf_estimator

`tf_estimator` offers what `tf.estimator` offered in TensorFlow 2.15 (Estimator, RunConfig, train_and_evaluate, the
canned Estimators, exporters, `export`, `experimental`). `tf_estimator.tpu` offers what `tf.compat.v1.estimator.tpu`
offered (TPUEstimator, TPUConfig, ...). `tf.keras.estimator.model_to_estimator` works once this module is imported.

This is the only module that imports tensorflow_estimator. Importing it imports TensorFlow, which takes seconds.

Estimator works with Keras 2. TensorFlow decides whether `tf.keras` is Keras 2 or 3 when `tf.keras` is first used, by
the environment variable TF_USE_LEGACY_KERAS. Importing this module sets the variable to 1. TensorFlow may already have
been imported. The import raises UsageError if `tf.keras` has already been used as Keras 3, or if the variable asks for
Keras 3.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from schemas.errors import UsageError
from trainer.estimator import shims

__all__ = ["tf_estimator"]

_VARIABLE = "TF_USE_LEGACY_KERAS"
_YES = ("1", "true", "True")  # the values that TensorFlow reads as true

# TensorFlow's lazy attributes for Keras. Each of them decides at its first use whether it stands for Keras 2 or 3.
_KERAS_LOADERS = (
    "keras",
    "losses",
    "metrics",
    "optimizers",
    "initializers",
    "compat.v1.keras",
    "compat.v2.keras",
)


def _use_keras_2() -> None:
    """Makes `tf.keras` Keras 2, in this process and in the processes that it starts.

    Raises:
      UsageError: the environment asks for Keras 3, or the process already uses it.
    """
    if os.environ.setdefault(_VARIABLE, "1") not in _YES:
        raise UsageError(
            f"{_VARIABLE}={os.environ[_VARIABLE]} in the environment: Estimator needs Keras 2 (the package tf_keras)."
            f" Unset {_VARIABLE}, or set it to 1."
        )
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None or tensorflow.__dict__.get("_tf_uses_legacy_keras", True):
        return
    if "tensorflow.keras" in sys.modules or any(_is_keras_3(tensorflow, name) for name in _KERAS_LOADERS):
        raise UsageError(
            "tf.keras was used, as Keras 3, before trainer.estimator was imported: Estimator needs Keras 2 (the package"
            f" tf_keras). Import trainer.estimator first, or set {_VARIABLE}=1 in the environment."
        )
    # TensorFlow's own import does the same: `from tensorflow.keras import ...` then finds Keras 2 too.
    keras_api = importlib.import_module("tf_keras.api._v2.keras")
    tensorflow.__path__.insert(0, os.path.dirname(os.path.dirname(str(keras_api.__file__))))


def _is_keras_3(tensorflow: Any, name: str) -> bool:
    """Returns whether an attribute of TensorFlow, such as `compat.v1.keras`, was already loaded as Keras 3."""
    *parents, last = name.split(".")
    for parent in parents:
        tensorflow = getattr(tensorflow, parent)
    keras = vars(tensorflow).get(last)  # TensorFlow's lazy loader, or the loaded module
    return getattr(keras, "_tfll_initialized", True) and getattr(keras, "__name__", "").split(".")[0] == "keras"


def _load() -> Any:
    """Imports the Estimator package after adding the names that it needs. Returns the package's public namespace."""
    _use_keras_2()
    importlib.import_module("tensorflow")
    shims.install()
    with shims.without_deprecation():
        namespace = importlib.import_module("tensorflow_estimator._api.v2.estimator")
        namespace.__dict__["tpu"] = importlib.import_module("tensorflow_estimator._api.v1.estimator.tpu")
    return namespace


tf_estimator: Any = _load()
