"""A graph is loaded only when the manifest beside it names it, its checksums match, and it only computes."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from beam_jobs import preprocess
from schemas.dataset import layout
from schemas.errors import MillraceError
from schemas.exports.model import ServedModel
from schemas.exports.notes import NOTES_PATH, check_files, read_notes
from schemas.graphs.check import check_graph
from tests.support.training import run
from tests.support.written_records import copy_of, flip_bit
from trainer import task, verify
from trainer.export.image_receivers import load_ingest

VARIABLES = "variables/variables.data-00000-of-00001"


def link(export: Path, name: str) -> None:
    """Moves a file or a folder of an export elsewhere, and puts a link in its place."""
    elsewhere = Path(f"{export}.elsewhere")
    if (export / name).exists():
        shutil.move(export / name, elsewhere)
    (export / name).symlink_to(elsewhere)


def other_format(export: Path) -> None:
    notes = export / NOTES_PATH
    notes.write_text(notes.read_text().replace('"format_version": 1', '"format_version": 4'))


class TestDataSet:
    def test_training_on_a_changed_transform_is_refused(self, people, tmp_path, capsys):
        copy = copy_of(people, tmp_path)
        (file,) = Path(copy.run_dir, "transform_fn").rglob("assets/work")
        flip_bit(file)
        assert run(copy, tmp_path / "model") == 1
        assert f"{file}: was changed: its SHA-256 is " in capsys.readouterr().err

    def test_an_added_file_is_refused(self, people, tmp_path, capsys):
        copy = copy_of(people, tmp_path)
        run_dir = Path(copy.run_dir)
        shutil.copy(run_dir / "transform_fn" / "saved_model.pb", run_dir / "transform_fn" / "saved_model.cpb")
        assert run(copy, tmp_path / "model") == 1
        assert "saved_model.cpb: is not named by manifest.json" in capsys.readouterr().err

    def test_a_changed_ingest_graph_is_refused(self, colors, tmp_path):
        copy = copy_of(colors, tmp_path)
        run_dir = Path(copy.run_dir)
        flip_bit(run_dir / layout.INGEST_FN / "saved_model.pb")
        with pytest.raises(MillraceError, match=r"ingest_fn/saved_model\.pb: was changed"):
            load_ingest(copy)

    def test_verify_too(self, titanic, titanic_model, tmp_path, capsys):
        copy = copy_of(titanic, tmp_path)
        run_dir = Path(copy.run_dir)
        flip_bit(run_dir / "transform_fn" / "saved_model.pb")
        assert verify.main(["--data_dir", copy.path, "--saved_model", str(titanic_model.export)]) == 1
        assert "transform_fn/saved_model.pb: was changed" in capsys.readouterr().err

    def test_and_the_job_that_would_apply_it(self, people, people_csv, tmp_path, capsys):
        copy = copy_of(people, tmp_path)
        run_dir = Path(copy.run_dir)
        flip_bit(run_dir / "transform_fn" / "saved_model.pb")
        argv = ["--schema", str(run_dir / layout.SCHEMA_YAML), "--input", str(people_csv), "--quiet"]
        argv += ["--output", str(tmp_path / "new"), "--transform_from", copy.path]
        assert preprocess.main(argv) == 2
        assert "transform_fn/saved_model.pb: was changed" in capsys.readouterr().err
        assert not (tmp_path / "new" / layout.MANIFEST).exists()


class TestExport:
    @pytest.fixture
    def export(self, titanic_model, tmp_path) -> Path:
        return Path(shutil.copytree(titanic_model.export, tmp_path / "served" / "1"))

    def test_its_notes_name_every_other_file(self, titanic_model):
        _, notes = read_notes(str(titanic_model.export))
        lying_there = {str(p.relative_to(titanic_model.export)) for p in titanic_model.export.rglob("*") if p.is_file()}
        assert set(notes.files) == lying_there - {"assets.extra/millrace.json"}
        check_files(str(titanic_model.export), notes)

    def test_a_link_to_it_is_as_good_and_what_a_file_manager_leaves_in_it_does_no_harm(self, export, tmp_path):
        for name in (".DS_Store", "variables/Thumbs.db"):
            (export / name).write_bytes(b"x")
        (tmp_path / "latest").symlink_to(export)
        ServedModel(str(tmp_path / "latest")).close()

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda e: flip_bit(e / "saved_model.pb"), "{}/saved_model.pb: was changed: its SHA-256 is "),
            (lambda e: flip_bit(e / VARIABLES), f"{{}}/{VARIABLES}: was changed: its SHA-256 is "),
            (lambda e: (e / "saved_model.cpb").write_bytes(b"x"), f"saved_model.cpb: is not named by {NOTES_PATH}"),
            (lambda e: (e / "variables" / "variables.index").unlink(), f"missing, but {NOTES_PATH} names it"),
            (lambda e: link(e, "saved_model.pb"), "{}/saved_model.pb: is a link to {}.elsewhere"),
            (lambda e: link(e, "more"), "{}/more: is a link to {}.elsewhere"),
            (other_format, "is of format version 4; this release reads version 1"),
        ],
    )
    def test_a_damaged_one_is_refused(self, export, damage, message):
        damage(export)
        with pytest.raises(MillraceError, match=re.escape(message.replace("{}", str(export)))):
            ServedModel(str(export))


L = tf.keras.layers


def images() -> tf.keras.Model:
    layers = [L.Rescaling(1 / 255), L.RandomFlip(), L.RandomRotation(0.1), L.RandomZoom(0.1), L.Conv2D(4, 3)]
    layers += [L.BatchNormalization(), L.DepthwiseConv2D(3), L.Conv2DTranspose(3, 3), L.MaxPooling2D()]
    layers += [L.UpSampling2D(), L.Dropout(0.5), L.GlobalAveragePooling2D(), L.Dense(2, "gelu"), L.Softmax()]
    model = tf.keras.Sequential(layers)
    model.compile("adam", "mse", metrics=["accuracy"])
    model.fit(np.zeros([2, 32, 32, 3], np.float32), np.zeros([2, 2]), verbose=0)
    return model


def sequences() -> tf.keras.Model:
    layers = [L.Embedding(10, 4, mask_zero=True), L.Bidirectional(L.LSTM(4, return_sequences=True)), L.GRU(4)]
    model = tf.keras.Sequential([*layers, L.LayerNormalization(), L.Dense(1)])
    model(np.zeros([2, 5], np.int64))
    return model


def text() -> tf.keras.Model:
    vectors = L.TextVectorization(max_tokens=20, ngrams=2)
    vectors.adapt(["a b c", "c d"])
    model = tf.keras.Sequential([vectors, L.Embedding(30, 2), L.GlobalAveragePooling1D()])
    model(tf.constant([["a b"], ["c"]]))
    return model


def numbers() -> tf.keras.Model:
    normal = L.Normalization()
    normal.adapt(np.random.default_rng(1).random([5, 2]))
    layers = [normal, L.Discretization([0.0, 1.0]), L.IntegerLookup(vocabulary=[1, 2], output_mode="multi_hot")]
    model = tf.keras.Sequential(layers)
    model(np.zeros([2, 2], np.float32))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("build", [images, sequences, text, numbers])
def test_keras_models_pass(build, tmp_path):
    """The tests of each model that ships load its export, too."""
    model = build()
    if build is sequences:
        model.export(str(tmp_path))  # the ops that save() writes, in a quarter of the time
    else:
        model.save(str(tmp_path), save_format="tf")
    check_graph(str(tmp_path), objects=True)
    check_graph(str(tmp_path))


def test_a_keras_lookup_from_a_file_becomes_an_asset(tmp_path):
    (tmp_path / "words").write_text("a\nb\n")
    model = tf.keras.Sequential([L.StringLookup(vocabulary=str(tmp_path / "words"))])
    model(tf.constant([["a"]]))
    model.save(str(tmp_path / "model"), save_format="tf")
    check_graph(str(tmp_path / "model"), objects=True)


def test_a_graph_of_tensorflow_1_has_no_object_graph(titanic_model):
    with pytest.raises(MillraceError, match="not a TensorFlow 2 SavedModel"):
        check_graph(str(titanic_model.export), objects=True)


class TestDataSets:
    """A dataset's graphs are loaded, too: to train on it, and by jobs that apply its transform."""

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
        output = capsys.readouterr().err
        assert all(part in output for part in ("transform_fn/saved_model.pb: holds the op WriteFile", "give --trust"))
        assert not victim.exists()
        assert task.main([*argv, "--trust"]) == 0
        assert victim.exists()

    def test_applying_its_transform_is_refused(self, hostile, late, tmp_path, capsys):
        out, victim = hostile
        raw = Path(late.path).parent / "rows.csv"
        argv = ["--schema", str(out / late.run / layout.SCHEMA_YAML), "--input", str(raw), "--quiet"]
        argv += ["--output", str(tmp_path / "new"), "--transform_from", str(out)]
        assert preprocess.main(argv) == 2
        assert "holds the op WriteFile" in capsys.readouterr().err
        assert not victim.exists()
        assert preprocess.main([*argv, "--trust"]) == 0
        assert victim.exists()
