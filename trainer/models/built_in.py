"""Describes a built-in model and builds its Estimator. Importing this module does not import TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A built-in model.

    Attributes:
      summary: a description for --help.
      hparams: the dataclass of the model's hyper-parameters.
      place: where the model's function is: a module of `trainer.models`, such as `tabular` (its function `model_fn`),
        or `module:function`. A function named `build` returns the Estimator itself, because it must read a file before
        there is a graph; any other function is a `model_fn`.
      reads: the kinds of examples that the model can be trained on: `rows`, `images`, `pairs`.
      rate: how the learning rate changes over the training; see `trainer.models.optimizers.learning_rate`. `none`: the
        model makes no steps; `trainer.loop.boosting` trains it as a whole.
    """

    summary: str
    hparams: type[Any]
    place: str
    reads: tuple[str, ...] = ("rows",)
    rate: Literal["constant", "cosine", "warmup", "none"] = "cosine"

    @property
    def scales_label(self) -> bool:
        """Whether the model uses a `LabelScale`: learns a scaled number, or starts with the classes' shares."""
        return self.reads == ("rows",)

    def build(self, task_spec: Any, hparams: Any, config: Any) -> Any:
        """Returns the model's Estimator, with its files in `config.model_dir`.

        Args:
          task_spec: a `TaskSpec`, or an `ImageTaskSpec` for images.
          hparams: an instance of the model's dataclass of hyper-parameters.
          config: the Estimator's `RunConfig`.
        """
        from trainer.estimator import tf_estimator

        module, _, function = self.place.partition(":")
        made_by = getattr(importlib.import_module(f"trainer.models.{module}"), function or "model_fn")
        if function == "build":
            return made_by(task_spec, hparams, config)
        params = {**dataclasses.asdict(hparams), "hparams": hparams, "task_spec": task_spec}
        return tf_estimator.Estimator(made_by, config=config, params=params)
