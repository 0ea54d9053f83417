"""What gets a number under export/, and the warm-up requests that it holds."""

from __future__ import annotations

import glob
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from schemas.dataset.opening import checksums
from schemas.errors import MillraceError, SkewError, UsageError
from schemas.exports.model import ServedModel
from schemas.exports.notes import check_files, read_notes
from schemas.storage import folders
from trainer.estimator import tf_estimator
from trainer.export.exporters import BEST_CHECKPOINT_JSON, CheckedExport, Exports, best_so_far, best_step, prune
from trainer.export.skew_check import first_difference
from trainer.export.warmup import FILE, MAX_BYTES, read_warmup, recorded
from trainer.spec.metrics import BestMetric, best_metric

NAN = float("nan")


def numbers(path: Path) -> list[int]:
    return sorted(int(p.name) for p in path.iterdir() if p.name.isdecimal()) if path.exists() else []


@pytest.fixture(scope="module")
def late_estimator(late, make_estimator):
    """A softmax regression, whose graphs are small, as trainer.task wraps it."""
    return make_estimator(late, model="softmax")


@pytest.fixture(scope="module")
def random_estimator(late, make_estimator, tmp_path_factory):
    """A model whose predictions are never the same twice: the exported one cannot agree with it."""

    def model_fn(features, labels, mode):
        logits = tf.keras.layers.Dense(1)(features["age"][:, tf.newaxis])
        step = tf.compat.v1.train.get_or_create_global_step()
        predictions = {"logits": logits + tf.random.uniform(tf.shape(logits))}
        return tf_estimator.EstimatorSpec(
            mode, predictions=predictions, loss=tf.reduce_mean(logits), train_op=step.assign_add(1)
        )

    folder = tmp_path_factory.mktemp("random")
    return make_estimator(late, steps=1, estimator=tf_estimator.Estimator(model_fn, str(folder)))


class Training:
    """A training that evaluates one checkpoint, again and again, and ends."""

    def __init__(self, dataset, estimator, model_dir, *, metric="accuracy", keep=3, say=lambda text: None) -> None:
        options: Any = SimpleNamespace(model_dir=str(model_dir), best_metric=metric, keep_exports=keep)
        self.exports = Exports(dataset, options, say=say)
        self.estimator, self.folder = estimator, Path(model_dir) / "export" / "best"

    def evaluate(self, value: float, *, step: int = 20, checkpoint: str | None = None) -> bool:
        """What a training does after an evaluation; returns whether it is the best so far."""
        result = {"accuracy": value, "loss": 1.0, "global_step": step}
        return self.exports.consider(checkpoint or self.estimator.latest_checkpoint(), result)

    def end(self) -> Any:
        """Exports; returns the best export, None if there is none."""
        return self.exports.write(self.estimator, self.estimator.latest_checkpoint()).get("best")

    def best(self) -> dict[str, Any]:
        return json.loads((self.folder / "best.json").read_text())


def copied_files(path: Path) -> dict[str, bytes]:
    """The files of the one checkpoint that was copied, by their names' ends."""
    (folder,) = path.glob("kept-*")
    return {file.name.split(".", 2)[2]: file.read_bytes() for file in folder.iterdir()}


class TestBestMetric:
    @pytest.mark.parametrize(
        ("metrics", "requested", "expected"),
        [
            (("auc", "accuracy", "average_loss", "loss"), None, BestMetric("average_loss", higher=False)),
            (("average_loss", "balanced_loss", "loss"), None, BestMetric("balanced_loss", higher=False)),
            (("auc", "loss/regularized"), "loss/regularized", BestMetric("loss/regularized", higher=False)),
            (("auc", "recall"), "recall", BestMetric("recall", higher=True)),
        ],
    )
    def test_the_loss_unless_another_is_named(self, metrics, requested, expected):
        assert best_metric(dict.fromkeys(metrics, 0.5), requested) == expected

    def test_an_unknown_metric_is_refused(self):
        metrics = {"loss": 1.0, "accuracy": 1.0, "global_step": 1}
        with pytest.raises(UsageError, match=r"no metric 'acuracy'.*did you mean accuracy\? it has accuracy, loss"):
            best_metric(metrics, "acuracy")


