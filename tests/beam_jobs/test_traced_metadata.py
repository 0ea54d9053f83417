"""What is read of a traced preprocessing is what tf.Transform finds by tracing it once more."""

from __future__ import annotations

import pytest
import tensorflow as tf
import tensorflow_transform as tft
from tensorflow_transform import annotators, graph_context, impl_helper, schema_inference, tf2_utils

from beam_jobs import live_graphs
from beam_jobs.traced_metadata import metadata_of_trace

SPECS = {"x": tf.TensorSpec([None], tf.float32), "words": tf.TensorSpec([None], tf.string)}


def ranges(inputs):
    """An output with a range of constants, two of one tensor whose range ends with a table's size, one without."""
    with tf.init_scope():
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(["a", "b"], [0, 1], value_dtype=tf.int64), 0
        )
    annotators.track_object(table, "table")
    ids = table.lookup(inputs["words"])
    schema_inference.set_tensor_schema_override(ids, tf.constant(0, tf.int64), table.size() - 1)
    return {"bucket": tft.apply_buckets(inputs["x"], [[1.0, 2.0]]), "id": ids, "x": inputs["x"], "same": ids}


def nothing(inputs):
    """No output is annotated."""
    return {"x": inputs["x"] + 1}


def sparse(inputs):
    """Outputs that are no dense tensors, of a shape that is declared."""
    indices = tf.cast(tf.where(inputs["x"] > 0), tf.int64)
    tokens = tf.SparseTensor(indices, tf.gather_nd(inputs["x"], indices), tf.shape(inputs["x"], tf.int64))
    schema_inference.annotate_sparse_output_shape(tokens, tf.constant([]))
    return {"tokens": tokens, "ragged": tf.strings.split(inputs["words"])}


def notes(inputs):
    """An output, and the whole, with notes for the schema."""
    schema_inference.annotate("type.googleapis.com/example.Note", tf.constant(b"x"), inputs["x"])
    schema_inference.annotate("type.googleapis.com/example.Note", tf.constant(b"all"))
    return {"x": inputs["x"]}


def trace(function, folder):
    """As tf.Transform traces it."""
    context = graph_context.TFGraphContext(tf.Module(), str(folder), {})
    with annotators.object_tracker_scope(annotators.ObjectTracker()):
        return impl_helper.get_traced_transform_fn(function, SPECS, context).get_concrete_function()


def schema_of(traced, metadata, *, evaluate):
    return schema_inference.infer_feature_schema_v2(traced.structured_outputs, metadata, evaluate)


@pytest.mark.parametrize("evaluate", [False, True])
@pytest.mark.parametrize("function", [ranges, nothing, sparse, notes])
def test_the_schema_is_the_same(function, evaluate, tmp_path):
    traced = trace(function, tmp_path)
    inputs = tf2_utils.get_structured_inputs_from_func_graph(traced.graph)
    context = graph_context.TFGraphContext(tf.Module(), str(tmp_path), {})
    again = live_graphs._trace_metadata(function, inputs, context, evaluate)
    read = metadata_of_trace(traced.graph, evaluate=evaluate)
    assert schema_of(traced, read, evaluate=evaluate) == schema_of(traced, again, evaluate=evaluate)


def test_a_range_may_end_with_a_tables_size(tmp_path):
    traced = trace(ranges, tmp_path)
    schema = schema_of(traced, metadata_of_trace(traced.graph, evaluate=True), evaluate=True)
    domains = {f.name: (f.int_domain.min, f.int_domain.max) for f in schema.feature if f.HasField("int_domain")}
    assert domains["bucket"] == (0, 2)
    assert (0, 1) in domains.values()
