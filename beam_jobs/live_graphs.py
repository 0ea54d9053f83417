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
from tensorflow.python.eager import wrap_function  # tf.Transform's traces are its class, which has no public name
from tensorflow_transform import analyzer_nodes, impl_helper, schema_inference, tf2_utils
from tensorflow_transform.saved import saved_transform_io_v2 as saved

from beam_jobs.traced_metadata import metadata_of_trace

_folders: set[str] = set()  # whose graphs are kept, each with a slash behind it
_kept: dict[str, tf.Module] = {}  # by the folder of the SavedModel
_traces: dict[str, Any] = {}  # the graph of the trace that an analysis was planned by, by tf.Transform's folder for it


@contextlib.contextmanager
def kept(folder: str) -> Iterator[None]:
    """While its block runs, graphs that are written below `folder` are kept, and loading one gives what was kept.

    The graph of an analysis is not written at all, nor traced again, and what the outputs are is read of the trace that
    there is (see `traced_metadata`). This replaces three functions and a class inside tf.Transform.
    """
    if saved.SavedModelLoader is not Loader:
        saved.write_v2_saved_model, saved.SavedModelLoader = write, Loader
        impl_helper.trace_and_write_v2_saved_model = trace_and_write
        schema_inference.get_traced_metadata_fn = metadata_fn
    prefix = folder.rstrip("/") + "/"
    _folders.add(prefix)
    try:
        yield
    finally:
        _folders.remove(prefix)
        for graphs in (_kept, _traces):
            for path in [path for path in graphs if path.startswith(prefix)]:
                del graphs[path]


_trace_and_write = impl_helper.trace_and_write_v2_saved_model


def trace_and_write(saved_model_dir: str, *rest: Any) -> None:
    """As tf.Transform's `trace_and_write_v2_saved_model`; what analyzers read is cut out of the trace that there is."""
    _, _, base_temp_dir, analyzers, measured, outputs, _ = rest
    graph = _traces.get(base_temp_dir)
    if graph is None or not analyzers or measured:  # another's graph, or the one that is to be stored
        _trace_and_write(saved_model_dir, *rest)
        return
    function = wrap_function.WrappedFunction(graph, wrap_function.VariableHolder(share_variables=True))
    fetches = {key: graph.get_tensor_by_name(name) for key, name in outputs.items()}
    module = _kept[saved_model_dir] = tf.Module()
    module.transform_fn = function.prune(graph.inputs, fetches, input_signature=graph.structured_input_signature)


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
    if not evaluate_schema_overrides:  # the analysis is being planned
        _traces[tf_graph_context._temp_dir] = graph
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