@pytest.mark.slow
class TestBest:
    def test_the_best_checkpoint_outlives_the_process_and_is_exported_once(self, late, late_estimator, tmp_path):
        for step, (value, improves) in enumerate([(0.5, True), (0.5, False), (0.4, False), (NAN, False), (0.6, True)]):
            training = Training(late, late_estimator, tmp_path, keep=1)  # as after a restart
            assert training.evaluate(value, step=step) == improves
            assert best_step(str(training.folder)) == (4 if value == 0.6 else 0)
            assert numbers(training.folder) == []  # while the training runs
        training = Training(late, late_estimator, tmp_path, keep=1)  # a process that evaluates nothing any more
        first = training.end()
        assert set(os.listdir(training.folder)) == {"best.json", Path(first).name}
        of = {"metric": "accuracy", "value": 0.6, "export": Path(first).name, "global_step": 4}
        assert training.best() == of
        assert not training.evaluate(0.6)  # as good as the export is not better
        assert training.end() == first
        tf.io.gfile.rmtree(first)  # what was removed is not the best any more
        assert training.evaluate(0.4)
        assert Path(training.end()).is_dir()
        assert training.best()["value"] == 0.4

    def test_it_is_exported_after_the_training_has_deleted_it(self, late, late_estimator, tmp_path):
        copy = str(tmp_path / "model.ckpt-20")
        for file in glob.glob(f"{late_estimator.latest_checkpoint()}.*"):
            shutil.copy(file, copy + file.removeprefix(late_estimator.latest_checkpoint()))
        training = Training(late, late_estimator, tmp_path)
        training.evaluate(0.5, checkpoint=copy)
        for file in glob.glob(f"{copy}.*"):
            Path(file).unlink()
        assert training.end()

    def test_a_kill_while_a_better_one_is_copied_leaves_the_earlier(self, late, late_estimator, tmp_path):
        training = Training(late, late_estimator, tmp_path)
        training.evaluate(0.5)
        folder, before = training.folder, copied_files(training.folder)
        (folder / "kept-0123").mkdir()
        (folder / "kept-0123" / "model.ckpt-30.index").write_bytes(b"x")
        assert best_so_far(str(folder)) == 0.5
        training.evaluate(0.6)
        assert copied_files(folder) == before  # the same variables; nothing else is left

    @pytest.mark.parametrize(
        ("damage", "expected"),
        [
            (lambda path: next(path.glob("kept-*/*.data-*")).write_bytes(b"x"), r"model.ckpt-20: damaged \(.*remove"),
            (lambda path: next(path.glob("kept-*/*.index")).unlink(), r"model.ckpt-20: damaged \(no file .index"),
            (
                lambda path: (path / BEST_CHECKPOINT_JSON).write_text("{}"),
                r"kept.json: does not name the best checkpoint .*Remove",
            ),
            (
                lambda path: (path / BEST_CHECKPOINT_JSON).write_text(
                    '{"metric": "a", "value": 1, "global_step": 1, "folder": "../../elsewhere"}'
                ),
                r"kept.json: does not name the best checkpoint .*Remove",
            ),
        ],
    )
    def test_a_damaged_one_is_an_error(self, late, late_estimator, tmp_path, damage, expected):
        training = Training(late, late_estimator, tmp_path)
        training.evaluate(0.5)
        damage(training.folder)
        with pytest.raises(MillraceError, match=expected):
            training.end()
        assert numbers(training.folder) == []

    def test_by_a_metric_that_is_undefined_none_is(self, late, late_estimator, tmp_path):
        training = Training(late, late_estimator, tmp_path)
        assert not training.evaluate(NAN)
        assert training.end() is None
        assert not training.folder.exists()

    def test_a_second_export_of_one_checkpoint_is_a_copy(self, late, late_estimator, tmp_path, monkeypatch):
        messages: list[str] = []
        training = Training(late, late_estimator, tmp_path, say=messages.append)
        training.evaluate(0.5)
        first = training.end()
        assert messages == ["exporting best", "checking the export on real records"]
        (second,) = (tmp_path / "export" / "final").iterdir()
        assert checksums(first) == checksums(str(second))
        assert read_notes(first) == read_notes(str(second))
        check_files(str(second), read_notes(str(second))[1])

    def test_an_export_of_another_checkpoint_is_a_copy_with_its_variables(
        self, people, people_estimator, tmp_path, monkeypatch
    ):
        last = people_estimator.latest_checkpoint()
        first = last.replace("-20", "-0")
        folder = str(tmp_path / "expected")
        expected = CheckedExport(people).write(people_estimator, export_path=folder, checkpoint_path=last)
        writer = CheckedExport(people)
        writer.write(people_estimator, export_path=str(tmp_path / "best"), checkpoint_path=first)
        monkeypatch.setattr(people_estimator, "export_saved_model", None)  # it is not called
        export = writer.write(people_estimator, export_path=str(tmp_path / "final"), checkpoint_path=last)
        check_files(export, read_notes(export)[1])
        of_graph = ("saved_model.pb", "assets.extra/millrace.json")  # no two builds are alike; the notes have checksums
        files = [checksums(path, exclude=of_graph) for path in (export, expected)]
        assert files[0] == files[1]  # the variables and the warm-up requests among them
        assert read_notes(export)[1].global_step == 20

    def test_an_export_describes_itself(self, people, people_export):
        schema, notes = read_notes(people_export)
        assert schema == people.schema
        assert (notes.dataset_run, notes.schema_fingerprint) == (people.run, people.schema.fingerprint)
        assert (notes.classes, notes.global_step) == (("<=50K", ">50K"), 20)
        assert notes.checked_records > 100


