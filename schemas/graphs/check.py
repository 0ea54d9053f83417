"""Refuses a SavedModel that could do more than compute, before any part of it is loaded.

Three rules hold:

- Every op in the file, in the graph and in each function of its library, must be on the reviewed list
  (`schemas.graphs.allowed_ops`). This includes nodes that nothing uses, because TensorFlow evaluates some nodes while
  it loads a graph.
- Ops that save a checkpoint must not be reachable from anything that is run.
- Ops that read a file must read a file of this SavedModel.

If the SavedModel is loaded in a session, the signatures, the init op and the saver's restore op are run. If its object
graph is loaded, every function may be run.

The allowed ops only compute. They may still use up memory and time, or have bugs.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from schemas import storage
from schemas.errors import MillraceError
from schemas.graphs.allowed_ops import ALLOWED, FILE_INPUTS, SAVING
from schemas.graphs.saved_model import FILE, parse, read_saved_model

Place: TypeAlias = tuple[str, str]  # (name of a function, '' for the graph itself; name of a node in it)

_CALLS = ("PartitionedCall", "StatefulPartitionedCall")


class Graph:
    """The nodes of a graph, and of the functions in its library, by name."""

    def __init__(self, graph_def: Any) -> None:
        library = graph_def.library
        # Names must be unique: of two nodes or functions with one name, TensorFlow might run another one than is
        # checked here.
        names = [("", node.name) for node in graph_def.node] + [(f.signature.name, "") for f in library.function]
        names += [(f.signature.name, node.name) for f in library.function for node in f.node_def]
        self.twice = next((place for place, count in Counter(names).items() if count > 1), None)
        self.functions = {function.signature.name: function for function in library.function}
        self.bodies: dict[str, dict[str, Any]] = {"": {node.name: node for node in graph_def.node}}
        for name, function in self.functions.items():
            self.bodies[name] = {node.name: node for node in function.node_def}
        # An op can run a gradient function although no node names the function. So all gradient functions are checked,
        # even if the loader would not call some of them.
        self.gradients = {g.gradient_func: g.function_name for g in library.gradient}
        self.gradients |= {g.gradient_func: g.registered_op_type for g in library.registered_gradients}
        # TensorFlow may run one implementation of an interface in place of another, so all of them are checked.
        self.alternatives = [name for name, function in self.functions.items() if "api_implements" in function.attr]
        self._steps: dict[Place, tuple[list[Place], set[str]]] = {}

    def nodes(self) -> Iterator[tuple[Place, Any]]:
        """Yields all nodes, each after its place."""
        for function, body in self.bodies.items():
            for name, node in body.items():
                yield (function, name), node

    def steps(self, place: Place) -> tuple[list[Place], set[str]]:
        """Returns what runs if a node runs: the nodes of its inputs, and the functions that it calls.

        A node may name a function as its op, or in any attribute.
        """
        if place not in self._steps:
            function, name = place
            node = self.bodies[function][name]
            inputs = [(function, node_name(tensor)) for tensor in node.input]
            self._steps[place] = inputs, {node.op, *_names(node.attr.values())} & self.functions.keys()
        return self._steps[place]

    def named_by_function(self, name: str) -> set[str]:
        """Returns the functions of the library that a function's own attributes name, such as its gradient."""
        return set(_names(self.functions[name].attr.values())) & self.functions.keys()


def _names(values: Iterable[Any]) -> Iterator[str]:
    """Yields all function names and all texts in some attributes. A text may be the name of a function, too."""
    for value in values:
        functions, texts = [value.func] if value.HasField("func") else [], [value.s]
        if value.HasField("list"):
            functions += value.list.func
            texts += value.list.s
        for function in functions:
            yield function.name
            yield from _names(function.attr.values())
        for text in texts:
            yield text.decode(errors="replace")


@dataclasses.dataclass(frozen=True)
class Root:
    """Something that a loader or a client runs, such as a signature.

    Attributes:
      name: its name in messages.
      tensors: the names of the tensors or ops of the graph that are run.
      function: the function of the library that is called; None if there is none.
      bound: for each of the function's last arguments, whether it is the name of a file of the SavedModel. The loader
        gives these arguments, and the caller gives the ones before them.
      fed: the tensors of the graph that the loader feeds with names of files of the SavedModel.
    """

    name: str
    tensors: tuple[str, ...] = ()
    function: str | None = None
    bound: tuple[bool, ...] = ()
    fed: frozenset[str] = frozenset()


