"""Which checkpoint a training resumes from, what is never saved, and data that is damaged."""

from __future__ import annotations

import os
import resource
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from schemas.errors import MillraceError
from schemas.exports.session import plain_session
from tests.support.training import run
from tests.support.written_records import copy_of, flip_bit
from trainer import task
from trainer.estimator import tf_estimator
from trainer.model_dir import checkpoints
from trainer.model_dir.checkpoints import SaveCheckpoints, checkpoint_fault, recover_checkpoint, with_safe_saving
from trainer.models.warm_start import checkpoint_at

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


def graphs_in_events(folder: Path) -> list[int]:
    """How many bytes each graph has that is in an event file under a folder, but for empty ones."""
    files = map(str, folder.rglob("events.out.tfevents.*"))
    events = (event for file in files for event in tf.compat.v1.train.summary_iterator(file))
    graphs = (event.graph_def or event.meta_graph_def for event in events)
    return [len(graph) for graph in graphs if len(graph) > 100]


def recovered(model_dir: Path) -> tuple[str | None, list[str]]:
    messages: list[str] = []
    checkpoint = recover_checkpoint(str(model_dir), messages.append)
    return checkpoint and os.path.basename(checkpoint), messages


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


class TestDamaged:
    @pytest.mark.parametrize("damage", [cut, flip_bit, Path.unlink])
    @pytest.mark.parametrize("file", [DATA, INDEX])
    def test_the_previous_checkpoint_is_used_and_reported(self, model_dir, file, damage):
        damage(model_dir / file)
        name, messages = recovered(model_dir)
        assert name == "model.ckpt-2"
        assert messages[0].startswith(f"{model_dir}/model.ckpt-3: damaged (")
        assert messages[1] == f"resuming from {model_dir}/model.ckpt-2, the latest valid checkpoint"
        assert tf.train.latest_checkpoint(str(model_dir)) == f"{model_dir}/model.ckpt-2"
        assert recovered(model_dir) == ("model.ckpt-2", [])  # settled

    def test_the_directory_may_be_relative_to_where_the_command_runs(self, model_dir, monkeypatch):
        folder = "./model/"
        cut(model_dir / DATA)
        monkeypatch.chdir(model_dir.parent)
        checkpoint = recover_checkpoint(folder, lambda line: None)
        assert checkpoint is not None
        assert os.path.normpath(checkpoint) == "model/model.ckpt-2"
        assert tf.train.latest_checkpoint(folder) == checkpoint

    def test_a_missing_file_is_named(self, model_dir):
        (model_dir / DATA).unlink()
        assert checkpoint_fault(str(model_dir / "model.ckpt-3")) == "no file .data-*"

    def test_no_valid_checkpoint_is_refused(self, model_dir):
        for step in (2, 3):
            cut(model_dir / f"model.ckpt-{step}.data-00000-of-00001")
        assert recovered(model_dir)[0] == "model.ckpt-1"
        cut(model_dir / "model.ckpt-1.data-00000-of-00001")
        with pytest.raises(MillraceError, match=r"none of its 1 checkpoint is valid"):
            recovered(model_dir)


class TestTheFileThatNamesThem:
    def test_damaged_is_written_again(self, model_dir):
        (model_dir / "checkpoint").write_bytes(b"model_checkpo")
        name, messages = recovered(model_dir)
        assert name == "model.ckpt-3"
        assert "checkpoint: missing or damaged" in messages[0]
        state = tf.train.get_checkpoint_state(str(model_dir))
        assert [os.path.basename(path) for path in state.all_model_checkpoint_paths] == [
            "model.ckpt-1",
            "model.ckpt-2",
            "model.ckpt-3",
        ]

    def test_what_it_does_not_name_yet_is_not_taken(self, model_dir):
        tf.compat.v1.train.update_checkpoint_state(str(model_dir), "model.ckpt-2", ["model.ckpt-1", "model.ckpt-2"])
        assert recovered(model_dir) == ("model.ckpt-2", [])


