"""What a traced preprocessing says of its outputs: their ranges, kept beside the trace, without tracing it once more.

tf.Transform traces a preprocessing anew to learn them, since the outputs of a traced function are identities of the
tensors that were annotated. Here they are followed back. Two traces of five fall away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import wrap_function  # tf.Transform's traces are its class, which has no public name
from tensorflow_transform import schema_inference as inference
from tensorflow_transform import tf2_utils

Metadata = dict[str, list[Any]]


def metadata_of_trace(graph: Any, *, evaluate: bool) -> Callable[[], Metadata]:
    """A function that gives what `schema_inference.get_traced_metadata_fn`'s gives, of the graph of a traced function.

    `evaluate`: with the ranges' ends, which may be sizes of tables, and all else that is deferred.
    """
    keys = {annotated(inference._get_tensor_values(x)).name: key for key, x in graph.structured_outputs.items()}
    found: Metadata = {}
    if not evaluate:
        name = inference._TF_METADATA_TENSOR_COLLECTION
        found[name] = [keys[x.name] for x in graph.get_collection(name) if x.name in keys]
    else:
        ends = [inference._TF_METADATA_TENSOR_MIN_COLLECTION, inference._TF_METADATA_TENSOR_MAX_COLLECTION]
        notes = [inference._TF_METADATA_EXTRA_ANNOTATION_TYPE_URL, inference._TF_METADATA_EXTRA_ANNOTATION_PROTO]
        whole = inference._TF_METADATA_EXTRA_ANNOTATION_GLOBAL
        overrides = inference._get_schema_overrides
        found |= overrides(graph, keys, inference._TF_METADATA_TENSOR_COLLECTION, ends)
        found |= overrides(graph, keys, inference._TF_METADATA_EXTRA_ANNOTATION, notes, whole)
        with graph.as_default():
            sparse = inference._get_sparse_output_annotations_v2(graph, keys)
        found[inference._METADATA_SPARSE_OUTPUT_OVERRIDES_FIELD] = [sparse] if sparse else []
    return lambda: computed(graph, found)


def annotated(output: tf.Tensor) -> tf.Tensor:
    """The tensor that the traced function returned, of which its output is an identity."""
    return output.op.inputs[0] if output.op.type == "Identity" else output


def computed(graph: Any, found: Mapping[str, list[Any]]) -> Metadata:
    """`found` with its graph's tensors run, and everything an eager tensor."""
    flat = tf.nest.flatten(dict(found))
    inside = [x for x in flat if isinstance(x, tf.Tensor) and not isinstance(x, tf.__internal__.EagerTensor)]
    values = iter(run(graph, inside) if inside else ())
    eager = [next(values) if any(x is y for y in inside) else tf.convert_to_tensor(x) for x in flat]
    return tf.nest.pack_sequence_as(dict(found), eager)


def run(graph: Any, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """The values of tensors, for one row of anything: they depend on no input but by the order of ops."""
    inputs = tf2_utils.get_structured_inputs_from_func_graph(graph)
    row = tf2_utils.supply_missing_inputs(inputs, batch_size=1)
    holder = wrap_function.VariableHolder(share_variables=True)
    feeds = tf.nest.flatten(inputs, expand_composites=True)
    function = wrap_function.WrappedFunction(graph, variable_holder=holder).prune(feeds=feeds, fetches=tensors)
    return function(*tf.nest.flatten(row, expand_composites=True))
