"""The training graph that TPUEstimator would send to a TPU. No TPU is asked: it is told how many cores there are."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import tpu_system_metadata

from schemas.dataset import Dataset
from trainer.data import host_features
from trainer.loop import train
from trainer.loop.building import build_estimator
from trainer.loop.display import Display
from trainer.loop.train import Task
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
    options = parse_options([*argv, "--batch_size", str(BATCH)])
    places = [f"/job:worker/task:{i % HOSTS}/device:TPU:{i // HOSTS}" for i in range(CORES)]
    devices = [tf.config.LogicalDevice(place, "TPU") for place in places]
    found = tf.tpu.experimental.TPUSystemMetadata(CORES, HOSTS, CORES // HOSTS, None, devices)
    monkeypatch.setattr(tpu_system_metadata, "_query_tpu_system_metadata", lambda *_, **__: found)
    monkeypatch.setenv(tpu.SHUTDOWN, "")  # as the resolver sets it
    monkeypatch.setattr(tpu, "resolver", _found)
    parts: list[dict[str, int]] = []

    def part_of_host(params: Any) -> dict[str, int]:
        parts.append(host_features.part_of_host(params))
        return parts[-1]

    monkeypatch.setattr(train, "part_of_host", part_of_host)
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
