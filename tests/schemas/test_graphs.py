"""Graphs that only compute are taken, all others are refused."""

from __future__ import annotations

import functools
import re
from collections import Counter

import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, op_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.client import pywrap_tf_session

from schemas.errors import MillraceError
from schemas.graphs.allowed_ops import ALLOWED, FILE_INPUTS, GROUPS, SAVING
from schemas.graphs.check import Graph, Root, Walk, check_graph
from schemas.graphs.saved_model import MESSAGES


class Table(tf.Module):
    """A table from a file that is no asset, which nothing but the object graph leads to."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.handle = tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.string, shared_name="t")

    @tf.function(input_signature=[])
    def fill(self):
        handle = tf.raw_ops.HashTableV2(key_dtype=tf.int64, value_dtype=tf.string, shared_name="t")
        tf.raw_ops.InitializeTableFromTextFileV2(table_handle=handle, filename=self.path, key_index=-1, value_index=-2)
        return tf.constant(0)


class Writer(tf.Module):
    """A function that is no signature."""

    def __init__(self, path: str) -> None:
        self.path = path

    @tf.function(input_signature=[])
    def write(self):
        tf.io.write_file(self.path, "written")
        return tf.constant(0)


class Restorer(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
    def restore(self, prefix):
        return tf.raw_ops.RestoreV2(prefix=prefix, tensor_names=["x"], shape_and_slices=[""], dtypes=[tf.float32])[0]


class TestObjectGraphs:
    @pytest.mark.parametrize(
        ("module", "message"),
        [
            (Table("/etc/passwd"), r"InitializeTableFromTextFileV2 .*the object graph.*not its own"),
            (Writer("/tmp/x"), r"holds the op WriteFile .*function '__inference_write_\d+', which the object graph"),
            (Restorer(), r"RestoreV2 .*the object graph.*not its own"),
        ],
    )
    def test_every_function_of_one_is_checked(self, tmp_path, module, message):
        tf.saved_model.save(module, str(tmp_path))
        with pytest.raises(MillraceError, match=message):
            check_graph(str(tmp_path), objects=True)


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


# Ops that write, read, talk, run Python, wait or end the process, of every kind that there is.
DANGEROUS = """
    Abort CSVDatasetV2 CacheDataset CacheDatasetV2 CollectiveReduceV2 Copy CreateSummaryDbWriter CreateSummaryFileWriter
    DataServiceDatasetV4 DatasetToTFRecord DebugIdentity DecodeProtoV2 DumpTensor EagerPyFunc EncodeProto
    FixedLengthRecordDatasetV2 FixedUnigramCandidateSampler GenerateVocabRemapping ImmutableConst LMDBDataset
    ListSnapshotChunksDataset LoadAndRemapMatrix LoadDataset MatchingFiles MatchingFilesDataset Print PrintV2 PyFunc
    PyFuncStateless ReadFile Recv RegisterDataset RemoteCall Restore RestoreSlice RpcCall RpcServer Save SaveDatasetV2
    SaveSlices Send SnapshotDatasetV2 SqlDataset TFRecordDatasetV2 TFRecordReaderV2 TPUExecute TextLineDataset
    WholeFileReaderV2 WriteFile WriteGraphSummary WriteSummary XlaCallModule XlaHostCompute XlaLaunch
"""


@functools.cache
def registered() -> dict[str, op_def_pb2.OpDef]:
    """All ops of this TensorFlow."""
    ops = op_def_pb2.OpList.FromString(
        pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList())  # as TensorFlow's C API lists them
    )
    return {op.name: op for op in ops.op}


class TestTheList:
    def test_each_op_is_listed_once_and_tensorflow_has_it(self):
        counts = Counter(name for names in GROUPS.values() for name in names.split())
        assert [name for name, count in counts.items() if count > 1] == []
        assert (ALLOWED | FILE_INPUTS.keys() | SAVING) - registered().keys() == set()
        assert not ALLOWED & (FILE_INPUTS.keys() | SAVING)

    def test_dangerous_ops_are_off_it(self):
        dangerous = set(DANGEROUS.split())
        assert dangerous <= registered().keys()
        assert not ALLOWED & dangerous

    def test_no_op_on_it_has_an_input_or_attribute_for_a_file_or_an_address(self):
        """A second opinion, by the names that TensorFlow gives them."""
        smell = re.compile(r"file|path|dir(ectory)?$|url|address|host|output_stream|token|descriptor")
        suspects = {
            (name, field.name)
            for name in ALLOWED
            for field in [*registered()[name].input_arg, *registered()[name].attr]
            if smell.search(field.name)
        }
        assert suspects == {("CudnnRNNBackpropV3", "host_reserved"), ("TensorSliceDataset", "is_files")}


def test_the_messages_are_tensorflows():
    """Numbers and types of the fields that are read."""
    checked = set()

    def compare(name: str, descriptor) -> None:
        if name in checked:
            return
        checked.add(name)
        for field, (number, kind) in MESSAGES[name].items():
            theirs = descriptor.fields_by_name[field]
            assert theirs.number == number, (name, field)
            inner = kind.rstrip("*{}")
            message = theirs.message_type
            if kind.endswith("{}"):
                assert message.GetOptions().map_entry, (name, field)
                message = message.fields_by_name["value"].message_type
            else:
                assert theirs.is_repeated == kind.endswith("*"), (name, field)
            if inner in MESSAGES:
                compare(inner, message)
            else:
                assert theirs.type == {"string": 9, "bytes": 12, "int32": 5}[inner], (name, field)

    compare("SavedModel", saved_model_pb2.SavedModel.DESCRIPTOR)
    compare("AssetFileDef", meta_graph_pb2.AssetFileDef.DESCRIPTOR)
    assert checked == MESSAGES.keys()
