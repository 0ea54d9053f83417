"""Adds the names to TensorFlow that tensorflow-estimator 2.15 imports but that newer releases no longer have.

`install()` adds them. It must run after TensorFlow is imported and before tensorflow_estimator is imported;
`trainer.estimator` is its only caller. The stand-ins only let the package load and run without TPU hardware. Using a
part that TensorFlow has removed for good, such as TPU embeddings, raises NotImplementedError.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn


def leave_to_sessions() -> None:
    """Prevents a deadlock: TensorFlow's resource objects no longer add an operation to a graph when they are collected.

    When a transform graph is loaded while a TF1 graph is built, its vocabularies are Python objects that own a hash
    table. They are part of reference cycles, so only the garbage collector frees them, at any moment. The destructor of
    such an object then adds an operation that destroys the table to the default graph. If the graph is just adding
    another operation, it holds its lock, and the thread waits for itself forever. (Seen with TensorFlow 2.21.)

    In a TF1 graph, the `tf.Session` owns and destroys the tables, so the destructor has nothing to do and is skipped.
    When TensorFlow executes eagerly, the destructor runs as before. Calling this function a second time does nothing.
    TensorFlow must have been imported.
    """
    executing_eagerly = importlib.import_module("tensorflow").executing_eagerly
    resource: Any = importlib.import_module("tensorflow.python.trackable.resource").CapturableResource
    original = resource.__del__
    if getattr(original, "leaves_graphs_alone", False):
        return

    # Replaces the destructor; while a graph is being built, TensorFlow does not execute eagerly.
    def collect(self: Any) -> None:
        if executing_eagerly():
            original(self)

    collect.leaves_graphs_alone = True  # type: ignore[attr-defined]
    resource.__del__ = collect  # private: nothing public runs before a destructor


_ESTIMATOR_API = "estimator"

# Classes of `tensorflow.python.tpu.tpu_embedding` that the package mentions when it is loaded, mostly for isinstance.
_TPU_EMBEDDING_CLASSES = (
    "TPUEmbedding",
    "TableConfig",
    "FeatureConfig",
    "AdagradParameters",
    "AdamParameters",
    "FtrlParameters",
    "MomentumParameters",
    "ProximalAdagradParameters",
    "RMSPropParameters",
    "StochasticGradientDescentParameters",
)


def install() -> None:
    """Adds the missing modules and export names to the imported TensorFlow. Does nothing the second time."""
    _add_export_names()
    _add_module("tensorflow.python.distribute.estimator_training", _distributed_training())
    _add_module("tensorflow.python.tpu.tpu_embedding", _tpu_embedding())
    _add_module("tensorflow.python.tpu.tpu_embedding_gradient", {})
    _add_module("tensorflow.python.tpu.session_support", {})
    leave_to_sessions()


@contextlib.contextmanager
def without_deprecation() -> Iterator[None]:
    """Suppresses deprecation notices of the Estimator package while it is imported.

    The package's export decorator wraps each public symbol in a notice that is logged at every use ("is deprecated, use
    tf.keras instead"). Other deprecations are not affected.
    """
    deprecation: Any = importlib.import_module("tensorflow.python.util.deprecation")
    original = deprecation.deprecated

    def deprecated(date: str | None, instructions: str, **options: Any) -> Any:
        if instructions == "Use tf.keras instead.":
            return lambda symbol: symbol
        return original(date, instructions, **options)

    deprecation.deprecated = deprecated
    try:
        yield
    finally:
        deprecation.deprecated = original


def _add_export_names() -> None:
    """Adds `tf_export.ESTIMATOR_API_NAME`, and the attributes in which exported symbols store their public names."""
    tf_export: Any = importlib.import_module("tensorflow.python.util.tf_export")
    tf_export.ESTIMATOR_API_NAME = _ESTIMATOR_API
    tf_export.API_ATTRS[_ESTIMATOR_API] = tf_export._Attributes("_estimator_api_names", "_estimator_api_constants")
    tf_export.API_ATTRS_V1[_ESTIMATOR_API] = tf_export._Attributes(
        "_estimator_api_names_v1", "_estimator_api_constants_v1"
    )


def _add_module(name: str, contents: dict[str, Any]) -> None:
    """Registers a stand-in module, unless this TensorFlow has the module.

    Args:
      name: the full name of the module.
      contents: the attributes of the module. Any other attribute raises AttributeError with an explanation.
    """
    if name in sys.modules:
        return
    module = ModuleType(name, "A stand-in by trainer.estimator.shims.")

    def missing(attribute: str) -> NoReturn:
        # AttributeError, not NotImplementedError: introspection asks every module for names such as __file__.
        raise AttributeError(
            f"{name}.{attribute}: {name} is no longer in TensorFlow; training on TPU hardware and TPU embeddings are"
            " not supported by trainer.estimator"
        )

    module.__dict__.update(contents, __getattr__=missing)
    parent, _, child = name.rpartition(".")
    setattr(importlib.import_module(parent), child, module)
    sys.modules[name] = module


def _distributed_training() -> dict[str, Any]:
    """Returns a stand-in for `estimator_training`, by which a RunConfig with a strategy reads TF_CONFIG."""

    def init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
        if config._experimental_distribute:
            raise NotImplementedError(
                "RunConfig(experimental_distribute=...) is not supported; pass train_distribute and eval_distribute."
            )
        strategy, cluster = config._train_distribute, tf_config.get("cluster", {})
        if strategy and cluster and "master" not in cluster:
            raise NotImplementedError(
                f"{type(strategy).__name__} on several machines is not supported: TF_CONFIG names a cluster. Train on "
                "it with parameter servers (no train_distribute), and use strategies without a cluster in TF_CONFIG."
            )
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()

    return {"init_run_config": init_run_config, "should_run_distribute_coordinator": lambda config: False}


def _tpu_embedding() -> dict[str, Any]:
    """Returns stand-ins for classes: isinstance works with them, but they cannot be instantiated."""

    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__}: TPU embeddings are not supported by trainer.estimator.")

    classes = {name: type(name, (), {"__init__": refuse}) for name in _TPU_EMBEDDING_CLASSES}
    return {**classes, "TRAINING": "training", "INFERENCE": "inference"}
