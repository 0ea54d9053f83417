"""The training graph that TPUEstimator would send to a TPU, and its step, made on the CPU and lowered by XLA."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import tpu_system_metadata

from schemas.dataset import Dataset
from schemas.display import Display
from schemas.exports.session import plain_session
from tests.support.training import brief_config
from trainer.data.host_features import host_features, note_host_features, part_of_host
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.loop import train
from trainer.loop.building import build_estimator
from trainer.loop.plan import plan_training
from trainer.loop.train import Task
from trainer.models import BUILT_IN
from trainer.spec.task_spec import read_task_spec
from trainer.strategies import tpu
from trainer.strategies.run_config import run_config
from trainer.task import parse_options

HOSTS, CORES, BATCH = 2, 8, 64
# Which only a TPU has, and summaries, which nothing reads, so that they are left out of what is compiled.
OF_TPU = {"InfeedDequeueTuple", "OutfeedEnqueueTuple", "CrossReplicaSum"}
UNREAD = {"ScalarSummary", "HistogramSummary"}


@dataclasses.dataclass(frozen=True)
class TPUGraph:
    """A training's graph.

    Attributes:
      step: the nodes of the step, which a TPU makes in a loop.
      trained: the trainable variables' names.
      hooks: the classes of the training's hooks.
      parts: what each call of the `input_fn` was told to read.
      loop: how many steps a TPU makes before it comes back.
    """

    step: list[Any]
    trained: list[str]
    hooks: list[str]
    parts: list[dict[str, int]]
    loop: int

    def operations(self) -> Counter[str]:
        return Counter(node.op for node in self.step)

    def inputs(self) -> list[list[int]]:
        """The shapes of what a core reads."""
        (infeed,) = (node for node in self.step if node.op == "InfeedDequeueTuple")
        return [[dim.size for dim in shape.dim] for shape in infeed.attr["shapes"].list.shape]


def tpu_graph(model: str, dataset: Dataset, folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> TPUGraph:
    """Builds it for a TPU of `HOSTS` hosts with `CORES` cores in all, and steps of `BATCH` examples."""
    argv = ["--data_dir", dataset.path, "--model_dir", str(folder), "--model", model, "--tpu", "lab", *flags]
    options = plan_training(dataset, parse_options([*argv, "--batch_size", str(BATCH), "--max_steps", "5000"]))
    places = [f"/job:worker/task:{i % HOSTS}/device:TPU:{i // HOSTS}" for i in range(CORES)]
    devices = [tf.config.LogicalDevice(place, "TPU") for place in places]
    found = tf.tpu.experimental.TPUSystemMetadata(CORES, HOSTS, CORES // HOSTS, None, devices)
    monkeypatch.setattr(tpu_system_metadata, "_query_tpu_system_metadata", lambda *_, **__: found)
    monkeypatch.setenv(tpu.SHUTDOWN, "")  # as the resolver sets it
    monkeypatch.setattr(tpu, "resolver", _found)
    parts: list[dict[str, int]] = []

    def noted_part(params: Any) -> dict[str, int]:
        parts.append(part_of_host(params))
        return parts[-1]

    monkeypatch.setattr(train, "part_of_host", noted_part)
    config = run_config(options, str(folder), save_checkpoints_steps=20)
    estimator = build_estimator(dataset, options, config)
    read = Task(options, dataset, estimator, Display(quiet=True)).reader("train", "train")
    estimator._rendezvous["train"] = None  # where its threads would leave their errors
    with tf.Graph().as_default() as graph:
        tf.compat.v1.train.create_global_step()
        features = estimator._call_input_fn(read, "train")
        spec = estimator._call_model_fn(features, None, "train", estimator.config)
        trained = [v.op.name for v in tf.compat.v1.trainable_variables()]
    hooks = [type(hook).__name__ for hook in (*spec.training_hooks, *spec.training_chief_hooks)]
    return TPUGraph(list(_looped(graph)), trained, hooks, parts, config.tpu_config.iterations_per_loop)


def _found(name: str) -> Any:
    """As if a TPU of that name had been found."""
    hosts = [f"{name}-{i}:8470" for i in range(HOSTS)]
    cluster = tf.train.ClusterSpec({"worker": hosts})
    return tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, master=f"grpc://{hosts[0]}")


def _looped(graph: tf.Graph) -> Iterator[Any]:
    """The nodes of the loop that a TPU makes, with those of the functions that it calls."""
    library = {function.signature.name: function.node_def for function in graph.as_graph_def().library.function}
    loops = [op for op in graph.get_operations() if op.type == "While" and "_tpu_replicate" in op.node_def.attr]
    names = [loop.get_attr("body").name for loop in loops]
    for name in names:  # which grows on the way
        for node in library[name]:
            yield node
            called = [f for a in node.attr.values() for f in (a.func.name, *(f.name for f in a.list.func)) if f]
            names += [f for f in called if f not in names]


def unknown_to_xla(operations: Iterable[str]) -> set[str]:
    """Those of which XLA has no kernel."""
    tf.function(tf.identity, jit_compile=True)(0.0)  # XLA registers its kernels when it first compiles something
    devices = {op: {k.device_type for k in kernels.get_registered_kernels_for_op(op).kernel} for op in operations}
    return {op for op, found in devices.items() if "XLA_CPU_JIT" not in found}


STEP_BATCH = 8
ModeKeys = tf_estimator.ModeKeys


@dataclasses.dataclass(frozen=True)
class Made:
    """Some steps that were made: the variables before them by name, and the losses."""

    before: dict[str, np.ndarray]
    losses: list[float]


class Step:
    """A step of a built-in model on the train split, in a graph of its own.

    Args:
      model: its name.
      dataset: what it is trained on.
      folder: its model directory.
      for_tpu: whether it is the step that a TPU gets.
      hparams: hyper-parameters.
    """

    def __init__(self, model: str, dataset: Dataset, folder: Path, *, for_tpu: bool, **hparams: Any) -> None:
        config = tf_estimator.tpu.RunConfig(model_dir=str(folder)) if for_tpu else brief_config(folder)
        task_spec = read_task_spec(dataset, max_steps=10)
        estimator = BUILT_IN[model].build(task_spec, BUILT_IN[model].hparams(**hparams), config)
        on_host = host_features(dataset, batch_size=STEP_BATCH) if for_tpu else None
        options = InputOptions(batch_size=STEP_BATCH, seed=1, deterministic=True, drop_remainder=True, on_host=on_host)
        self.graph = tf.Graph()
        with self.graph.as_default():
            batches = input_fn(dataset, "train", mode=ModeKeys.TRAIN, options=options)
            self._iterator = tf.compat.v1.data.make_initializable_iterator(batches)
            features, label = self._iterator.get_next()
            self.inputs = [*features.values(), label]
            tf.compat.v1.train.get_or_create_global_step()
            if for_tpu:
                note_host_features(dataset, features)
            spec = estimator.model_fn(features, label, ModeKeys.TRAIN, config)
            with tf.control_dependencies([spec.train_op]):
                self._loss = tf.identity(spec.loss)
            self._variables = {v.op.name: v for v in tf.compat.v1.global_variables()}

    def make(self, count: int, before: dict[str, np.ndarray] | None = None) -> Made:
        """Makes steps from these values of the variables, or from the initial ones."""
        with tf.compat.v1.Session(graph=self.graph, config=plain_session()) as session:
            with self.graph.as_default():
                start = [tf.compat.v1.global_variables_initializer(), tf.compat.v1.tables_initializer()]
            session.run([*start, self._iterator.initializer])
            for name, value in (before or {}).items():
                variable = self._variables[name]
                session.run(variable.initializer, {variable.initializer.inputs[1]: value})
            begun = session.run(self._variables)
            return Made(begun, [float(session.run(self._loss)) for _ in range(count)])

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
