"""How many parameters a model has and how many multiply-adds an example costs, layer by layer, from its graph."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from typing import Any

import tensorflow as tf

FILE_NAME = "model_stats.csv"

# Operations whose second input is weights. A MatMul is counted as one row of its input for each example.
_KINDS = {
    "Conv2D": "conv",
    "DepthwiseConv2dNative": "depthwise_conv",
    "MatMul": "dense",
    "FusedBatchNormV3": "batch_norm",
}
# What may stand between a variable and the operation that uses it, the values being the variable's own.
_PASSES = {"Identity", "ReadVariableOp", "Cast", "Reshape", "Squeeze", "ExpandDims", "Transpose"}
_VARIABLES = {"VarHandleOp", "VariableV2"}


@dataclasses.dataclass(frozen=True)
class LayerStats:
    """One layer: the trainable variables of one scope, and the operations that multiply by them.

    Attributes:
      name: the scope.
      kind: conv, depthwise_conv, dense, batch_norm; other for variables that none of these use.
      output_shape: of the last such operation, None where a side is unknown; () where there is none.
      parameters: values in the trainable variables.
      multiply_adds: for one example, over all the uses of the layer. Batch norm counts as none: it folds into the
        convolution before it. None: a shape is unknown.
    """

    name: str
    kind: str
    output_shape: tuple[int | None, ...]
    parameters: int
    multiply_adds: int | None


@dataclasses.dataclass(frozen=True)
class ModelStats:
    """The layers in the order of their variables."""

    layers: tuple[LayerStats, ...]

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiply_adds(self) -> int | None:
        """For one example; None if that of some layer is unknown."""
        counts = [layer.multiply_adds for layer in self.layers if layer.multiply_adds is not None]
        return sum(counts) if len(counts) == len(self.layers) else None

    def to_csv(self) -> str:
        """A header, a line a layer and a line `total`. Shapes are written 55x55x64; what is unknown is empty or `?`."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["name", "type", "output_shape", "parameters", "multiply_adds"])
        for layer in self.layers:
            shape = "x".join("?" if side is None else str(side) for side in layer.output_shape)
            writer.writerow([layer.name, layer.kind, shape, layer.parameters, layer.multiply_adds])
        writer.writerow(["total", "", "", self.parameters, self.multiply_adds])
        return text.getvalue()


def count(graph: tf.Graph) -> ModelStats:
    """Counts the trainable variables of a TF1 graph and the operations that multiply by them, gradients left out."""
    parameters: dict[str, int] = {}
    layer_of: dict[str, str] = {}
    for variable in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES):
        name = variable.op.name.rpartition("/")[0]
        layer_of[variable.op.name] = name
        parameters[name] = parameters.get(name, 0) + variable.shape.num_elements()

    uses: dict[str, list[tf.Operation]] = {name: [] for name in parameters}
    for operation in graph.get_operations():
        name = layer_of.get(_weights(operation) or "")
        if name is not None and "gradients" not in operation.name.split("/"):
            uses[name].append(operation)
    return ModelStats(tuple(_layer(name, parameters[name], uses[name]) for name in parameters))


class ModelStatsHook(tf.compat.v1.train.SessionRunHook):
    """Writes `model_stats.csv`, of the default graph, to a directory when a session begins: a chief's hook in TRAIN."""

    def __init__(self, model_dir: str) -> None:
        self._path = f"{model_dir.rstrip('/')}/{FILE_NAME}"

    def begin(self) -> None:
        stats = count(tf.compat.v1.get_default_graph())
        tf.io.gfile.makedirs(self._path.rpartition("/")[0])
        with tf.io.gfile.GFile(self._path, "w") as file:
            file.write(stats.to_csv())


def _weights(operation: tf.Operation) -> str | None:
    """The name of the variable that an operation multiplies by; None if it is no such operation."""
    if operation.type not in _KINDS:
        return None
    source = operation.inputs[1].op
    while source.type in _PASSES:
        source = source.inputs[0].op
    return str(source.name) if source.type in _VARIABLES else None


def _layer(name: str, parameters: int, uses: list[Any]) -> LayerStats:
    if not uses:
        return LayerStats(name, "other", (), parameters, 0)
    costs = [_multiply_adds(operation) for operation in uses]
    known = [cost for cost in costs if cost is not None]
    shape = tuple(uses[-1].outputs[0].shape[1:])
    return LayerStats(name, _KINDS[uses[-1].type], shape, parameters, sum(known) if known == costs else None)


def _multiply_adds(operation: Any) -> int | None:
    output = tuple(operation.outputs[0].shape[1:])
    if operation.type == "FusedBatchNormV3":
        return 0
    kernel = tuple(operation.inputs[1].shape)  # of a convolution: [height, width, inputs (of a group), outputs]
    sides = output[1:] if operation.type != "MatMul" and _channels_first(operation) else output[:-1]
    return None if None in (*kernel, *sides) else math.prod((*kernel, *sides))


def _channels_first(operation: Any) -> bool:
    return operation.get_attr("data_format") == b"NCHW"
