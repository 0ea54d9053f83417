"""A Keras model from a `.keras` or `.h5` file that somebody else wrote, without Keras's deserialisation.

Keras's own loader imports and calls what a configuration names. Here a configuration is data: a functional graph of
listed layers, which are constructed one after the other with numbers and plain words as their options. The values of
their weights are read afterwards, from an HDF5 file whose bytes hold all of them.
"""

from __future__ import annotations

import graphlib
import importlib
import inspect
import io
import math
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import tensorflow as tf

from schemas.errors import UsageError
from schemas.storage.json_files import parse_json

FORMS = "expected the folder of a TF2 SavedModel, or a .keras or .h5 file of a complete Keras model"
# fmt: off
LAYERS = frozenset({
    "Activation", "Add", "Average", "AveragePooling2D", "BatchNormalization", "Concatenate", "Conv2D", "Cropping2D",
    "Dense", "DepthwiseConv2D", "Dropout", "ELU", "Flatten", "GlobalAveragePooling2D", "GlobalMaxPooling2D",
    "GroupNormalization", "InputLayer", "LayerNormalization", "LeakyReLU", "MaxPooling2D", "Maximum", "Minimum",
    "Multiply", "Normalization", "PReLU", "Permute", "ReLU", "Rescaling", "Reshape", "Resizing", "SeparableConv2D",
    "Softmax", "SpatialDropout2D", "Subtract", "UpSampling2D", "ZeroPadding2D",
})
ACTIVATIONS = frozenset({
    "elu", "exponential", "gelu", "hard_sigmoid", "hard_silu", "hard_swish", "leaky_relu", "linear", "log_softmax",
    "mish", "relu", "relu6", "selu", "sigmoid", "silu", "softmax", "softplus", "softsign", "swish", "tanh",
})
# fmt: on
# Arithmetic between layers, as in `x * 2`: Keras 2 records the function of TensorFlow, Keras 3 a class of its own.
_OF_TENSORFLOW = {
    "__operators__.add": "add",
    "math.add": "add",
    "math.subtract": "subtract",
    "math.multiply": "multiply",
    "math.divide": "divide",
    "math.truediv": "divide",
}
_OF_KERAS = {"Add": "add", "Subtract": "subtract", "Multiply": "multiply", "Divide": "divide", "TrueDivide": "divide"}
_UNUSED = ("_initializer", "_regularizer", "_constraint")  # the file has the values, and an Estimator its own loss


@dataclass(frozen=True)
class _Node:
    """A call of a layer, and the tensor that it gives."""

    layer: str
    place: int


@dataclass(frozen=True)
class _Call:
    """The arguments of a call: nodes stand for their tensors."""

    args: list[Any]
    kwargs: dict[str, Any]

    def nodes(self) -> list[_Node]:
        """The nodes among the arguments."""
        return [value for value in tf.nest.flatten([self.args, self.kwargs]) if isinstance(value, _Node)]


class _NotListed(ValueError):
    """Something in a configuration that is not on the lists above."""


@dataclass(frozen=True)
class _Contents:
    """What a file holds: the configuration, None if there is none, the release of Keras, and the HDF5 file."""

    config: Any
    version: str
    weights: bytes
    suffix: str