class Walk:
    """Finds everything that runs when a root runs: all reachable nodes, and the callers of each function.

    Attributes:
      graph: the graph.
      root: the root.
      places: the nodes that run, by place.
    """

    def __init__(self, graph: Graph, root: Root) -> None:
        self.graph = graph
        self.root = root
        self.places: dict[Place, Any] = {}
        self._callers: dict[str, list[Place]] = {}
        self._called: set[str] = set()
        waiting = [("", node_name(tensor)) for tensor in root.tensors]
        if root.function is not None:
            waiting += self._call(root.function, None)
        while waiting:
            place = waiting.pop()
            node = graph.bodies[place[0]].get(place[1])
            if place in self.places or node is None:  # an argument of a function is not a node
                continue
            self.places[place] = node
            inputs, functions = graph.steps(place)
            waiting += inputs
            for function in functions:
                waiting += self._call(function, place)

    def _call(self, function: str, caller: Place | None) -> Iterator[Place]:
        """Yields all places in the body of a called function, and in the functions that its attributes name.

        All nodes of the body count, because ops with side effects run even if nothing uses their outputs.
        """
        waiting: list[tuple[str, Place | None]] = [(function, caller)]
        while waiting:
            function, caller = waiting.pop()
            if caller is not None:
                self._callers.setdefault(function, []).append(caller)
            if function in self._called or function not in self.graph.functions:
                continue
            self._called.add(function)
            yield from ((function, name) for name in self.graph.bodies[function])
            waiting += ((named, (function, "")) for named in self.graph.named_by_function(function))

    def is_own_file(self, place: Place, index: int) -> bool:
        """Returns whether an input of a node is always the name of a file of the SavedModel.

        Follows the input back through `Identity` nodes and the arguments of functions, to every caller of the node's
        function. Each way back must end at a file of the SavedModel.

        Args:
          place: the node.
          index: the index of the input, not counting control inputs.
        """
        waiting = [(place[0], _data_input(self.places[place], index))]
        visited: set[tuple[str, str | None]] = set()
        has_source = False  # stays False if the ways back only run in a cycle
        while waiting:
            tensor = waiting.pop()
            if tensor in visited:
                continue
            visited.add(tensor)
            sources = self._sources(*tensor)
            if sources is None:
                return False
            has_source = has_source or not sources
            waiting += sources
        return has_source

    def _sources(self, function: str, tensor: str | None) -> list[tuple[str, str | None]] | None:
        """Returns the tensors that a tensor is a copy of, each with its function.

        Returns an empty list if the tensor is the name of a file of the SavedModel, and None if it may be something
        else.
        """
        if tensor is None:
            return None
        node = self.graph.bodies[function].get(node_name(tensor))
        if not function and output_name(tensor) in self.root.fed:
            return []
        if node is not None:
            return [(function, _data_input(node, 0))] if node.op == "Identity" else None
        # The tensor is no node, so it should be an argument of the function. Then every caller's input counts.
        arguments = [arg.name for arg in self.graph.functions[function].signature.input_arg] if function else []
        if tensor not in arguments:
            return None
        index = arguments.index(tensor)
        is_root = function == self.root.function
        callers = [self.places.get(caller) for caller in self._callers.get(function, ())]
        if not (is_root or callers) or any(node is None or not self._calls(node) for node in callers):
            return None
        if is_root:
            first = len(arguments) - len(self.root.bound)
            if index < first or not self.root.bound[index - first]:
                return None
        places = self._callers.get(function, ())
        return [(caller[0], _data_input(node, index)) for caller, node in zip(places, callers, strict=True)]

    def _calls(self, node: Any) -> bool:
        """Whether a node is a plain call of a function, so that its inputs are the arguments of the function."""
        return node.op in _CALLS or node.op in self.graph.functions


def node_name(tensor: str) -> str:
    """Returns the name of the node in the name of a tensor.

    This is `node` for `node`, `^node`, `node:0` and `node:output:0`.
    """
    return tensor.removeprefix("^").partition(":")[0]


