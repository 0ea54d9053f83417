"""`backbone`: classifies images by a pretrained network from a file, such as one of `tf.keras.applications`.

A dense layer over the network's output gives the logits. The network is read once and eagerly, before a graph is built.
Reading gives a function that computes a feature vector for each image, and the values of the function's variables. Each
graph of the Estimator then calls the function with variables that belong to the graph, like those of every other
model: a checkpoint holds them, a distribution strategy mirrors them, and an export needs no other file. When a training
begins, the variables take the values from the file. When a training resumes, they keep the values of its checkpoint.

A network file is treated as data: a graph with ops that could do more than compute is refused.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas import storage
from schemas.errors import UsageError
from schemas.graphs.allowed_ops import ALLOWED
from schemas.graphs.check import graph_problem
from schemas.storage.gcs_access import check_tensorflow
from trainer.estimator import tf_estimator
from trainer.models.hyperparameters import PIXELS, BackboneHparams
from trainer.models.image_spec import ModeKeys, classes_spec
from trainer.models.optimizers import learning_rate
from trainer.spec.task_spec import ImageTaskSpec

SCOPE = "backbone"
FORM = (
    "expected the folder of a TF2 SavedModel (of a Keras model: tf_keras's `model.save(FOLDER, save_format='tf')`, or "
    "Keras 3's `model.export(FOLDER)`)"
)
# The means and standard deviations of ImageNet's channels in Keras's `preprocess_input`.
_CAFFE = (103.939, 116.779, 123.68)  # of blue, green and red
_TORCH = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def scaled(images: tf.Tensor, pixels: str) -> tf.Tensor:
    """Scales pixels to the range that a network expects.

    Args:
      images: uint8 or float32 `[batch, height, width, 3]`, from 0 to 255.
      pixels: the name of the range: a key of `PIXELS`.

    Returns:
      float32, of the same shape.
    """
    x = tf.cast(images, tf.float32)
    if pixels == "-1..1":
        return x / 127.5 - 1.0
    if pixels == "0..1":
        return x / 255.0
    if pixels == "torch":
        return (x / 255.0 - tf.constant(_TORCH[0])) / tf.constant(_TORCH[1])
    return x[..., ::-1] - tf.constant(_CAFFE) if pixels == "caffe" else x


@dataclasses.dataclass(frozen=True)
class NetworkFile:
    """A network that was loaded from its file.

    Attributes:
      call: `call(images, training)` computes the network's output. It also keeps the file's variables alive.
      shape: the shape of the images that the network takes.
      trainable: the variables that the network itself marks as trainable. None: the file has no such list, and each
        variable's own `trainable` counts.
      why_frozen: the reason why the network's layers cannot be trained; empty if they can.
    """

    call: Callable[[tf.Tensor, bool], Any]
    shape: tf.TensorShape
    trainable: Sequence[Any] | None
    why_frozen: str = ""


@dataclasses.dataclass(frozen=True)
class BackboneWeight:
    """A variable of a network's file.

    Attributes:
      name: the variable's name in a graph of the Estimator.
      value: its value in the file.
      trained: whether training changes it.
    """

    name: str
    value: np.ndarray
    trained: bool


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A network that was read from a file and traced into functions.

    Attributes:
      predict: the `ConcreteFunction` for inference, from float32 `[batch, height, width, 3]` to `[batch, size]`.
      train: the `ConcreteFunction` for training. It is `predict` itself if the network's layers stay frozen.
      weights: the variables of both functions. The keys are the `id` of the tensor by which a function captures the
        variable.
      source: the network as it was loaded; keeps the file's variables alive.
    """

    predict: Any
    train: Any
    weights: Mapping[int, BackboneWeight]
    source: NetworkFile

    def __call__(self, images: tf.Tensor, *, training: bool) -> tuple[tf.Tensor, Any]:
        """Computes feature vectors in the graph of a `model_fn`, and makes the network's variables in that graph.

        Args:
          images: float32 `[batch, height, width, 3]`, scaled by `scaled`.
          training: whether the mode is TRAIN.

        Returns:
          The vectors, float32 `[batch, size]`, and a `Scaffold` that gives the variables the file's values when
          training begins.
        """
        function = self.train if training else self.predict
        moving = self.train is not self.predict
        with tf.compat.v1.variable_scope(SCOPE, use_resource=True):
            variables = {key: _variable(weight, moving=moving) for key, weight in self.weights.items()}
        # The function was traced with the file's variables. While this graph calls it, it captures this graph's
        # variables (on a mirrored strategy: those of this replica) instead.
        own = function.captured_inputs
        function.set_external_captures(  # the variables of this graph, or of this replica
            [variables[id(x)].handle if id(x) in variables else tf.constant(x.numpy()) for x in own]
        )
        try:
            vectors = function(images)
        finally:
            function.set_external_captures(own)
        return vectors, _initialized(list(variables.values()), list(self.weights.values()))