@pytest.mark.slow
class TestSkew:
    def test_an_export_that_differs_gets_no_number_and_is_not_the_best(
        self, late, late_estimator, random_estimator, tmp_path
    ):
        training = Training(late, random_estimator, tmp_path)
        training.evaluate(0.9)
        with pytest.raises(
            SkewError, match=r"record 0, '(logits|probabilities).*The export was rejected; inspect it in"
        ):
            training.end()
        folder = training.folder
        assert {p.name.split("-")[0] for p in folder.iterdir()} == {"rejected", "kept", BEST_CHECKPOINT_JSON}
        (folder / BEST_CHECKPOINT_JSON).unlink()
        (folder / "temp-1234" / "1700000000").mkdir(parents=True)  # as after a crash
        training = Training(late, late_estimator, tmp_path)
        training.evaluate(0.5)
        assert training.end()
        assert set(os.listdir(folder)) == {"best.json", str(numbers(folder)[0])}


def test_pruning_leaves_what_is_no_export(tmp_path):
    for name in ("1", "2", "10", "rejected", "best.json"):
        (tmp_path / name).mkdir()
    prune(str(tmp_path), keep=2)
    assert set(os.listdir(tmp_path)) == {"2", "10", "rejected", "best.json"}


def test_an_export_that_is_being_removed_has_no_number(tmp_path, monkeypatch):
    """As after a kill in the middle of it."""
    (tmp_path / "1" / "variables").mkdir(parents=True)
    (tmp_path / "2").mkdir()

    def killed(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(str(tmp_path), keep=1)
    assert numbers(tmp_path) == [2]
    assert len(list(tmp_path.glob("temp-*/variables"))) == 1


@pytest.mark.parametrize("export", ["people_export", "patterns_model"])
def test_tensorflow_serving_reads_them(export, request):
    fixture = request.getfixturevalue(export)
    export_dir = str(getattr(fixture, "export", fixture))
    assert FILE in read_notes(export_dir)[1].files
    records = tf.data.TFRecordDataset(f"{export_dir}/{FILE}").as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record).predict_log for record in records]
    requests = read_warmup(export_dir)
    assert len(next(iter(requests[0].inputs.values()))) == 1
    with ServedModel(export_dir) as model:
        for log, read in zip(logs, requests, strict=True):
            assert log.request.model_spec.signature_name == read.signature == "serving_default"
            inputs = {name: tf.make_ndarray(tensor) for name, tensor in log.request.inputs.items()}
            assert first_difference(read.inputs, inputs) is None
            answer = {name: tf.make_ndarray(tensor) for name, tensor in log.response.outputs.items()}
            assert first_difference(answer, model.predict(inputs)) is None


def test_large_records_are_fewer():
    inputs = {"image": np.array([b"x" * (MAX_BYTES // 3)] * 9, object)}
    sizes = [len(request.inputs["image"]) for request in recorded("s", inputs, {"error": np.array([b""] * 9, object)})]
    assert sizes == [1, 3]
    alone = {"image": np.array([b"x" * (MAX_BYTES + 1)] * 2, object)}
    assert [
        len(request.outputs["error"]) for request in recorded("s", alone, {"error": np.array([b""] * 2, object)})
    ] == [1]


def test_a_file_that_cannot_be_read_is_named(people_export, tmp_path):
    copy = tmp_path / "1"
    shutil.copytree(people_export, copy)
    path = Path(copy, FILE)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(MillraceError, match="tf_serving_warmup_requests: cannot be read"):
        read_warmup(str(copy))
    path.unlink()
    assert read_warmup(str(copy)) == []
