"""The reviewed list of ops, and the file's messages as TensorFlow defines them."""

from __future__ import annotations

import functools
import re
from collections import Counter

from tensorflow.core.framework import op_def_pb2
from tensorflow.core.protobuf import meta_graph_pb2, saved_model_pb2
from tensorflow.python.client import pywrap_tf_session

from schemas.graphs.allowed_ops import ALLOWED, FILE_INPUTS, GROUPS, SAVING
from schemas.graphs.saved_model import MESSAGES

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
        counts = Counter(name for _, names in GROUPS.values() for name in names.split())
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
        found = {
            (name, field.name)
            for name in ALLOWED
            for field in [*registered()[name].input_arg, *registered()[name].attr]
            if smell.search(field.name)
        }
        harmless = {("CTCBeamSearchDecoder", "top_paths"), ("TensorSliceDataset", "is_files")}
        harmless |= {("CudnnRNNBackpropV2", "host_reserved"), ("CudnnRNNBackpropV3", "host_reserved")}
        assert found == harmless


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
