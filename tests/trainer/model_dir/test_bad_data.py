"""Data that is damaged before a training or during it: found, named, and the last good checkpoint stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset import layout, open_dataset
from tests.support.training import run
from trainer import task
from trainer.model_dir.checkpoints import checkpoint_fault

pytestmark = pytest.mark.slow

DAMAGING = "tests.support.damaging_model:model_fn"


def with_last_bit_flipped(dataset, tmp_path: Path, path: str) -> tuple[Path, Path]:
    """A copy of the dataset, and the file in it that was changed."""
    out = Path(shutil.copytree(dataset.path, tmp_path / "out"))
    file = Path(layout.join(str(out), path))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    return out, file


class TestWhatSizesAndNamesTell:
    """Refused at start-up without --verify_data, before TensorFlow is imported."""

    @pytest.mark.parametrize("what", ["shard", "transform_fn/saved_model.pb", "schema.pbtxt"])
    @pytest.mark.parametrize("how", ["missing", "another size"])
    def test_refuses(self, late, tmp_path, capsys, what, how):
        out = Path(shutil.copytree(late.path, tmp_path / "out"))
        file = out / (late.manifest.splits["test"].shards[0].path if what == "shard" else f"{late.run}/{what}")
        if how == "missing":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes() + b"x")
        assert task.main(["--data_dir", str(out), "--model_dir", str(tmp_path / "model")]) == 1
        err = capsys.readouterr().err
        assert f"{file}: missing" in err if how == "missing" else f"{file}: " in err
        assert "manifest.json" in err
        assert "starting TensorFlow" not in err
        assert not (tmp_path / "model").exists()


class TestVerifyData:
    def test_trains_on_valid_data(self, late, tmp_path, capsys):
        assert run(late, tmp_path / "model", "--verify_data", steps=20) == 0
        assert "verifying " in capsys.readouterr().err

    @pytest.mark.parametrize("split", ["train", "test"])
    def test_refuses_a_flipped_bit_before_anything_starts(self, late, tmp_path, capsys, split):
        out, file = with_last_bit_flipped(late, tmp_path, late.manifest.splits[split].shards[0].path)
        assert run(open_dataset(str(out)), tmp_path / "model", "--verify_data") == 1
        err = capsys.readouterr().err
        assert "invalid dataset; nothing was trained:" in err
        assert str(file.relative_to(out)) in err
        assert not (tmp_path / "model").exists()

    def test_refuses_parity_records_that_were_changed(self, late, tmp_path, capsys):
        out, file = with_last_bit_flipped(late, tmp_path, f"{late.run}/{layout.PARITY_RAW}")
        assert run(open_dataset(str(out)), tmp_path / "model", "--verify_data") == 1
        assert str(file.relative_to(out)) in capsys.readouterr().err


class TestWhileItIsRead:
    @pytest.mark.parametrize("how", ["cut", "cut_between_records", "flipped", "removed"])
    def test_a_damaged_shard_is_named(self, late, tmp_path, capsys, how):
        out = shutil.copytree(late.path, tmp_path / "out")
        shard = open_dataset(str(out)).shards("train")[0]
        # Without a shuffle buffer the split is not held in memory, and its shards are read again in each epoch.
        argv = ("--shuffle_buffer", "0", "--hparams", f"shard={shard}", f"how={how}")
        assert run(open_dataset(str(out)), tmp_path / "model", *argv, model=DAMAGING, steps=60) == 1
        err = capsys.readouterr().err
        assert f"{shard}: " in err
        expected = {"removed": "No such file", "cut_between_records": "the file was truncated or changed"}
        assert expected.get(how, "cannot be read after record ") in err
        checkpoint = tf.train.latest_checkpoint(str(tmp_path / "model"))
        assert checkpoint_fault(checkpoint) is None
        assert how == "cut_between_records" or f"The last good checkpoint is {checkpoint}." in err
        assert not list((tmp_path / "model").glob("export/final/*"))


def test_weights_that_become_nan_leave_the_last_good_checkpoint(late, tmp_path, capsys):
    assert run(late, tmp_path / "model", "--hparams", "how=nan", model=DAMAGING, steps=120) == 1
    checkpoint = tf.train.latest_checkpoint(str(tmp_path / "model"))
    assert checkpoint.endswith("model.ckpt-20")  # the next would have been that of step 40
    assert f"The last good checkpoint is {checkpoint}." in capsys.readouterr().err
    values = [tf.train.load_variable(checkpoint, name) for name, _ in tf.train.list_variables(checkpoint)]
    assert all(np.isfinite(value).all() for value in values)