def _variable(weight: BackboneWeight, *, moving: bool) -> Any:
    """Makes a network's variable in this graph.

    It starts as NaN (an integer as 0), so that a variable that never got its value from the file is noticed.
    """
    value, dtype = weight.value, tf.as_dtype(weight.value.dtype)
    apart = {}
    if moving and not weight.trained:  # each replica keeps averages of its own; a checkpoint holds their mean
        first, mean = tf.VariableAggregation.ONLY_FIRST_REPLICA, tf.VariableAggregation.MEAN
        apart = {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": mean if dtype.is_floating else first,
        }
    return tf.compat.v1.get_variable(
        weight.name,
        value.shape,
        dtype,
        tf.compat.v1.constant_initializer(np.nan if dtype.is_floating else 0),
        trainable=weight.trained,
        **apart,
    )


def _initialized(variables: Sequence[Any], weights: Sequence[BackboneWeight]) -> Any:
    """Returns a Scaffold that sets the variables to the file's values, except those that a warm start has set."""
    begins = [(v, v.initial_value, v.initializer, w.value) for v, w in zip(variables, weights, strict=True)]

    def begin(_: Any, session: Any) -> None:
        # A warm start replaces a variable's `initial_value`, so an unchanged one means: not warm-started. One session
        # run feeds all values at once, because this is faster than a run for each variable.
        left = [(op, initial, value) for v, initial, op, value in begins if v.initial_value is initial]
        session.run([op for op, _, _ in left], {initial: value for _, initial, value in left})  # at once, for its speed

    return tf.compat.v1.train.Scaffold(init_fn=begin)


def read_backbone(path: str, *, size: tuple[int, int], trainable: bool) -> Backbone:
    """Reads a network from a file, checks it and traces it.

    Args:
      path: the folder of a SavedModel.
      size: height and width of the dataset's images, in pixels.
      trainable: whether the network's layers are to be trained.

    Raises:
      UsageError: the folder holds no network, or a network that gives no vector for an image of this size, or a network
        that cannot be trained although `trainable` is set.
    """
    with tf.device("CPU:0"):  # keeps the file's own variables in main memory
        source = _read_saved_model(path)
    images = tf.TensorSpec([None, *size, 3], tf.float32)
    if not source.shape.is_compatible_with(images.shape):
        raise UsageError(
            f"path={path}: takes images {_shape(source.shape)}, but the dataset's are {_shape(images.shape)}. Give a "
            "network of that size, or write the dataset with another crop: [height, width] in the schema's images."
        )
    if trainable and source.why_frozen:
        raise UsageError(f"path={path}: {source.why_frozen}, so its layers cannot be trained; leave out trainable=true")
    # A frozen network needs the function for inference only; a trainable one is also traced for training.
    functions = [_traced(path, source, images, training=training) for training in (False, True)[: 1 + trainable]]
    _check_ops(path, functions[0])
    captured = {id(tensor): tensor for function in functions for tensor in function.captured_inputs}
    variables = {id(v.handle): v for function in functions for v in function.variables}
    if any(tensor.dtype == tf.resource and key not in variables for key, tensor in captured.items()):
        raise UsageError(f"path={path}: holds a table; expected a network of layers with variables only")
    # Only variables that a function captures, in the order in which they are used, so that names are reproducible.
    in_use = [key for key in captured if key in variables]  # in the order of their use
    own = None if source.trainable is None else {id(v.handle) for v in source.trainable}
    trained = {key: trainable and (variables[key].trainable if own is None else key in own) for key in in_use}
    if trainable and not any(trained.values()):
        raise UsageError(
            f"path={path}: all layers are frozen in the file; leave out trainable=true, or save the model with "
            "trainable = True"
        )
    names = _names(variables[key].name for key in in_use)
    values = zip(in_use, names, strict=True)
    weights = {key: BackboneWeight(name, variables[key].numpy(), trained[key]) for key, name in values}
    return Backbone(functions[0], functions[-1], weights, source)


