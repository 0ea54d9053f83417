"""What may be loaded, on real graphs of every kind."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import saved_model_pb2

from beam_jobs import preprocess
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.graphs import walk as graph_walk
from schemas.graphs.check import check_graph
from tests.support.training import run
from trainer import doctor, task

L = tf.keras.layers


class TestRealModels:
    """Those that Millrace exports are loaded by the tests of each model; these are of other kinds."""

    def check(self, model, folder: Path, inputs) -> None:
        model(inputs)
        model.save(str(folder), save_format="tf")
        check_graph(str(folder), objects=True)
        check_graph(str(folder))

    @pytest.mark.slow
    def test_keras_images(self, tmp_path):
        layers = [L.Rescaling(1 / 255), L.RandomFlip(), L.RandomRotation(0.1), L.RandomZoom(0.1), L.Conv2D(4, 3)]
        layers += [L.BatchNormalization(), L.DepthwiseConv2D(3), L.Conv2DTranspose(3, 3), L.MaxPooling2D()]
        layers += [L.UpSampling2D(), L.Dropout(0.5), L.GlobalAveragePooling2D(), L.Dense(2, "gelu"), L.Softmax()]
        model, images = tf.keras.Sequential(layers), np.zeros([2, 32, 32, 3], np.float32)
        model.compile("adam", "mse", metrics=["accuracy"])
        model.fit(images, np.zeros([2, 2]), verbose=0)
        self.check(model, tmp_path, images)

    @pytest.mark.slow
    def test_keras_sequences(self, tmp_path):
        layers = [L.Embedding(10, 4, mask_zero=True), L.Bidirectional(L.LSTM(4, return_sequences=True)), L.GRU(4)]
        model = tf.keras.Sequential([*layers, L.LayerNormalization(), L.Dense(1)])
        model(np.zeros([2, 5], np.int64))
        model.export(str(tmp_path))  # the ops that save() writes, in a quarter of the time
        check_graph(str(tmp_path), objects=True)
        check_graph(str(tmp_path))

    @pytest.mark.slow
    def test_keras_text(self, tmp_path):
        text = L.TextVectorization(max_tokens=20, ngrams=2)
        text.adapt(["a b c", "c d"])
        layers = [text, L.Embedding(30, 2), L.GlobalAveragePooling1D()]
        self.check(tf.keras.Sequential(layers), tmp_path, tf.constant([["a b"], ["c"]]))

    def test_keras_numbers(self, tmp_path):
        normal = L.Normalization()
        normal.adapt(np.random.default_rng(1).random([5, 2]))
        layers = [normal, L.Discretization([0.0, 1.0]), L.IntegerLookup(vocabulary=[1, 2], output_mode="multi_hot")]
        self.check(tf.keras.Sequential(layers), tmp_path, np.zeros([2, 2], np.float32))

    def test_keras_lookup_from_a_file_becomes_an_asset(self, tmp_path):
        (tmp_path / "words").write_text("a\nb\n")
        model = tf.keras.Sequential([L.StringLookup(vocabulary=str(tmp_path / "words"))])
        model(tf.constant([["a"]]))
        model.save(str(tmp_path / "model"), save_format="tf")
        check_graph(str(tmp_path / "model"), objects=True)

    @pytest.mark.parametrize("name", ["people", "wages", "titanic", "colors", "stripes", "patterns"])
    def test_data_sets(self, request, name):
        assert request.getfixturevalue(name).graphs_dir

    @pytest.mark.parametrize("name", ["titanic_model", "stripes_model", "patterns_model"])
    def test_exports(self, request, name):
        check_graph(str(request.getfixturevalue(name).export))


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

    def test_a_graph_of_tensorflow_1_is_none(self, titanic_model):
        with pytest.raises(MillraceError, match="not a TensorFlow 2 SavedModel"):
            check_graph(str(titanic_model.export), objects=True)


class TestDataSets:
    """A dataset's graphs are loaded as well: by whatever trains on it, and by jobs that apply its transform."""

    @pytest.fixture
    def hostile(self, late, tmp_path) -> tuple[Path, Path]:
        """A dataset whose transform writes a file when it is loaded, and that file; its manifest fits."""
        out, victim = Path(shutil.copytree(late.path, tmp_path / "out")), tmp_path / "victim"
        path = out / late.run / layout.TRANSFORM_FN / "saved_model.pb"
        saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        library = saved_model.meta_graphs[0].graph_def.library
        with tf.Graph().as_default() as graph:
            tf.raw_ops.WriteFile(filename=str(victim), contents="written", name="hostile")
            nodes = graph.as_graph_def().node
        for function in library.function:
            if "_initializer_" in function.signature.name:
                function.node_def.extend(nodes)
                for node in function.node_def:  # in a function an input names the output as well
                    if node.name == "hostile":
                        node.input[:] = [f"{name}:output:0" for name in node.input]
                function.control_ret["hostile"] = "hostile"
                function.signature.control_output.append("hostile")
                function.signature.is_stateful = True
        path.write_bytes(saved_model.SerializeToString())
        manifest = json.loads((out / layout.MANIFEST).read_text())
        for file in manifest["files"]:
            if file["path"].endswith("transform_fn/saved_model.pb"):
                file |= {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        (out / layout.MANIFEST).write_text(json.dumps(manifest))
        return out, victim

    @pytest.mark.slow
    def test_training_on_a_hostile_one_is_refused(self, hostile, tmp_path, capsys):
        out, victim = hostile
        argv = ["--data_dir", str(out), "--model_dir", str(tmp_path / "model"), "--model", "linear"]
        argv += ["--max_steps", "1", "--batch_size", "8"]
        assert task.main(argv) == 1
        said = capsys.readouterr().err
        assert all(part in said for part in ("transform_fn/saved_model.pb: holds the op WriteFile", "give --trust"))
        assert doctor.main(["--data_dir", str(out), "--model", "linear", "--batch_size", "8"]) == 1
        assert "holds the op WriteFile" in capsys.readouterr().err
        assert not victim.exists()
        assert task.main([*argv, "--trust"]) == 0
        assert victim.exists()

    def test_so_is_applying_its_transform(self, hostile, late, tmp_path, capsys):
        out, victim = hostile
        raw = Path(late.path).parent / "late.csv"
        argv = ["--schema", str(out / late.run / layout.SCHEMA_YAML), "--input", str(raw), "--quiet"]
        argv += ["--output", str(tmp_path / "new"), "--transform_from", str(out)]
        assert preprocess.main(argv) == 2
        assert "holds the op WriteFile" in capsys.readouterr().err
        assert not victim.exists()
        assert preprocess.main([*argv, "--trust"]) == 0
        assert victim.exists()


@pytest.mark.slow
def test_a_training_on_data_of_ones_own_needs_no_trust(late, tmp_path):
    assert run(late, tmp_path / "model", steps=20) == 0


class TestGraphsMadeToBeSlow:
    """Crafted graphs: to look at them takes time in proportion to their size, and no stack."""

    def walked(self, graph_def: graph_pb2.GraphDef) -> graph_walk.Walk:
        return graph_walk.Walk(graph_walk.Graph(graph_def), graph_walk.Root("signature", tensors=("last:0",)))

    def function(self, graph_def: graph_pb2.GraphDef, name: str, *calls: str) -> None:
        """A function of one argument, `file`, that hands it to others."""
        function = graph_def.library.function.add()
        function.signature.name = name
        function.signature.input_arg.add(name="file")
        for i, called in enumerate(calls):
            node = function.node_def.add(name=f"call_{i}", op="PartitionedCall", input=["file"])
            node.attr["f"].func.name = called

    def call(self, graph_def: graph_pb2.GraphDef, function: str) -> None:
        node = graph_def.node.add(name="last", op="PartitionedCall", input=["none:0"])
        node.attr["f"].func.name = function
        graph_def.node.add(name="none", op="Const")

    def test_each_function_calls_the_next_one_twice(self):
        graph_def = graph_pb2.GraphDef()
        self.call(graph_def, "f0")
        for i in range(60):
            self.function(graph_def, f"f{i}", f"f{i + 1}", f"f{i + 1}")
        self.function(graph_def, "f60", "nothing")
        walk = self.walked(graph_def)
        assert len(walk.places) == 1 + 1 + 60 * 2 + 1
        assert not walk.is_own_file(("f60", "call_0"), 0)

    def test_a_long_chain_of_nodes(self):
        graph_def = graph_pb2.GraphDef()
        graph_def.node.add(name="n0", op="Const")
        for i in range(5000):
            graph_def.node.add(name=f"n{i + 1}", op="Identity", input=[f"n{i}"])
        graph_def.node.add(name="last", op="ReadFile", input=["n5000"])
        walk = self.walked(graph_def)
        assert len(walk.places) == 5002
        assert not walk.is_own_file(("", "last"), 0)

    def test_nodes_in_a_circle(self):
        graph_def = graph_pb2.GraphDef()
        graph_def.node.add(name="a", op="Identity", input=["b"])
        graph_def.node.add(name="b", op="Identity", input=["a"])
        graph_def.node.add(name="last", op="ReadFile", input=["a"])
        assert not self.walked(graph_def).is_own_file(("", "last"), 0)

    def test_functions_that_name_each_other(self):
        graph_def = graph_pb2.GraphDef()
        self.call(graph_def, "f0")
        for i in range(3000):
            self.function(graph_def, f"f{i}")
            named = graph_def.library.function[i].attr["next"].func
            named.name = f"f{(i + 1) % 3000}"
        assert len(self.walked(graph_def).places) == 2
