"""Loads a model of the user's own: `--model package.module:function`.

The function has one of two forms, which its parameter names tell apart:

* `model_fn(features, labels, mode, params)`, with an optional `config` as in Estimator. `params` holds the
  hyper-parameters by name, and `task_spec`: a `trainer.spec.task_spec.TaskSpec`, or for images a
  `trainer.spec.task_spec.ImageTaskSpec`;
* `build(task_spec, hparams)`, which returns a compiled tf.keras model (Keras 2), trained through `model_to_estimator`.

Hyper-parameters are declared in a frozen dataclass `Hparams` in the function's module; without it there are none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from schemas.errors import MillraceError, UsageError
from trainer.estimator import tf_estimator
from trainer.images.inputs import normalized
from trainer.models.canned import prepare
from trainer.spec.task_spec import AnyTaskSpec, ImageTaskSpec
from trainer.strategies.tpu import is_tpu


def keras_estimator(model: Any, task_spec: AnyTaskSpec, config: Any) -> Any:
    """Converts a model whose inputs are called like the features that it reads; images are normalised for it.

    Its one output is what `trainer.export.outputs` takes a single output for: class probabilities `[batch, classes]`
    (end the model in a softmax), or for a numeric label the value `[batch, 1]`. Examples are weighed where the dataset
    has a weight.

    Raises:
      MillraceError: the model reads a feature that the dataset does not have.
      UsageError: a TPU trains, whose cores Keras's optimizers do not know of.
    """
    if is_tpu(config):
        raise UsageError(
            "--tpu: a Keras model's optimizer would train each core of a TPU apart, since model_to_estimator averages "
            "no gradients over cores; use a model_fn, or train without --tpu"
        )
    if isinstance(task_spec, ImageTaskSpec):
        names, weight = list(task_spec.images), None
    else:
        names, weight = [entry.name for entry in task_spec.inputs], task_spec.weight
    missing = [name for name in model.input_names if name not in names]
    if missing:
        raise MillraceError(
            f"the Keras model reads {missing}, which the dataset does not have; its features are {sorted(names)}. "
            "Name each Input after a feature."
        )
    with _without_warnings():
        converted = tf.keras.estimator.model_to_estimator(
            keras_model=model,
            config=config,
            checkpoint_format="saver",  # variables by name, `global_step` among them, as all Estimators save them
        )

    ranks = {name: len(x.shape) for name, x in zip(model.input_names, model.inputs, strict=True)}

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        prepared = _prepared(features, task_spec)
        if labels is not None and task_spec.classes is None:
            labels = tf.reshape(labels, [-1, 1])  # as the model's output is, or Keras cannot weigh the losses
        inputs: Any = {name: _of_rank(ranks[name], prepared[name]) for name in model.input_names}
        if weight and mode != tf_estimator.ModeKeys.PREDICT:
            inputs = {"features": inputs, "sample_weights": tf.reshape(features[weight], [-1])}
        with _without_warnings():
            return converted.model_fn(inputs, labels, mode, config)

    weights = converted._warm_start_settings  # private: model_to_estimator hands a model's weights on only so
    return tf_estimator.Estimator(model_fn, config=config, warm_start_from=weights)


def _prepared(features: Any, task_spec: AnyTaskSpec) -> Any:
    """The features as a model reads them."""
    if not isinstance(task_spec, ImageTaskSpec):
        return prepare(features, task_spec.inputs)
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    return {name: normalized(features[name], transform_output) for name in task_spec.images}


def _of_rank(rank: int, x: Any) -> Any:
    """A feature `[batch]` as `[batch, 1]`, which is what `Input((1,))` takes."""
    dense = not isinstance(x, tf.SparseTensor)
    return tf.expand_dims(x, -1) if dense and x.shape.rank == 1 and rank == 2 else x


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """The way that Estimator takes into Keras is one that Keras warns of: nothing that a user could change."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(set_learning_phase|state_updates)", UserWarning)
        yield


_SPEC_NAME = "task_spec"


@dataclasses.dataclass(frozen=True)
class NoHparams:
    """For a module without `Hparams`."""


@dataclasses.dataclass(frozen=True)
class Custom:
    """A custom model: what messages call it, the imported function, and which form it has."""

    name: str
    function: Callable[..., Any]
    hparams: type[Any]
    is_model_fn: bool

    def build(self, task_spec: AnyTaskSpec, hparams: Any, config: Any) -> Any:
        """Returns the Estimator, in the config's model_dir.

        Raises:
          MillraceError: the function returned something other than a compiled tf.keras model.
        """
        if self.is_model_fn:
            takes_params = "params" in inspect.signature(self.function).parameters
            params = {**dataclasses.asdict(hparams), _SPEC_NAME: task_spec} if takes_params else None
            return tf_estimator.Estimator(self.function, config=config, params=params)
        model = self.function(task_spec, hparams)
        is_keras = isinstance(model, tf.keras.Model)
        if not is_keras or not getattr(model, "optimizer", None):  # which `compile` sets
            kind = f"a {type(model).__module__}.{type(model).__name__}"
            raise MillraceError(
                f"{self.name}: returned {'a tf.keras model that is not compiled' if is_keras else kind}; expected a "
                "compiled tf.keras model of Keras 2 "
                "(`import tensorflow as tf` and tf.keras, or the package tf_keras)"
            )
        return keras_estimator(model, task_spec, config)


def load(name: str, *, source: str = "--model") -> Custom:
    """Imports `package.module:function`; `source` is what names it, for messages.

    Raises:
      UsageError: there is no such module or function, or its parameters fit neither form.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise UsageError(f"{source} {name}: no module {error.name!r} on the Python path") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise UsageError(f"{source} {name}: no function {function_name!r} in {module.__file__}; it has {functions}")
    parameters = list(inspect.signature(function).parameters)
    is_build = parameters[:2] == [_SPEC_NAME, "hparams"]
    if not is_build and not {"features", "mode"} <= set(parameters):
        raise UsageError(
            f"{source} {name}: its parameters are ({', '.join(parameters)}); expected a model_fn"
            "(features, labels, mode, params), or a function(task_spec, hparams) that returns a compiled Keras model"
        )
    hparams = getattr(module, "Hparams", NoHparams)
    if not dataclasses.is_dataclass(hparams) or any(
        field.default is dataclasses.MISSING for field in dataclasses.fields(hparams)
    ):
        raise UsageError(f"{source} {name}: {module_name}.Hparams must be a dataclass whose fields all have defaults")
    return Custom(f"{source} {name}", function, hparams, "features" in parameters)