def _read_saved_model(path: str) -> NetworkFile:
    """Loads a SavedModel after checking its graph. Uses the model's call, or else its signature 'serving_default'."""
    if not storage.exists(storage.join(path, "saved_model.pb")):
        raise UsageError(
            f"path={path}: no folder with saved_model.pb; {FORM}. What trains, evaluates or checks a backbone builds "
            "its layers from it: if it was moved, put it back there."
        )
    check_tensorflow(path)
    problem = graph_problem(path, objects=True)
    if problem is not None:
        raise UsageError(f"path={path}: {problem}. It is not loaded, because a graph runs with all your rights.")
    try:
        loaded = tf.saved_model.load(path)
    except Exception as error:  # TensorFlow's errors are of any class
        raise UsageError(f"path={path}: TensorFlow cannot load it ({_first_line(error)}); save it again") from error
    functions = loaded.__call__.concrete_functions if callable(loaded) else ()
    if functions:
        arguments = [tf.nest.flatten(f.structured_input_signature) for f in functions]
        tensor_specs = [argument for argument in arguments[0] if isinstance(argument, tf.TensorSpec)]
        _check_input(path, "its call", tensor_specs)
        # A Keras model was traced once for each value of `training`, which shows as a bool among the arguments.
        takes_mode = any(isinstance(argument, bool) for argument in itertools.chain.from_iterable(arguments))
        call = (lambda x, training: loaded(x, training=training)) if takes_mode else (lambda x, _: loaded(x))
        return NetworkFile(call, tensor_specs[0].shape, getattr(loaded, "trainable_variables", None))
    signature = loaded.signatures.get("serving_default")
    if signature is None:
        raise UsageError(f"path={path}: has neither a call nor the signature 'serving_default'; save it with one")
    named = signature.structured_input_signature[1]
    _check_input(path, "its signature 'serving_default'", list(named.values()))
    ((name, spec),) = named.items()
    why = "has only a signature, which knows no training"
    return NetworkFile(lambda x, _: loaded.signatures["serving_default"](**{name: x}), spec.shape, None, why)


def _check_input(path: str, what: str, specs: Sequence[Any]) -> None:
    """Refuses a function that does not take exactly one float32 tensor, the images."""
    if len(specs) != 1 or specs[0].dtype != tf.float32:
        specs_text = ", ".join(f"{spec.dtype.name} {_shape(spec.shape)}" for spec in specs) or "nothing"
        raise UsageError(f"path={path}: {what} takes {specs_text}; expected images, float32 [batch, height, width, 3]")


def _traced(path: str, source: NetworkFile, images: tf.TensorSpec, *, training: bool) -> Any:
    """Traces the function from images to vectors, as a `ConcreteFunction`."""

    def call(x: tf.Tensor) -> tf.Tensor:
        return _vectors(path, source.call(x, training))

    try:
        return tf.function(call, autograph=False).get_concrete_function(images)
    except UsageError:
        raise
    except Exception as error:  # the file's own layers may raise errors of any class
        raise UsageError(
            f"path={path}: cannot be called with images {_shape(images.shape)}, training={training} "
            f"({_first_line(error)})"
        ) from error


