"""Declares what a model that ships is, and builds its Estimator. Importing this imports no TensorFlow."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A model that ships.

    Attributes:
      summary: what it is, for --help.
      hparams: the dataclass of its hyper-parameters.
      place: the module of its `model_fn` in `trainer.models`, or `module:function`; a function `build` reads a file
        before there is a graph, and returns the Estimator itself.
      reads: the examples that it can be trained on.
      rate: how its learning rate changes over the training's steps; see `trainer.models.optimizers.learning_rate`.
        `none`: it makes no steps, and `trainer.loop.boosting` trains it as a whole.
    """

    summary: str
    hparams: type[Any]
    place: str
    reads: tuple[str, ...] = ("rows",)
    rate: Literal["constant", "cosine", "warmup", "none"] = "cosine"

    @property
    def scales_label(self) -> bool:
        """Whether it learns a number as `trainer.spec.task_spec.LabelScale` says, and begins with shares of classes."""
        return self.reads == ("rows",)

    def build(self, task_spec: Any, hparams: Any, config: Any) -> Any:
        """Returns the Estimator for a `TaskSpec` or an `ImageTaskSpec`, in the config's model_dir."""
        from trainer.estimator import tf_estimator

        module, _, function = self.place.partition(":")
        made_by = getattr(importlib.import_module(f"trainer.models.{module}"), function or "model_fn")
        if function == "build":
            return made_by(task_spec, hparams, config)
        params = {**dataclasses.asdict(hparams), "hparams": hparams, "task_spec": task_spec}
        return tf_estimator.Estimator(made_by, config=config, params=params)
