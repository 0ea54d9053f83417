"""The graph check on object graphs: the functions that only they lead to are checked, too."""

from __future__ import annotations

import pytest
import tensorflow as tf

from schemas.errors import MillraceError
from schemas.graphs.check import check_graph


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
        ("module", "found"),
        [
            (Table("/etc/passwd"), r"InitializeTableFromTextFileV2 .*the object graph.*not its own"),
            (Writer("/tmp/x"), r"holds the op WriteFile .*function '__inference_write_\d+', which the object graph"),
            (Restorer(), r"RestoreV2 .*the object graph.*not its own"),
        ],
    )
    def test_every_function_of_one_is_checked(self, tmp_path, module, found):
        tf.saved_model.save(module, str(tmp_path))
        with pytest.raises(MillraceError, match=found):
            check_graph(str(tmp_path), objects=True)