class TestWhatLeadsOutOfTheDirectory:
    """Training removes old checkpoints and exports, so that nothing in a stranger's directory may lead elsewhere."""

    @pytest.mark.parametrize("name", ["{outside}/model.ckpt-9", "../outside/model.ckpt-9", "sub/model.ckpt-9", "*"])
    @pytest.mark.parametrize("key", ["all_model_checkpoint_paths", "model_checkpoint_path"])
    def test_a_name_of_a_checkpoint_is_refused(self, model_dir, tmp_path, key, name):
        names = model_dir / "checkpoint"
        name = name.format(outside=tmp_path / "outside")
        latest, *every = names.read_text().splitlines()
        lines = [*every, f'{key}: "{name}"'] if key == "model_checkpoint_path" else [latest, f'{key}: "{name}"', *every]
        names.write_text("\n".join(lines))
        for call in (checkpoints.check_stays_within, lambda folder: recover_checkpoint(folder, print)):
            with pytest.raises(MillraceError) as raised:
                call(str(model_dir))
            assert f"{names}: names '" in str(raised.value)
            assert f"{name}'; expected the names of checkpoints in the same folder" in str(raised.value)

    def test_a_warm_start_does_not_follow_it(self, model_dir):
        (model_dir / "checkpoint").write_text('model_checkpoint_path: "../elsewhere/model.ckpt-3"\n')
        with pytest.raises(MillraceError, match=r"names '.*elsewhere/model.ckpt-3'; expected"):
            checkpoint_at(str(model_dir), flag="--warm_start_from ")

    def test_absolute_names_in_the_directory_itself_are_taken(self, model_dir):
        """As a saver of one's own may write them."""
        (model_dir / "checkpoint").write_text(f'model_checkpoint_path: "{model_dir}/model.ckpt-3"\n')
        checkpoints.check_stays_within(str(model_dir))
        assert recovered(model_dir) == ("model.ckpt-3", [])

    @pytest.mark.parametrize("link", ["export", "export/best", "export/final"])
    def test_a_folder_of_exports_that_is_a_link_is_refused(self, tmp_path, link):
        (tmp_path / "outside").mkdir()
        path = tmp_path / "model" / link
        path.parent.mkdir(parents=True)
        path.symlink_to(tmp_path / "outside")
        with pytest.raises(MillraceError, match=rf"model/{link}: is a link to .*outside; expected a file or folder"):
            checkpoints.check_stays_within(str(tmp_path / "model"))

    def test_of_a_link_only_the_link_is_removed(self, tmp_path):
        """Also one inside a folder that is removed."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").touch()
        exports = tmp_path / "model" / "export" / "best"
        (exports / "temp-2").mkdir(parents=True)
        (exports / "temp-1").symlink_to(outside)
        (exports / "temp-2" / "link").symlink_to(outside)
        checkpoints.remove_temporary_exports(str(tmp_path / "model"))
        assert os.listdir(exports) == []
        assert os.listdir(outside) == ["precious"]


def test_valid_checkpoints_cause_no_message_and_no_change(model_dir):
    before = {path.name: path.read_bytes() for path in model_dir.iterdir()}
    assert recovered(model_dir) == ("model.ckpt-3", [])
    assert {path.name: path.read_bytes() for path in model_dir.iterdir()} == before


def test_no_checkpoint_yet(tmp_path):
    assert recovered(tmp_path) == (None, [])
    assert recovered(tmp_path / "no such folder") == (None, [])


def estimator(model_dir: Path, *, bad_at: int | None = None, value: float = float("nan"), save_graph: bool = False):
    """One weight that grows by 1 a step and, from the step `bad_at` on, is `value`; its loss is a number."""

    def model_fn(features, labels, mode, config):
        step = tf.compat.v1.train.get_or_create_global_step()
        weight = tf.compat.v1.get_variable("weight", [], initializer=tf.compat.v1.zeros_initializer())
        now = step.assign_add(1, read_value=True)
        train = weight.assign(tf.where(now >= (10**9 if bad_at is None else bad_at), value, weight + 1.0))
        spec = tf_estimator.EstimatorSpec(mode, loss=tf.constant(0.5), train_op=train)
        return with_safe_saving(spec, config)

    config = tf_estimator.RunConfig(
        model_dir=str(model_dir),
        save_checkpoints_steps=2,
        keep_checkpoint_max=3,
        session_config=plain_session(),
        checkpoint_save_graph_def=save_graph,
    )
    return tf_estimator.Estimator(model_fn, config=config)


def train(estimator, steps: int, *hooks) -> None:
    estimator.train(lambda: tf.data.Dataset.from_tensors({"x": [1.0]}).repeat(), max_steps=steps, hooks=hooks)


class SmallFiles(tf.compat.v1.train.SessionRunHook):
    """From its third step on the system lets no file of this process grow beyond 16 bytes."""

    def after_run(self, run_context, run_values):
        if run_context.session.run(tf.compat.v1.train.get_global_step()) == 3:
            self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, self.before[1]))

    def lift(self):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


def versions(folder: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.glob("model.ckpt-*[0-9x]")}


def test_every_so_many_steps_and_at_the_end(tmp_path):
    train(estimator(tmp_path), 5)
    state = tf.train.get_checkpoint_state(str(tmp_path))
    names = [os.path.basename(path) for path in state.all_model_checkpoint_paths]
    assert names == ["model.ckpt-2", "model.ckpt-4", "model.ckpt-5"]  # the newest three, as asked


@pytest.mark.parametrize("save_graph", [True, False])
def test_the_graph_is_in_the_events_once_and_in_files_only_if_the_config_says_so(tmp_path, save_graph):
    for steps in (2, 4):
        train(estimator(tmp_path, save_graph=save_graph), steps)
    graphs = {path.suffix for path in tmp_path.iterdir() if path.suffix in (".pbtxt", ".meta")}
    assert graphs == ({".pbtxt", ".meta"} if save_graph else set())
    assert len(graphs_in_events(tmp_path)) == 1


@pytest.mark.slow
def test_evaluations_write_no_graph(people, tmp_path):
    """Neither of the split that is evaluated while training, nor of `test`."""
    own = ["--model", "tests.support.own_models:model_fn", "--evaluate_test"]
    assert run(people, tmp_path, *own, steps=20) == 0
    assert len(graphs_in_events(tmp_path)) == 1


def test_the_checkpoint_that_training_resumes_from_is_not_overwritten(tmp_path):
    train(estimator(tmp_path), 4)
    before = {name: stat for name, stat in versions(tmp_path).items() if "ckpt-4" in name}
    assert len(before) == 2
    train(estimator(tmp_path), 6)
    assert before.items() <= versions(tmp_path).items()
    assert tf.train.load_variable(str(tmp_path / "model.ckpt-6"), "weight") == 6


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_a_number_is_not_saved(tmp_path, value):
    with pytest.raises(
        MillraceError, match=r"variables became NaN or infinite by step 4 \(weight\).*ckpt-2\. .* --max_steps 2\.$"
    ):
        train(estimator(tmp_path, bad_at=3, value=value), 10)
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-2")
    assert checkpoint_fault(str(tmp_path / "model.ckpt-2")) is None
    train(estimator(tmp_path), 6)  # goes on, once it is mended
    assert tf.train.load_variable(str(tmp_path / "model.ckpt-6"), "weight") == 6


def test_a_checkpoint_that_cannot_be_written_is_no_end_of_the_training(tmp_path):
    small = SmallFiles()
    try:
        with pytest.raises(
            MillraceError, match=r"writing failed: .*File too large\. Free some space.*ckpt-2\. .* --max_steps 2\.$"
        ):
            train(estimator(tmp_path), 10, small)
    finally:
        small.lift()  # else no test after this one could write a file
    assert checkpoint_fault(str(tmp_path / "model.ckpt-2")) is None
    train(estimator(tmp_path), 6)
    assert tf.train.load_variable(str(tmp_path / "model.ckpt-6"), "weight") == 6


def test_a_hook_of_ones_own_is_left_to_do_it(tmp_path):
    config = tf_estimator.RunConfig(model_dir=str(tmp_path), save_checkpoints_steps=2, session_config=plain_session())
    own = tf.compat.v1.train.CheckpointSaverHook(str(tmp_path), save_steps=1)
    with tf.Graph().as_default():
        spec = tf_estimator.EstimatorSpec("train", loss=tf.constant(0.0), train_op=tf.no_op(), training_hooks=[own])
        assert with_safe_saving(spec, config).training_chief_hooks == spec.training_chief_hooks
        spec = spec._replace(training_hooks=())
        (added,) = with_safe_saving(spec, config).training_chief_hooks
        assert isinstance(added, SaveCheckpoints)


DAMAGING = "tests.support.damaging_model:model_fn"


@pytest.mark.slow
class TestWhatSizesAndNamesTell:
    """Refused at start-up, before TensorFlow is imported."""

    @pytest.mark.parametrize(("what", "how"), [("shard", "missing"), ("transform_fn/saved_model.pb", "longer")])
    def test_refuses(self, late, tmp_path, capsys, what, how):
        copy = copy_of(late, tmp_path)
        file = Path(copy.shards("test")[0] if what == "shard" else f"{copy.run_dir}/{what}")
        if how == "missing":
            file.unlink()
        else:
            data = file.read_bytes()
            file.write_bytes(data + b"x" if how == "longer" else data[:-1])
        assert task.main(["--data_dir", copy.path, "--model_dir", str(tmp_path / "model")]) == 1
        err = capsys.readouterr().err
        assert f"{file}: missing" in err if how == "missing" else f"{file}: " in err
        assert "manifest.json" in err
        assert "starting TensorFlow" not in err
        assert not (tmp_path / "model").exists()


@pytest.mark.slow
class TestWhileItIsRead:
    @pytest.mark.parametrize("how", ["cut", "cut_between_records", "flipped", "removed"])
    def test_a_damaged_shard_is_named(self, late, tmp_path, capsys, how):
        copy = copy_of(late, tmp_path)
        shard = copy.shards("train")[0]
        # Without a shuffle buffer the split is not held in memory, and its shards are read again in each epoch.
        argv = ("--shuffle_buffer", "0", "--hparams", f"shard={shard}", f"how={how}")
        assert run(copy, tmp_path / "model", *argv, model=DAMAGING, steps=60) == 1
        err = capsys.readouterr().err
        assert f"{shard}: " in err
        expected = {"removed": "No such file", "cut_between_records": "the file was truncated or changed"}
        assert expected.get(how, "cannot be read after record ") in err
        checkpoint = tf.train.latest_checkpoint(str(tmp_path / "model"))
        assert checkpoint_fault(checkpoint) is None
        assert how == "cut_between_records" or f"The last good checkpoint is {checkpoint}." in err
        assert not list((tmp_path / "model").glob("export/final/*"))


@pytest.mark.slow
def test_weights_that_become_nan_leave_the_last_good_checkpoint(late, tmp_path, capsys):
    assert run(late, tmp_path / "model", "--hparams", "how=nan", model=DAMAGING, steps=120) == 1
    checkpoint = tf.train.latest_checkpoint(str(tmp_path / "model"))
    assert checkpoint.endswith("model.ckpt-20")  # the next would have been that of step 40
    advice = "To export the best one so far, run the same command with --max_steps 20."
    assert f"The last good checkpoint is {checkpoint}. {advice}" in capsys.readouterr().err
    assert not list((tmp_path / "model").glob("export/*/[0-9]*"))
    assert run(late, tmp_path / "model", "--hparams", "how=nan", model=DAMAGING, steps=20) == 0
    assert {path.parent.name for path in (tmp_path / "model").glob("export/*/[0-9]*")} == {"best", "final"}
    values = [tf.train.load_variable(checkpoint, name) for name, _ in tf.train.list_variables(checkpoint)]
    assert all(np.isfinite(value).all() for value in values)