def _vectors(path: str, output: Any) -> tf.Tensor:
    """Returns the network's output as one vector for each image; a feature map is averaged over its positions."""
    outputs = tf.nest.flatten(output)
    fits = len(outputs) == 1 and outputs[0].dtype.is_floating and outputs[0].shape.rank in (2, 4)
    if not fits or outputs[0].shape[-1] is None:
        outputs_text = ", ".join(f"{x.dtype.name} {_shape(x.shape)}" for x in outputs)
        raise UsageError(
            f"path={path}: gives {outputs_text}; expected one output, [batch, size] or [batch, height, width, "
            "channels]. Save the model up to such a layer."
        )
    x = tf.cast(outputs[0], tf.float32)
    return tf.reduce_mean(x, axis=[1, 2]) if x.shape.rank == 4 else x


def _check_ops(path: str, function: Any) -> None:
    """Refuses a network with an op that an export may not hold."""
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    refused = sorted({node.op for node in nodes} - ALLOWED - {f.signature.name for f in graph.library.function})
    if refused:
        raise UsageError(
            f"path={path}: computes with the op {refused[0]}, which is not on the list of ops that only compute, and "
            "that exports may hold. Save the model without the layer that needs it."
        )


def _names(of_file: Iterator[str]) -> list[str]:
    """Turns the file's variable names into unique names that a graph accepts.

    The result depends on the order and the names alone, so that every process that reads the file gets the same names.
    """
    names: list[str] = []
    for name in of_file:
        plain = re.sub(r"[^A-Za-z0-9_./-]", "_", name.partition(":")[0])
        # Takes the plain name, or the first of name_1, name_2 and so on that is still free.
        names.append(next(n for n in (plain, *(f"{plain}_{i}" for i in range(1, len(names) + 1))) if n not in names))
    return names


def _first_line(error: Exception) -> str:
    """Returns the first line of an error's message, or the name of its class if the message is empty."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:300]


def _shape(shape: tf.TensorShape) -> str:
    """Formats a shape for a message: `[?, 224, 224, 3]`; `[...]` if the rank is unknown."""
    return f"[{', '.join('?' if side is None else str(side) for side in shape)}]" if shape.rank is not None else "[...]"


def build(task_spec: ImageTaskSpec, hparams: BackboneHparams, config: Any) -> Any:
    """Returns an Estimator for the network in `hparams.path`, with a dense layer for the logits.

    Reads the network from its file.

    Args:
      task_spec: the classes, the size of the images and the steps of the training.
      hparams: the hyper-parameters; `path` and `pixels` are required.
      config: the Estimator's `RunConfig`.

    Raises:
      UsageError: `path` or `pixels` is missing, the file does not fit, or the network cannot be trained as requested.
    """
    pixels = ", ".join(f"{name} ({what})" for name, what in PIXELS.items())
    for name, expected in (("path", FORM), ("pixels", f"the values of a pixel that it takes: {pixels}")):
        if getattr(hparams, name) is None:
            raise UsageError(f"model 'backbone': give --hparams {name}=...; {expected}")
    if config.num_ps_replicas:  # a ConcreteFunction cannot capture variables of another process
        raise UsageError("--strategy parameter_server: a backbone's variables lie where it runs; use one machine")
    backbone = read_backbone(hparams.path or "", size=task_spec.size, trainable=hparams.trainable)

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        training = mode == ModeKeys.TRAIN
        vectors, scaffold = backbone(scaled(features["image"], hparams.pixels or ""), training=training)
        if training and hparams.dropout:
            vectors = tf.nn.dropout(vectors, hparams.dropout)
        logits = tf.keras.layers.Dense(len(task_spec.classes), name="classifier")(vectors)

        def train(loss: tf.Tensor) -> Any:
            step = tf.compat.v1.train.get_global_step()
            rate = learning_rate("cosine", hparams, step, task_spec.max_steps)
            train_op = tf.compat.v1.train.AdamOptimizer(rate).minimize(loss, step)
            return tf_estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, scaffold=scaffold)

        return classes_spec(logits, labels, mode, train)

    return tf_estimator.Estimator(model_fn, config=config)
