"""An export whose graph could do more than compute is refused before any of it is loaded, however it is hidden."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from schemas.errors import MillraceError
from schemas.exports.model import EXAMPLES, EXAMPLES_INPUT, ServedModel
from tests.support import exports as hostile
from trainer import predict, verify

pytestmark = pytest.mark.slow

SECRET = "a secret line"

WRITERS = {  # each writes the file, and what it is refused by
    hostile.write_in_signature: ("WriteFile", "the signature '"),
    hostile.write_in_init: ("WriteFile", "the init op"),
    hostile.write_in_restore: ("WriteFile", "the saver's restore op"),
    hostile.write_in_nested_functions: ("WriteFile", "of the function '__inference_inner_"),
    hostile.write_in_map: ("WriteFile", "the signature '"),
    hostile.write_in_if: ("WriteFile", "the signature '"),
    hostile.write_in_case: ("WriteFile", "the signature '"),
    hostile.write_in_while: ("WriteFile", "the signature '"),
    hostile.write_in_gradient: ("WriteFile", "of the function 'InnocentGradient'"),
    hostile.print_to_file: ("PrintV2", "the signature '"),
    hostile.cache_to_file: ("CacheDataset", "the signature '"),
    hostile.save_in_signature: ("SaveV2", "the signature '"),
}
READERS = {  # each answers with the file's content, as the key
    hostile.read_file: ("ReadFile", "the signature '"),
    hostile.read_lines: ("TextLineDataset", "the signature '"),
    hostile.foreign_table: ("InitializeTableFromTextFileV2", "for a file that is not its own"),
    hostile.asset_that_no_one_feeds: ("InitializeTableFromTextFileV2", "for a file that is not its own"),
    hostile.asset_out_of_the_export: ("../../../victim", "is outside the assets folder"),
    hostile.foreign_checkpoint: ("RestoreV2", "for a file that is not its own"),
}
OTHERS = {  # these fail, or harm nobody here
    hostile.write_out_of_reach: ("WriteFile", "which nothing leads to"),
    hostile.save_in_init: ("SaveV2", "the init op"),
    hostile.python_function: ("PyFunc", "the signature '"),
    hostile.absolute_asset: ("victim", "is outside the assets folder"),
    hostile.foreign_checkpoint_in_restore: ("RestoreV2", "for a file that is not its own"),
}


def cases(table: dict) -> list:
    return [pytest.param(change, *refusal, id=change.__name__) for change, refusal in table.items()]


@pytest.fixture
def victim(tmp_path) -> Path:
    """A file beside the folder of exports; a checkpoint that holds the same lies there too."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        prefix = str(tmp_path / "foreign")
        session.run(
            tf.raw_ops.SaveV2(prefix=prefix, tensor_names=["x"], shape_and_slices=[""], tensors=[tf.constant([SECRET])])
        )
    return tmp_path / "victim"


@pytest.fixture
def export(titanic_model, tmp_path) -> Path:
    return Path(shutil.copytree(titanic_model.export, tmp_path / "served" / "1"))


def answer(export: Path) -> str:
    """Loads the export, trusted; gives the key of an answer."""
    with ServedModel(str(export), trust=True) as model:
        return str(model.predict({EXAMPLES_INPUT: [b""]}, signature=EXAMPLES)["key"][0].decode())


@pytest.mark.parametrize(("change", "op", "reached"), cases(WRITERS | READERS | OTHERS))
def test_a_hostile_export_is_refused_by_the_op_before_it_is_loaded(export, victim, tmp_path, change, op, reached):
    if change in READERS:
        victim.write_text(f"{SECRET}\n")
    hostile.make_hostile(export, victim, change)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(MillraceError) as raised:
        ServedModel(str(export))
    assert str(raised.value).startswith(f"{export}/saved_model.pb: ")
    assert all(part in str(raised.value) for part in (op, reached, "give --trust"))
    assert sorted(tmp_path.rglob("*")) == before
    if change in WRITERS:  # trust lets it write or read, so it is an attack indeed
        answer(export)
        assert list(victim.parent.glob("victim*"))
    elif change in READERS:
        assert SECRET in answer(export)


def test_predict_and_verify_refuse_it_too(export, victim, titanic, titanic_csv, titanic_model, tmp_path, capsys):
    hostile.make_hostile(export, victim, hostile.write_in_signature)
    verified = ["--data_dir", titanic.path, "--saved_model", str(export), "--model_dir", str(titanic_model.model_dir)]
    predicted = ["--saved_model", str(export), "--input", str(titanic_csv), "--output", str(tmp_path / "p.jsonl")]
    for command, argv in ((verify, verified), (predict, predicted)):
        assert command.main(argv) == 1
        assert "holds the op WriteFile" in capsys.readouterr().err
        assert not victim.exists()
        assert command.main([*argv, "--trust"]) == 0
        victim.unlink()
    (export / "saved_model.pb").write_bytes(b"")  # trust is no way round the checksums
    assert predict.main([*predicted, "--overwrite", "--trust"]) == 1
    assert "saved_model.pb: was changed" in capsys.readouterr().err


class TestForms:
    """What TensorFlow would read otherwise than the check does is refused."""

    def changed(self, export: Path, change) -> None:
        path = export / "saved_model.pb"
        saved_model = saved_model_pb2.SavedModel.FromString(path.read_bytes())
        change(saved_model)
        path.write_bytes(saved_model.SerializeToString())
        hostile.forge_notes(export)

    def test_a_second_meta_graph_is_checked_too(self, export):
        def change(saved_model):
            more = saved_model.meta_graphs.add()
            more.meta_info_def.tags.append("other")
            more.graph_def.node.add(name="x", op="WriteFile")

        self.changed(export, change)
        with pytest.raises(MillraceError, match="holds the op WriteFile"):
            ServedModel(str(export))

    def test_two_nodes_of_one_name(self, export):
        self.changed(
            export, lambda saved_model: saved_model.meta_graphs[0].graph_def.node.add(name="save/Const", op="NoOp")
        )
        with pytest.raises(MillraceError, match="two nodes or functions with one name"):
            ServedModel(str(export))

    def test_a_function_with_the_name_of_an_op_is_none_to_tensorflow(self, export, victim):
        """The check takes `WriteFile` for the function here; TensorFlow loads no such library."""

        def change(saved_model):
            graph_def = saved_model.meta_graphs[0].graph_def
            graph_def.library.function.add().signature.name = "WriteFile"
            graph_def.node.add(name="x", op="WriteFile")

        self.changed(export, change)
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="WriteFile"):
            ServedModel(str(export))
        assert not victim.exists()

    def test_what_is_no_saved_model(self, export):
        (export / "saved_model.pb").write_bytes(b"no protocol buffer")
        hostile.forge_notes(export)
        with pytest.raises(MillraceError, match="not a TensorFlow SavedModel"):
            ServedModel(str(export))

    def test_a_chunked_one(self, export):
        (export / "saved_model.cpb").write_bytes(b"")
        hostile.forge_notes(export)
        with pytest.raises(MillraceError, match=r"saved_model\.cpb: some TensorFlow loaders read it"):
            ServedModel(str(export))
