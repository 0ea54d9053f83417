"""Walks over crafted graphs: their time is in proportion to the graph's size, and they need no recursion."""

from __future__ import annotations

from tensorflow.core.framework import graph_pb2

from schemas.graphs.check import Graph, Root, Walk


def walked(graph_def: graph_pb2.GraphDef) -> Walk:
    return Walk(Graph(graph_def), Root("signature", tensors=("last:0",)))


def add_function(graph_def: graph_pb2.GraphDef, name: str, *calls: str) -> None:
    """Adds a function of one argument, `file`, that passes it to others."""
    function = graph_def.library.function.add()
    function.signature.name = name
    function.signature.input_arg.add(name="file")
    for i, called in enumerate(calls):
        node = function.node_def.add(name=f"call_{i}", op="PartitionedCall", input=["file"])
        node.attr["f"].func.name = called


def add_call(graph_def: graph_pb2.GraphDef, function: str) -> None:
    """Adds the node `last`, which calls a function."""
    node = graph_def.node.add(name="last", op="PartitionedCall", input=["none:0"])
    node.attr["f"].func.name = function
    graph_def.node.add(name="none", op="Const")


def test_each_function_calls_the_next_one_twice():
    graph_def = graph_pb2.GraphDef()
    add_call(graph_def, "f0")
    for i in range(60):
        add_function(graph_def, f"f{i}", f"f{i + 1}", f"f{i + 1}")
    add_function(graph_def, "f60", "nothing")
    walk = walked(graph_def)
    assert len(walk.places) == 1 + 1 + 60 * 2 + 1
    assert not walk.is_own_file(("f60", "call_0"), 0)


def test_a_long_chain_of_nodes():
    graph_def = graph_pb2.GraphDef()
    graph_def.node.add(name="n0", op="Const")
    for i in range(5000):
        graph_def.node.add(name=f"n{i + 1}", op="Identity", input=[f"n{i}"])
    graph_def.node.add(name="last", op="ReadFile", input=["n5000"])
    walk = walked(graph_def)
    assert len(walk.places) == 5002
    assert not walk.is_own_file(("", "last"), 0)


def test_nodes_in_a_circle():
    graph_def = graph_pb2.GraphDef()
    graph_def.node.add(name="a", op="Identity", input=["b"])
    graph_def.node.add(name="b", op="Identity", input=["a"])
    graph_def.node.add(name="last", op="ReadFile", input=["a"])
    assert not walked(graph_def).is_own_file(("", "last"), 0)


def test_functions_that_name_each_other():
    graph_def = graph_pb2.GraphDef()
    add_call(graph_def, "f0")
    for i in range(3000):
        add_function(graph_def, f"f{i}")
        named = graph_def.library.function[i].attr["next"].func
        named.name = f"f{(i + 1) % 3000}"
    assert len(walked(graph_def).places) == 2
