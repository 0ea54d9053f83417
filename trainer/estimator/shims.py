"""Gives TensorFlow the names that tensorflow-estimator 2.15 imports and it no longer has.

`install()` puts them in place. It must run after TensorFlow is imported and before tensorflow_estimator is;
`trainer.estimator` is its only caller. What is here exists so that the package loads and runs off TPUs: whatever
needs a part that left TensorFlow for good (TPU embeddings) raises NotImplementedError.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn


def leave_to_sessions() -> None:
    """Has TensorFlow's resource objects that are collected while a graph is built leave it alone from now on.

    Those collected elsewhere destroy their resource as before. Does nothing the second time. TensorFlow must have been
    imported (see `trainer.estimator`).

    A transform graph that is loaded while a TF1 graph is built brings its vocabularies as Python objects that own a
    hash table, in a circle that only the garbage collector takes apart. On collection such an object runs the operation
    that destroys its table: in whatever graph is then the default one. The collector runs at any moment, also while
    that graph is adding an operation and holds its lock; the same thread then waits for itself, for good. (Seen with
    TensorFlow 2.21.) In a TF1 graph the tables belong to the `tf.Session`, which destroys them: there is nothing for
    the object to do.
    """
    executing_eagerly = importlib.import_module("tensorflow").executing_eagerly
    resource: Any = importlib.import_module("tensorflow.python.trackable.resource").CapturableResource
    original = resource.__del__
    if getattr(original, "leaves_graphs_alone", False):
        return

    def collect(self: Any) -> None:
        if executing_eagerly():
            original(self)

    collect.leaves_graphs_alone = True  # type: ignore[attr-defined]
    resource.__del__ = collect  # private: nothing public runs before a destructor


_ESTIMATOR_API = "estimator"

# Of `tensorflow.python.tpu.tpu_embedding`: the classes that the package names when it loads, mostly for isinstance.
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
    """Keeps the Estimator package's symbols from advising against themselves, where it is first imported.

    The package's export decorator wraps each public symbol in a notice that is logged at every use ("is deprecated, use
    tf.keras instead"), about the API that this project is built on. Other deprecations are left as they are.
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
    """`tf_export.ESTIMATOR_API_NAME`, and the attributes under which exported symbols note their public names."""
    tf_export: Any = importlib.import_module("tensorflow.python.util.tf_export")
    tf_export.ESTIMATOR_API_NAME = _ESTIMATOR_API
    tf_export.API_ATTRS[_ESTIMATOR_API] = tf_export._Attributes("_estimator_api_names", "_estimator_api_constants")
    tf_export.API_ATTRS_V1[_ESTIMATOR_API] = tf_export._Attributes(
        "_estimator_api_names_v1", "_estimator_api_constants_v1"
    )


def _add_module(name: str, contents: dict[str, Any]) -> None:
    """Registers a module under `name`, unless this TensorFlow has one; other names in it do not exist and say why."""
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
    """`estimator_training`: how a RunConfig with a `tf.distribute` strategy reads TF_CONFIG."""

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
    """Classes that are there to be tested for, and refuse to be made."""

    def refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__}: TPU embeddings are not supported by trainer.estimator.")

    classes = {name: type(name, (), {"__init__": refuse}) for name in _TPU_EMBEDDING_CLASSES}
    return {**classes, "TRAINING": "training", "INFERENCE": "inference"}
