"""A custom model: `--model package.module:function`.

The function has one of two forms, which its parameter names tell apart:

* `model_fn(features, labels, mode, params)`, with an optional `config` as in Estimator. `params` holds the
  hyper-parameters by name, and `task_spec`: a `trainer.spec.task_spec.TaskSpec`, or for images a
  `trainer.spec.task_spec.ImageTaskSpec`;
* `build(task_spec, hparams)`, which returns a compiled tf.keras model (Keras 2), trained through `model_to_estimator`.

`problem`, the name of `task_spec` in release 0.1.0, still works in both.

Hyper-parameters are declared in a frozen dataclass `Hparams` in the function's module; without it there are none.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable
from typing import Any

from schemas.errors import MillraceError, UsageError
from trainer.estimator import tf_estimator
from trainer.models import keras
from trainer.spec.task_spec import AnyTaskSpec

_SPEC_NAMES = ("task_spec", "problem")  # the second: release 0.1.0


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
            params = {**dataclasses.asdict(hparams), **dict.fromkeys(_SPEC_NAMES, task_spec)} if takes_params else None
            return tf_estimator.Estimator(self.function, config=config, params=params)
        model = self.function(task_spec, hparams)
        if not keras.is_compiled(model):
            raise MillraceError(
                f"{self.name}: returned {keras.describe(model)}; expected a compiled tf.keras model of Keras 2 "
                "(`import tensorflow as tf` and tf.keras, or the package tf_keras)"
            )
        return keras.build(model, task_spec, config)


def load(name: str, *, asked: str = "--model") -> Custom:
    """Imports `package.module:function`; `asked` is what names it, for messages.

    Raises:
      UsageError: there is no such module or function, or its parameters fit neither form.
    """
    module_name, _, function_name = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there, and something that it imports is not
        raise UsageError(f"{asked} {name}: no module {error.name!r} on the Python path") from None
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise UsageError(f"{asked} {name}: no function {function_name!r} in {module.__file__}; it has {functions}")
    parameters = list(inspect.signature(function).parameters)
    is_build = parameters[:1] and parameters[0] in _SPEC_NAMES and parameters[1:2] == ["hparams"]
    if not is_build and not {"features", "mode"} <= set(parameters):
        raise UsageError(
            f"{asked} {name}: its parameters are ({', '.join(parameters)}); expected a model_fn"
            "(features, labels, mode, params), or a function(task_spec, hparams) that returns a compiled Keras model"
        )
    hparams = getattr(module, "Hparams", NoHparams)
    if not dataclasses.is_dataclass(hparams) or any(
        field.default is dataclasses.MISSING for field in dataclasses.fields(hparams)
    ):
        raise UsageError(f"{asked} {name}: {module_name}.Hparams must be a dataclass whose fields all have defaults")
    return Custom(f"{asked} {name}", function, hparams, "features" in parameters)
