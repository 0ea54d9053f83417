"""`--warm_start_from`: begins a training with the weights of another one, as far as they fit."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError
from schemas.exports.notes import numbered
from trainer.estimator import tf_estimator
from trainer.estimator.checkpoint_names import named_checkpoints


@dataclasses.dataclass(frozen=True)
class WarmStart:
    """The weights with which a training begins.

    Attributes:
      path: a checkpoint, a model directory or an export, as the user names it.
      pattern: a regular expression; only variables in whose name it is found are taken.
      tell: called with a line for each variable.
    """

    path: str
    pattern: str = ""
    tell: Callable[[str], None] = lambda line: None

    def apply(self) -> None:
        """Sets the initial values of the variables of the graph, after the model is built and before a session is.

        Raises:
          UsageError: there is no checkpoint, or none of its variables fits.
        """
        checkpoint = checkpoint_at(self.path, flag="--warm_start_from ")
        stored_shapes = tf.train.load_checkpoint(checkpoint).get_variable_to_shape_map()
        variables = {v.op.name: v for v in models_variables()}
        refused = {name: why_not(name, v.shape.as_list(), stored_shapes, self.pattern) for name, v in variables.items()}
        taken = [v for name, v in variables.items() if not refused[name]]
        if not taken:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(refused.items())[:3])
            raise UsageError(
                f"--warm_start_from {self.path}: no variable of the model fits {checkpoint} ({reasons}). Use a "
                "checkpoint or export of a similar model, or another --warm_start_vars."
            )
        self.tell(f"warm start: {len(taken)} of {len(variables)} variables are taken from {checkpoint}")
        for name, variable in variables.items():
            self.tell(f"  {name} {variable.shape.as_list()}: {refused[name] or 'taken'}")
        # The variables, not their names: those would also match the names of what the optimizer keeps for them.
        tf.compat.v1.train.warm_start(*tf_estimator.WarmStartSettings(checkpoint, taken))


def with_warm_start(spec: Any, warm_start: WarmStart | None, config: Any) -> Any:
    """Returns a TRAIN spec that begins with these weights, unless there is a checkpoint to resume from.

    Args:
      spec: an `EstimatorSpec`.
      warm_start: None: nothing changes.
      config: the `RunConfig`, which names the model directory.
    """
    if warm_start is None or tf.train.latest_checkpoint(config.model_dir) is not None:
        return spec
    return spec._replace(training_chief_hooks=[*spec.training_chief_hooks, _AfterItsOwn(warm_start)])


class _AfterItsOwn(tf.compat.v1.train.SessionRunHook):
    """Applies it after Estimator's own warm start, which gives a Keras model the weights that it was built with."""

    def __init__(self, warm_start: WarmStart) -> None:
        self._warm_start = warm_start

    def begin(self) -> None:
        self._warm_start.apply()


def why_not(name: str, shape: list[int], stored_shapes: Mapping[str, list[int]], pattern: str) -> str:
    """Returns why a variable begins with its own initial value; empty if it is taken."""
    if not re.search(pattern, name):
        return "begins anew, since --warm_start_vars leaves it out"
    if name not in stored_shapes:
        return "begins anew, since it is not there"
    return "" if stored_shapes[name] == shape else f"begins anew, since its shape there is {stored_shapes[name]}"


def models_variables() -> Sequence[Any]:
    """Returns the variables with which the model of this graph predicts: neither the step nor the optimizer's.

    An optimizer's have the name of a trained variable in their own, or are single numbers.
    """
    trained = tf.compat.v1.trainable_variables()
    names = {v.op.name for v in trained}
    untrained_variables = [v for v in tf.compat.v1.global_variables() if v.op.name not in names and v.shape.rank]
    return [*trained, *(v for v in untrained_variables if not any(name in v.op.name for name in names))]


def checkpoint_at(path: str, *, flag: str) -> str:
    """Returns the checkpoint that a path means.

    Args:
      path: a checkpoint; a model directory, whose latest one is taken; an export; or a folder of exports.
      flag: begins the message of an error.

    Raises:
      UsageError: there is none, or none of an Estimator.
      MillraceError: the directory names one that does not lie in it.
    """
    named = named_checkpoints(path) if tf.io.gfile.isdir(path) else [path]
    exports = [path, *(os.path.join(path, number) for number in numbered(path)[::-1])]
    places = [*named[::-1], *(os.path.join(export, "variables", "variables") for export in exports)]
    checkpoint = next(filter(tf.compat.v1.train.checkpoint_exists, places), None)
    if checkpoint is None:
        raise UsageError(f"{flag}{path}: no checkpoint there; give a checkpoint, a model directory or an export")
    try:
        foreign = tf.train.load_checkpoint(checkpoint).has_tensor(_OF_OBJECTS)
    except tf.errors.DataLossError:
        foreign = True
    if foreign:
        raise UsageError(
            f"{flag}{path}: is damaged, or no checkpoint of a training; give a checkpoint, a model directory or an "
            "export. A network of Keras, or another SavedModel, is trained on images by --model backbone --hparams "
            "path=SAVED_MODEL pixels=..."
        )
    return checkpoint


_OF_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # a tensor in what Keras and TensorFlow 2 save
