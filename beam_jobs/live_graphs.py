"""tf.Transform's graphs, applied in the process that traced them as they are, and not as they are read back from disk.

tf.Transform hands a graph from the step that traces it to the steps that apply it as a SavedModel. Where both are in
one process, writing the graph that the analysis reads through, loading both graphs and freeing what was loaded cost a
fifth of a small job with eight vocabularies: every table's functions are restored, and traced again to be called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow_transform import analyzer_nodes, schema_inference, tf2_utils
from tensorflow_transform.saved import saved_transform_io_v2 as saved

from beam_jobs.traced_metadata import metadata_of_trace

_folders: set[str] = set()  # whose graphs are kept, each with a slash behind it
_kept: dict[str, tf.Module] = {}  # by the folder of the SavedModel


@contextlib.contextmanager
def kept(folder: str) -> Iterator[None]:
    """While its block runs, graphs that are written below `folder` are kept, and loading one gives what was kept.

    The graph of an analysis is not written at all, and what the outputs are is read of the trace that there is (see
    `traced_metadata`). This replaces two functions and a class inside tf.Transform.
    """
    if saved.SavedModelLoader is not Loader:
        saved.write_v2_saved_model, saved.SavedModelLoader = write, Loader
        schema_inference.get_traced_metadata_fn = metadata_fn
    prefix = folder.rstrip("/") + "/"
    _folders.add(prefix)
    try:
        yield
    finally:
        _folders.remove(prefix)
        for path in [path for path in _kept if path.startswith(prefix)]:
            del _kept[path]


_write = saved.write_v2_saved_model


def write(module: tf.Module, tf_function: Any, name: str, saved_model_dir: str, save_options: Any = None) -> Any:
    """As tf.Transform's `write_v2_saved_model`; what it would have loaded again is kept."""
    if not saved_model_dir.startswith(tuple(_folders)):
        return _write(module, tf_function, name, saved_model_dir, save_options)
    traced = saved.trace_and_update_module(module, tf_function, name, strip_control_dependencies=False)
    if not traced.graph.get_collection(analyzer_nodes.TENSOR_REPLACEMENTS):  # nothing is left to be analyzed
        tf.saved_model.save(module, saved_model_dir, options=save_options)
    _kept[saved_model_dir] = module
    return traced


_trace_metadata = schema_inference.get_traced_metadata_fn


def metadata_fn(
    preprocessing_fn: Any, structured_inputs: dict[str, Any], tf_graph_context: Any, evaluate_schema_overrides: bool
) -> Any:
    """As tf.Transform's `get_traced_metadata_fn`, of the graph that the inputs are of."""
    if not tf_graph_context._temp_dir.startswith(tuple(_folders)):
        return _trace_metadata(preprocessing_fn, structured_inputs, tf_graph_context, evaluate_schema_overrides)
    graph = tf.nest.flatten(structured_inputs, expand_composites=True)[0].graph
    return metadata_of_trace(graph, evaluate=evaluate_schema_overrides)


class Loader(saved.SavedModelLoader):
    """tf.Transform's own, but for graphs that are kept."""

    def __init__(self, saved_model_dir: str) -> None:
        module = _kept.get(saved_model_dir)
        if module is None:
            super().__init__(saved_model_dir)
            return
        graph = module.transform_fn.graph
        outputs = tf.nest.pack_sequence_as(graph.structured_outputs, graph.outputs, expand_composites=True)
        inputs = tf2_utils.get_structured_inputs_from_func_graph(graph)
        self._initialize(False, module, module.transform_fn, inputs, outputs, saved._get_output_to_inputs_map(outputs))