def output_name(tensor: str) -> str:
    """Returns a tensor's name with its output index: `node` becomes `node:0`."""
    return tensor if ":" in tensor else f"{tensor}:0"


def _data_input(node: Any, index: int) -> str | None:
    """Returns an input of a node, not counting control inputs (`^node`); None if the node has too few."""
    inputs = [name for name in node.input if not name.startswith("^")]
    return inputs[index] if index < len(inputs) else None


def tensors_of(infos: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of all tensors of a signature. A sparse or composite tensor has several."""
    return tuple(name for info in infos.values() for name in _tensors(info))


def _tensors(info: Any) -> Iterator[str]:
    sparse = info.coo_sparse
    names = (info.name, sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
    yield from (name for name in names if name)
    for component in info.composite_tensor.components:
        yield from _tensors(component)


_INIT_SIGNATURE = "__saved_model_init_op"
_INIT_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_ASSETS = "saved_model_assets"
_TF1_SIGNATURE = "transform_signature"  # only transforms that TensorFlow 1 wrote have this signature


def check_graph(folder: str, *, objects: bool = False) -> None:
    """Refuses a SavedModel that contains anything that is not allowed.

    Args:
      folder: the folder that contains `saved_model.pb`.
      objects: whether `tf.saved_model.load` will load the SavedModel, which reads the object graph. If not, a session
        loads it.

    Raises:
      MillraceError: something is not allowed. The message names the op, its node, and what leads to the node.
    """
    problem = graph_problem(folder, objects=objects)
    if problem is not None:
        raise MillraceError(
            f"{storage.join(folder, FILE)}: {problem}. It is not loaded, because a graph runs with all your rights. "
            "If you trust its author, give --trust."
        )


def graph_problem(folder: str, *, objects: bool = False) -> str | None:
    """Returns a message about the first thing in a SavedModel that is not allowed; None if everything is allowed.

    Args:
      folder: the folder that contains `saved_model.pb`.
      objects: whether `tf.saved_model.load` will load the SavedModel, which reads the object graph. If not, a session
        loads it.

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
    """Whether the object graph of a SavedModel will be loaded, and not its signatures as in TensorFlow 1."""
    if len(meta_graphs) != 1 or not meta_graphs[0].HasField("object_graph_def"):
        return False
    return _TF1_SIGNATURE not in meta_graphs[0].signature_def


def _problems(meta_graph: Any, path: str, *, objects: bool) -> Iterator[str]:
    """Yields a message for each thing in a graph that is not allowed."""
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
    """Returns the asset files: from the message's newer field if it is set, otherwise from the older collection."""
    if meta_graph.asset_file_def:
        return list(meta_graph.asset_file_def)
    if _ASSETS not in meta_graph.collection_def:
        return []
    return [parse("AssetFileDef", asset.value, path) for asset in meta_graph.collection_def[_ASSETS].any_list.value]


def _is_inside(name: str) -> bool:
    """Whether a relative path stays inside its folder."""
    parts = name.split("/")
    return bool(name) and not posixpath.isabs(name) and ".." not in parts and "\\" not in name and "\0" not in name


def _session_roots(meta_graph: Any, assets: list[Any]) -> Iterator[Root]:
    """Yields what is run when a session loads and uses the SavedModel."""
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
    """Yields all functions of an object graph. Some of them create, fill and delete tables."""
    objects = meta_graph.object_graph_def
    for name, concrete in objects.concrete_functions.items():
        bound = tuple(0 <= i < len(objects.nodes) and objects.nodes[i].HasField("asset") for i in concrete.bound_inputs)
        yield Root(f"the object graph, by {name!r},", function=name, bound=bound)


def _loaded_roots(graph: Graph) -> Iterator[Root]:
    """Yields functions that TensorFlow may run in place of others: gradients and alternative implementations."""
    for name, differentiated in graph.gradients.items():
        yield Root(f"the gradient of {differentiated!r}", function=name)
    for name in graph.alternatives:
        yield Root(f"the interface that {name!r} implements", function=name)


TRUST_HELP = "load graphs that can do more than compute, such as write files; only if you trust their author"
