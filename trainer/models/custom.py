"""Loads a user's own model: `--model package.module:function`.

The function has one of two forms. The names of its parameters tell which:

* `model_fn(features, labels, mode, params)`, optionally with `config`, as Estimator defines it. `params` holds the
  hyper-parameters by name, and `task_spec`: a `trainer.spec.task_spec.TaskSpec`, or for images a
  `trainer.spec.task_spec.ImageTaskSpec`;
* `build(task_spec, hparams)`, which returns a compiled tf.keras model (Keras 2). It is converted by
  `model_to_estimator`.

Hyper-parameters are declared in a frozen dataclass named `Hparams` in the function's module. Without this class, the
model has no hyper-parameters.
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
    """Converts a Keras model to an Estimator.

    Each input of the model must have the name of a feature. Images are normalised before the model sees them. The
    model's output is class probabilities `[batch, classes]` (end the model in a softmax), or the value `[batch, 1]` for
    a numeric label. Examples are weighed if the dataset has a weight column.

    Args:
      model: a compiled tf.keras model.
      task_spec: a `TaskSpec`, or an `ImageTaskSpec` for images.
      config: the Estimator's `RunConfig`.

    Raises:
      MillraceError: the model reads a feature that the dataset does not have.
      UsageError: a TPU trains. Keras's optimizers do not average gradients over its cores.
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
            checkpoint_format="saver",  # variables by name, like other Estimators
        )

    ranks = {name: len(x.shape) for name, x in zip(model.input_names, model.inputs, strict=True)}

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        prepared = _prepared(features, task_spec)
        if labels is not None and task_spec.classes is None:
            labels = tf.reshape(labels, [-1, 1])  # the shape of the output: else Keras cannot weigh the losses
        inputs: Any = {name: _of_rank(ranks[name], prepared[name]) for name in model.input_names}
        if weight and mode != tf_estimator.ModeKeys.PREDICT:
            inputs = {"features": inputs, "sample_weights": tf.reshape(features[weight], [-1])}
        with _without_warnings():
            return converted.model_fn(inputs, labels, mode, config)

    weights = converted._warm_start_settings  # private: the only way to get the model's initial weights
    return tf_estimator.Estimator(model_fn, config=config, warm_start_from=weights)


def _prepared(features: Any, task_spec: AnyTaskSpec) -> Any:
    """Returns the features as a model reads them: ids prepared, or images normalised."""
    if not isinstance(task_spec, ImageTaskSpec):
        return prepare(features, task_spec.inputs)
    transform_output = tft.TFTransformOutput(task_spec.run_dir)
    return {name: normalized(features[name], transform_output) for name in task_spec.images}


def _of_rank(rank: int, x: Any) -> Any:
    """Reshapes a feature `[batch]` to `[batch, 1]` if the model's input has rank 2, such as `Input((1,))`."""
    dense = not isinstance(x, tf.SparseTensor)
    return tf.expand_dims(x, -1) if dense and x.shape.rank == 1 and rank == 2 else x


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides warnings of Keras about functions that `model_to_estimator` itself calls; a user cannot change that."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(set_learning_phase|state_updates)", UserWarning)
        yield


_SPEC_NAME = "task_spec"


@dataclasses.dataclass(frozen=True)
class NoHparams:
    """The hyper-parameters of a module that declares no `Hparams`: an empty dataclass."""


@dataclasses.dataclass(frozen=True)
class Custom:
    """A user's own model.

    Attributes:
      name: the model's name in messages, such as `--model package.module:function`.
      function: the imported function.
      hparams: the dataclass of the model's hyper-parameters.
      is_model_fn: whether the function is a `model_fn`; else it builds a Keras model.
    """

    name: str
    function: Callable[..., Any]
    hparams: type[Any]
    is_model_fn: bool

    def build(self, task_spec: AnyTaskSpec, hparams: Any, config: Any) -> Any:
        """Returns the model's Estimator, with its files in `config.model_dir`.

        Raises:
          MillraceError: the function returned something else than a compiled tf.keras model.
        """
        if self.is_model_fn:
            takes_params = "params" in inspect.signature(self.function).parameters
            params = {**dataclasses.asdict(hparams), _SPEC_NAME: task_spec} if takes_params else None
            return tf_estimator.Estimator(self.function, config=config, params=params)
        model = self.function(task_spec, hparams)
        is_keras = isinstance(model, tf.keras.Model)
        if not is_keras or not getattr(model, "optimizer", None):  # only a compiled model has one
            kind = f"a {type(model).__module__}.{type(model).__name__}"
            raise MillraceError(
                f"{self.name}: returned {'a tf.keras model that is not compiled' if is_keras else kind}; expected a "
                "compiled tf.keras model of Keras 2 "
                "(`import tensorflow as tf` and tf.keras, or the package tf_keras)"
            )
        return keras_estimator(model, task_spec, config)


def load(name: str, *, source: str = "--model") -> Custom:
    """Imports a user's own model.

    Args:
      name: `package.module:function`.
      source: the flag or setting that named the model, for messages.

    Raises:
      UsageError: there is no such module or function, its parameters fit neither form, or `Hparams` is no dataclass
        with defaults.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # Tells a missing module from a module that exists but fails to import another one.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, but a module that it imports is missing
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