def read_keras_model(path: str, data: bytes) -> Any:
    """Builds a Keras model from the bytes of a `.keras` or `.h5` file, by the release that wrote it, 2 or 3.

    Args:
      path: the file's path, for messages.
      data: its bytes.

    Returns:
      A functional model of `tf_keras` or `keras`, with its weights.

    Raises:
      UsageError: it is no such file, it has something that is not listed, or Keras cannot build it.
    """
    try:
        contents = _contents(data)
        package = "tf_keras" if int(contents.version.partition(".")[0]) < 3 else "keras"
        outside = _outside(contents.weights)
    except (AttributeError, KeyError, TypeError, ValueError, OSError, RuntimeError, zipfile.BadZipFile) as error:
        raise UsageError(f"path={path}: is damaged, or no Keras model ({first_line(error)}); {FORMS}") from None
    if outside is not None:
        raise UsageError(f"path={path}: {outside}. It is not loaded; save the model again with Keras's model.save.")
    if contents.config is None:
        raise UsageError(f"path={path}: holds weights only, without the layers; save the model with model.save")
    keras = importlib.import_module(package)
    if package == "keras" and keras.config.backend() != "tensorflow":
        backend = keras.config.backend()
        raise UsageError(
            f"path={path}: is of Keras {contents.version}, which uses {backend} here; set KERAS_BACKEND=tensorflow"
        )
    try:
        model = _model(keras, contents.config, _Zeros(len(contents.weights)))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"model{contents.suffix}"
            file.write_bytes(contents.weights)
            model.load_weights(str(file))
    except _NotListed as error:
        raise UsageError(
            f"path={path}: holds {error}, which is not on the list of what is built from a Keras file, because such a "
            "file could run code with all your rights. Save the model without it, or as a SavedModel (Keras 2: "
            "model.save(FOLDER, save_format='tf'), Keras 3: model.export(FOLDER))."
        ) from None
    except Exception as error:  # Keras's errors are of any class
        raise UsageError(
            f"path={path}: is of Keras {contents.version}, and Keras {keras.__version__} cannot load it "
            f"({first_line(error)}). Save it by that release, or as a SavedModel (Keras 3: model.export)."
        ) from error
    return model


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def _contents(data: bytes) -> _Contents:
    if data.startswith(b"PK\3\4"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            config, metadata, weights = (
                _stored(archive, name) for name in ("config.json", "metadata.json", "model.weights.h5")
            )
        return _Contents(parse_json(config), parse_json(metadata)["keras_version"], weights, ".weights.h5")
    if not data.startswith(b"\x89HDF\r\n\x1a\n"):
        raise ValueError("it begins as neither of them")
    with h5py.File(io.BytesIO(data)) as file:
        texts = [file.attrs.get(name) for name in ("model_config", "keras_version")]
    described, version = (text.decode() if isinstance(text, bytes) else text for text in texts)
    return _Contents(None if described is None else parse_json(described), version or "2", data, ".h5")


def _stored(archive: zipfile.ZipFile, name: str) -> bytes:
    """A file of an archive. Keras compresses nothing, so nothing unpacks to more than the archive's own size."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed, which Keras never does")
    return archive.read(name)


def _outside(weights: bytes) -> str | None:
    """What in an HDF5 file takes values from elsewhere, or more values than its bytes hold; None if nothing does."""
    links: list[str] = []

    def note(name: str, link: Any) -> None:
        if not isinstance(link, h5py.HardLink):
            links.append(name)

    with h5py.File(io.BytesIO(weights)) as file:
        file.visititems_links(note)
        if links:
            return f"its HDF5 object {links[0]!r} is a link to another one or to another file"
        datasets: list[h5py.Dataset] = []
        file.visititems(lambda _, item: datasets.append(item) if isinstance(item, h5py.Dataset) else None)
        for dataset in datasets:
            properties = dataset.id.get_create_plist()
            plain = properties.get_layout() in (h5py.h5d.CONTIGUOUS, h5py.h5d.COMPACT)
            if properties.get_external_count() or not plain or dataset.id.get_storage_size() < dataset.nbytes:
                return f"its HDF5 dataset {dataset.name!r} does not have its values in the file, uncompressed"
    return None


class _Zeros:
    """The initial values of all weights, which are at most as many bytes as the file that has their values."""

    def __init__(self, most: int) -> None:
        self._left = most

    def __call__(self, shape: Any, dtype: Any = None, **_: Any) -> tf.Tensor:
        dtype = tf.as_dtype(dtype or tf.float32)
        self._left -= math.prod(shape) * dtype.size
        if self._left < 0:
            raise ValueError("its layers have more weights than the file has values")
        return tf.zeros(shape, dtype)


def _model(keras: Any, config: Any, initializer: _Zeros) -> Any:
    """The functional model that a configuration describes."""
    if config["class_name"] not in ("Functional", "Model"):
        raise _NotListed(f"a {config['class_name']} model, where a functional one was expected")
    graph = config["config"]
    layers = {entry["config"]["name"]: entry for entry in graph["layers"]}
    functions = {name: _function(keras, entry, initializer) for name, entry in layers.items()}
    calls = {
        _Node(name, place): _call(node)
        for name, entry in layers.items()
        for place, node in enumerate(entry["inbound_nodes"] or [[]])
    }
    tensors: dict[_Node, Any] = {}
    for node in graphlib.TopologicalSorter({node: call.nodes() for node, call in calls.items()}).static_order():
        args, kwargs = _with_tensors(calls[node].args, tensors), _with_tensors(calls[node].kwargs, tensors)
        tensors[node] = functions[node.layer](*args, **kwargs)
    ends = [[tensors[node] for node in _nodes(graph[key])] for key in ("input_layers", "output_layers")]
    inputs, outputs = (end[0] if len(end) == 1 else end for end in ends)
    model = keras.Model(inputs, outputs)
    if not graph.get("trainable", True):
        model.trainable = False
    return model


def _function(keras: Any, entry: Mapping[str, Any], initializer: _Zeros) -> Callable[..., Any]:
    """What a layer of a configuration computes."""
    kind, module, config = entry["class_name"], entry.get("module"), entry["config"]
    if kind == "TFOpLambda":
        if config["function"] not in _OF_TENSORFLOW:
            raise _NotListed(f"the call of tf.{config['function']}")
        return getattr(tf.math, _OF_TENSORFLOW[config["function"]])
    if module == "keras.src.ops.numpy" and kind in _OF_KERAS:
        return getattr(keras.ops, _OF_KERAS[kind])
    if kind not in LAYERS or module not in (None, "keras.layers") or entry.get("registered_name") is not None:
        raise _NotListed(f"a {kind} layer" if module in (None, "keras.layers") else f"{module}.{kind}")
    cls = getattr(keras.layers, kind)
    own = {name: initializer for name in inspect.signature(cls.__init__).parameters if name.endswith("_initializer")}
    layer = cls(**dict(_options(kind, config)), **own)
    return (lambda: layer.output) if kind == "InputLayer" else layer


def _options(kind: str, config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The options of a layer, but for what a network with weights has no use for."""
    for name, option in config.items():
        if name.endswith(_UNUSED):
            continue
        value = option["config"]["name"] if name == "dtype" and isinstance(option, dict) else option
        if not _is_plain(value) or (name == "activation" and str(value) not in (*ACTIVATIONS, "None")):
            raise _NotListed(f"a {kind} layer with {name} = {value!s:.100}")
        yield name, value


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a word, or a list of them."""
    return all(map(_is_plain, value)) if isinstance(value, list) else isinstance(value, str | int | float | None)


def _call(node: Any) -> _Call:
    """A call, as Keras 2 or 3 writes it."""
    match node:
        case {"args": list(args), "kwargs": dict(kwargs)}:
            return _Call([_argument(value) for value in args], _named(kwargs))
        case [str(), *_]:
            return _Call([_node(node)], _named(node[3]))
        case [[str(), *_], *_]:
            nodes = [_node(part) for part in node]
            return _Call([nodes[0] if len(nodes) == 1 else nodes], _named(node[0][3]))
        case []:
            return _Call([], {})
        case _:
            raise ValueError(f"a call of a layer is {node!r:.100}")


def _named(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The named arguments of a call: whether it trains, and the second operand of an operator."""
    named = {name: _argument(value) for name, value in kwargs.items() if value is not None}
    unlisted = next((name for name in named if name not in ("training", "y")), None)
    if unlisted is not None:
        raise _NotListed(f"a layer's argument {unlisted!r}")
    return named


def _argument(value: Any) -> Any:
    """An argument of a call: a number, a node, or a list of them."""
    match value:
        case {"class_name": "__keras_tensor__", "config": {"keras_history": history}}:
            return _node(history)
        case [str(), int(), int()]:
            return _node(value)
        case list():
            return [_argument(part) for part in value]
        case int() | float() | None:  # a bool is an int
            return value
        case _:
            raise _NotListed(f"a layer's argument {value!r:.100}")


def _with_tensors(value: Any, tensors: Mapping[_Node, Any]) -> Any:
    """Arguments, with the tensors of their nodes."""
    if isinstance(value, _Node):
        return tensors[value]
    if isinstance(value, list):
        return [_with_tensors(part, tensors) for part in value]
    if isinstance(value, dict):
        return {name: _with_tensors(part, tensors) for name, part in value.items()}
    return value


def _nodes(references: Any) -> list[_Node]:
    """The nodes at a graph's ends: one of them, or a list."""
    return [_node(references)] if isinstance(references[0], str) else [_node(each) for each in references]


def _node(reference: Any) -> _Node:
    layer, place, tensor = reference[:3]
    if not isinstance(layer, str) or not isinstance(place, int) or tensor != 0:
        raise ValueError(f"a tensor of a layer is {reference!r:.100}")
    return _Node(layer, place)
