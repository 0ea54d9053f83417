"""The step that TPUEstimator would send to a TPU, lowered by XLA on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.models import BUILT_IN
from trainer.spec.task_spec import read_task_spec

STEP_BATCH = 8
ModeKeys = tf_estimator.ModeKeys


class Step:
    """A step of a built-in model on the train split, in a graph of its own.

    Args:
      model: its name.
      dataset: what it is trained on.
      folder: its model directory.
      hparams: hyper-parameters.
    """

    def __init__(self, model: str, dataset: Dataset, folder: Path, **hparams: Any) -> None:
        config = tf_estimator.tpu.RunConfig(model_dir=str(folder))
        task_spec = read_task_spec(dataset, max_steps=10)
        estimator = BUILT_IN[model].build(task_spec, BUILT_IN[model].hparams(**hparams), config)
        options = InputOptions(batch_size=STEP_BATCH, seed=1, deterministic=True, drop_remainder=True)
        self.graph = tf.Graph()
        with self.graph.as_default():
            batches = input_fn(dataset, "train", mode=ModeKeys.TRAIN, options=options)
            self._iterator = tf.compat.v1.data.make_initializable_iterator(batches)
            features, label = self._iterator.get_next()
            self.inputs = [*features.values(), label]
            tf.compat.v1.train.get_or_create_global_step()
            spec = estimator.model_fn(features, label, ModeKeys.TRAIN, config)
            with tf.control_dependencies([spec.train_op]):
                self._loss = tf.identity(spec.loss)
            self._variables = {v.op.name: v for v in tf.compat.v1.global_variables()}

    def lowered(self) -> str:
        """What XLA makes of the step: HLO, as text, before a backend compiles it for its processor.

        Raises:
          ValueError: XLA does not know an operation, or a shape is not fixed.
        """
        whole = self.graph.as_graph_def()
        for node in whole.node:
            node.attr.pop("_class", None)  # places an operation beside another, which may be outside of the step
        step = tf.compat.v1.graph_util.extract_sub_graph(whole, [self._loss.op.name])
        given = {x.name: x for x in self.inputs} | {v.handle.name: v for v in self._variables.values()}
        outside = {name.partition(":")[0] for name in given} | {self._iterator._iterator_resource.op.name}
        inside = [node for node in step.node if node.name not in outside]
        read = {name for node in inside for name in node.input}
        step = tf.compat.v1.GraphDef(node=inside, library=step.library, versions=step.versions)
        names = [name for name in given if read & {name, name.removesuffix(":0")}]
        values = {v.handle.name: tf.Variable(tf.zeros(v.shape, v.dtype)) for v in self._variables.values()}

        @tf.function(jit_compile=True)
        def compiled(**inputs: tf.Tensor) -> tf.Tensor:
            graph = tf.compat.v1.get_default_graph()
            fed = {n: graph.capture(values[n].handle) if n in values else inputs[_argument(n)] for n in names}
            (loss,) = tf.graph_util.import_graph_def(step, fed, [self._loss.name])
            return loss

        batch = {_argument(x.name): tf.zeros(x.shape, x.dtype) for x in self.inputs}
        return str(compiled.experimental_get_compiler_ir(**batch)(stage="hlo"))


def _argument(name: str) -> str:
    return name.replace(":", "_").replace("/", "_")
