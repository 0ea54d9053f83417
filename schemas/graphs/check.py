"""Refuses a SavedModel that could do more than compute, before any of it is loaded.

Every op in the file, of the graph and of each function in its library, must be on the reviewed list
(`schemas.graphs.allowed_ops`): TensorFlow evaluates some nodes while it loads a graph, whether or not anything asks for
them. Ops that save a checkpoint must be unreachable from everything that is run, and ops that read a file must name one
of this SavedModel. In a session, the signatures, the init op and the saver's restore op are run; of an object graph,
every function may be run.

Allowed ops only compute. They may still use up memory and time, or have bugs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from schemas import storage
from schemas.errors import MillraceError
from schemas.graphs.allowed_ops import ALLOWED, FILE_INPUTS, SAVING
from schemas.graphs.saved_model import FILE, parse, read_saved_model
from schemas.graphs.walk import Graph, Place, Root, Walk, output_name, tensors_of

_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS = "saved_model_assets"
_TF1_SIGNATURE = "transform_signature"  # only transforms of TensorFlow 1 have it


def check_graph(folder: str, *, objects: bool = False) -> None:
    """Refuses a SavedModel that contains something that is not allowed. Arguments are those of `graph_problem`.

    Raises:
      MillraceError: something is not allowed. The message names the op, its node and what leads to it.
    """
    problem = graph_problem(folder, objects=objects)
    if problem is not None:
        raise MillraceError(
            f"{storage.join(folder, FILE)}: {problem}. It is not loaded, because a graph runs with all your rights. "
            "If you trust its author, give --trust."
        )


def graph_problem(folder: str, *, objects: bool = False) -> str | None:
    """The first thing in a SavedModel that is not allowed, for a message; None if everything is allowed.

    Args:
      folder: it holds `saved_model.pb`.
      objects: whether `tf.saved_model.load` is to load it, which reads the object graph; otherwise a session loads it.

    Raises:
      MillraceError: the file cannot be read.
    """
    path = storage.join(folder, FILE)
    meta_graphs = read_saved_model(folder).meta_graphs
    if objects and not _has_object_graph(meta_graphs):
        raise MillraceError(
            f"{path}: is not a TensorFlow 2 SavedModel with one object graph. It is not loaded; write it again."
        )
    problems = (problem for graph in meta_graphs for problem in _problems(graph, path, objects=objects))
    return next(problems, None)


def _has_object_graph(meta_graphs: Any) -> bool:
    """Whether TensorFlow and tf.Transform load the object graph, and not the signatures of TensorFlow 1."""
    if len(meta_graphs) != 1 or not meta_graphs[0].HasField("object_graph_def"):
        return False
    return _TF1_SIGNATURE not in meta_graphs[0].signature_def


def _problems(meta_graph: Any, path: str, *, objects: bool) -> Iterator[str]:
    assets = _assets(meta_graph, path)
    for asset in assets:
        if not _is_inside(asset.filename):
            yield f"the asset {asset.filename!r} is outside the assets folder"
    graph = Graph(meta_graph.graph_def)
    if graph.twice is not None:
        yield f"contains two nodes or functions with one name ({_where(graph.twice)})"
    refused = {place: node for place, node in graph.nodes() if not _is_known(graph, node)}
    roots = _object_roots(meta_graph) if objects else _session_roots(meta_graph, assets)
    for root in [*roots, *_loaded_roots(graph)]:
        walk = Walk(graph, root)
        for place, node in walk.places.items():
            where = f"{_where(place)}, which {root.name} leads to"
            if place in refused or node.op in SAVING:
                yield f"holds the op {node.op} ({where}); it is not on the list of ops that only compute"
            elif node.op in FILE_INPUTS and not walk.is_own_file(place, FILE_INPUTS[node.op]):
                yield f"holds the op {node.op} ({where}) for a file that is not its own"
    for place, node in refused.items():
        yield (
            f"holds the op {node.op} ({_where(place)}, which nothing leads to, but which TensorFlow may run while it "
            "loads the graph); it is not on the list of ops that only compute"
        )


def _is_known(graph: Graph, node: Any) -> bool:
    return node.op in ALLOWED or node.op in FILE_INPUTS or node.op in SAVING or node.op in graph.functions


def _where(place: Place) -> str:
    function, name = place
    return f"node {name!r} of the function {function!r}" if function else f"node {name!r}"


def _assets(meta_graph: Any, path: str) -> list[Any]:
    """The asset files: from the newer field of the message, or else from the older collection, as in TensorFlow."""
    if meta_graph.asset_file_def:
        return list(meta_graph.asset_file_def)
    if _ASSETS not in meta_graph.collection_def:
        return []
    return [parse("AssetFileDef", each.value, path) for each in meta_graph.collection_def[_ASSETS].any_list.value]


def _is_inside(name: str) -> bool:
    """Whether a path relative to a folder stays in it."""
    parts = name.split("/")
    return bool(name) and not posixpath.isabs(name) and ".." not in parts and "\\" not in name and "\0" not in name


def _session_roots(meta_graph: Any, assets: list[Any]) -> Iterator[Root]:
    """What runs of a SavedModel that is loaded in a session."""
    files = frozenset(output_name(asset.tensor_info.name) for asset in assets)
    for name, signature in meta_graph.signature_def.items():
        if name == _INIT_SIGNATURE:
            yield Root("the init op", tensors_of(signature.outputs), fed=files)
        else:
            yield Root(f"the signature {name!r}", tensors_of(signature.outputs) + tensors_of(signature.inputs))
    for name in _INIT_COLLECTIONS:
        if name in meta_graph.collection_def:
            yield Root("the init op", tuple(meta_graph.collection_def[name].node_list.value), fed=files)
    saver = meta_graph.saver_def
    if saver.restore_op_name:
        fed = frozenset([output_name(saver.filename_tensor_name)])
        yield Root("the saver's restore op", (saver.restore_op_name,), fed=fed)


def _object_roots(meta_graph: Any) -> Iterator[Root]:
    """What may run of an object graph: all its functions, including those that create, fill and delete its tables."""
    objects = meta_graph.object_graph_def
    for name, concrete in objects.concrete_functions.items():
        bound = tuple(0 <= i < len(objects.nodes) and objects.nodes[i].HasField("asset") for i in concrete.bound_inputs)
        yield Root(f"the object graph, by {name!r},", function=name, bound=bound)


def _loaded_roots(graph: Graph) -> Iterator[Root]:
    """What TensorFlow may run in place of another function."""
    for name, differentiated in graph.gradients.items():
        yield Root(f"the gradient of {differentiated!r}", function=name)
    for name in graph.alternatives:
        yield Root(f"the interface that {name!r} implements", function=name)
