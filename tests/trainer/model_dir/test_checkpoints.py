"""Which checkpoint a training goes on from when the newest is damaged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from schemas.errors import MillraceError
from trainer.model_dir.checkpoints import checkpoint_fault, recover_checkpoint

DATA, INDEX = "model.ckpt-3.data-00000-of-00001", "model.ckpt-3.index"


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """Checkpoints of the steps 1, 2 and 3, as Estimator saves them."""
    folder = tmp_path_factory.mktemp("saved")
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("weights", [500])
        saver = tf.compat.v1.train.Saver([weights], sharded=True, save_relative_paths=True)
        session.run(tf.compat.v1.global_variables_initializer())
        for step in (1, 2, 3):
            saver.save(session, str(folder / "model.ckpt"), global_step=step)
    return folder


@pytest.fixture
def model_dir(saved, tmp_path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


def recovered(model_dir: Path) -> tuple[str | None, list[str]]:
    told: list[str] = []
    checkpoint = recover_checkpoint(str(model_dir), told.append)
    return checkpoint and os.path.basename(checkpoint), told


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


class TestDamaged:
    @pytest.mark.parametrize("damage", [cut, empty, flip, Path.unlink])
    @pytest.mark.parametrize("file", [DATA, INDEX])
    def test_the_previous_checkpoint_is_used_and_reported(self, model_dir, file, damage):
        damage(model_dir / file)
        name, told = recovered(model_dir)
        assert name == "model.ckpt-2"
        assert told[0].startswith(f"{model_dir}/model.ckpt-3: damaged (")
        assert told[1] == f"resuming from {model_dir}/model.ckpt-2, the latest valid checkpoint"
        assert tf.train.latest_checkpoint(str(model_dir)) == f"{model_dir}/model.ckpt-2"
        assert recovered(model_dir) == ("model.ckpt-2", [])  # settled

    def test_two_of_them(self, model_dir):
        cut(model_dir / DATA)
        (model_dir / "model.ckpt-2.index").unlink()
        assert recovered(model_dir)[0] == "model.ckpt-1"

    def test_a_missing_file_is_named(self, model_dir):
        (model_dir / DATA).unlink()
        assert checkpoint_fault(str(model_dir / "model.ckpt-3")) == "no file .data-*"

    def test_no_valid_checkpoint_is_refused(self, model_dir):
        for step in (1, 2, 3):
            cut(model_dir / f"model.ckpt-{step}.data-00000-of-00001")
        with pytest.raises(MillraceError, match="none of its 3 checkpoints is valid"):
            recovered(model_dir)


class TestTheFileThatNamesThem:
    @pytest.mark.parametrize("content", [b"", b"model_checkpo", None])
    def test_damaged_or_gone_is_written_again(self, model_dir, content):
        if content is None:
            (model_dir / "checkpoint").unlink()
        else:
            (model_dir / "checkpoint").write_bytes(content)
        name, told = recovered(model_dir)
        assert name == "model.ckpt-3"
        assert "checkpoint: missing or damaged" in told[0]
        state = tf.train.get_checkpoint_state(str(model_dir))
        assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == [
            "model.ckpt-1",
            "model.ckpt-2",
            "model.ckpt-3",
        ]

    def test_what_it_does_not_name_yet_is_not_taken(self, model_dir):
        tf.compat.v1.train.update_checkpoint_state(str(model_dir), "model.ckpt-2", ["model.ckpt-1", "model.ckpt-2"])
        assert recovered(model_dir) == ("model.ckpt-2", [])


def test_valid_checkpoints_cause_no_message_and_no_change(model_dir):
    before = {path.name: path.read_bytes() for path in model_dir.iterdir()}
    assert recovered(model_dir) == ("model.ckpt-3", [])
    assert {path.name: path.read_bytes() for path in model_dir.iterdir()} == before


def test_no_checkpoint_yet(tmp_path):
    assert recovered(tmp_path) == (None, [])
    assert recovered(tmp_path / "no such folder") == (None, [])
