"""`--warm_start_from`: begins a training with the weights of another training, for all variables that fit."""

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
      path: the path of a checkpoint, a model directory or an export, as the user gave it.
      pattern: a regular expression; only variables whose name contains a match are taken.
      tell: prints a message; called with a line for each variable.
    """

    path: str
    pattern: str = ""
    tell: Callable[[str], None] = lambda line: None

    def apply(self) -> None:
        """Sets the initial values of the graph's variables from the checkpoint.

        Call this after the model is built and before a session is created.

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
        # Variables are passed instead of names, because a name would also match the optimizer's variables for it.
        tf.compat.v1.train.warm_start(*tf_estimator.WarmStartSettings(checkpoint, taken))


def with_warm_start(spec: Any, warm_start: WarmStart | None, config: Any) -> Any:
    """Adds a warm start to a TRAIN spec, unless the model directory already has a checkpoint to resume from.

    Args:
      spec: an `EstimatorSpec`.
      warm_start: the weights; None: the spec is returned unchanged.
      config: the `RunConfig`, which names the model directory.
    """
    if warm_start is None or tf.train.latest_checkpoint(config.model_dir) is not None:
        return spec
    return spec._replace(training_chief_hooks=[*spec.training_chief_hooks, _AfterItsOwn(warm_start)])


class _AfterItsOwn(tf.compat.v1.train.SessionRunHook):
    """A hook that applies a warm start after Estimator's own warm start, which initialises Keras models."""

    def __init__(self, warm_start: WarmStart) -> None:
        self._warm_start = warm_start

    def begin(self) -> None:
        self._warm_start.apply()


def why_not(name: str, shape: list[int], stored_shapes: Mapping[str, list[int]], pattern: str) -> str:
    """Returns why a variable is not taken from the checkpoint; empty if it is taken.

    Args:
      name: the variable's name.
      shape: the variable's shape.
      stored_shapes: the shapes of the checkpoint's variables, by name.
      pattern: the regular expression that the name must contain.
    """
    if not re.search(pattern, name):
        return "begins anew, since --warm_start_vars leaves it out"
    if name not in stored_shapes:
        return "begins anew, since it is not there"
    return "" if stored_shapes[name] == shape else f"begins anew, since its shape there is {stored_shapes[name]}"


def models_variables() -> Sequence[Any]:
    """Returns the variables with which this graph's model predicts.

    The step counter and the optimizer's variables are left out. A variable belongs to the optimizer if its name
    contains the name of a trained variable, or if it is a single number.
    """
    trained = tf.compat.v1.trainable_variables()
    names = {v.op.name for v in trained}
    untrained_variables = [v for v in tf.compat.v1.global_variables() if v.op.name not in names and v.shape.rank]
    return [*trained, *(v for v in untrained_variables if not any(name in v.op.name for name in names))]


def checkpoint_at(path: str, *, flag: str) -> str:
    """Finds the checkpoint that a path stands for.

    Args:
      path: a checkpoint; a model directory, which stands for its latest checkpoint; an export; or a folder of exports,
        which stands for its latest export.
      flag: the beginning of an error message, such as `--warm_start_from `.

    Returns:
      The checkpoint's path, without the suffix `.index`.

    Raises:
      UsageError: there is no checkpoint, or it was not written by an Estimator.
      MillraceError: the model directory names a checkpoint outside of itself.
    """
    # Places where the checkpoint may be: the model directory's checkpoints, the latest first; the export at the path;
    # the exports in the folder, the latest first.
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


_OF_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # a tensor in checkpoints of Keras and TensorFlow 2
