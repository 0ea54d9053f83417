"""Boosted trees by the command: from CSV to served predictions, and what is refused."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pytest
import tensorflow as tf

from millrace import promote
from millrace.submit.training import read_training
from millrace.tune.command import COMMAND, trial_command
from millrace.tune.command import main as tune
from schemas.dataset import OpenDataset
from schemas.dataset.records import classes_of
from schemas.errors import UsageError
from schemas.exports.model import EXAMPLES, EXAMPLES_INPUT, ServedModel
from tests.support.csv_datasets import NUMBERS
from tests.support.datasets import written_rows
from tests.support.training import TrainedModel
from trainer import evaluate, task, verify
from trainer.data.input_fn import stored_spec
from trainer.evaluation.metrics import metric_names
from trainer.export.skew_check import read_parity_records
from trainer.loop import boosting
from trainer.loop.early_stopping import read_ended
from trainer.model_dir.model_json import read_evaluations, read_model_manifest, read_rounds
from trainer.models.boosted_trees import Columns
from trainer.spec.task_spec import read_table_task_spec

DIRS = ["--data_dir", "d", "--model_dir", "m", "--model", "boosted_trees"]

SHIFTS = """\
name: shifts
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: hours, kind: numeric, missing: mean, indicator: true}
  - {name: place, kind: category}
  - {name: w, kind: weight}
label: {name: shift, kind: category, values: [early, late, night]}
split: {by: row, train: 0.6, eval: 0.2, test: 0.2}
"""
SHIFT_HEADER = "hours,place,w,shift"


def shift_row(i: int) -> str:
    """Whose hours and place say the shift, but for one in ten."""
    shift = i % 3 if i % 10 else (i // 10) % 3
    return f"{'' if i % 17 == 0 else (i % 3) + (i % 7) / 10},{'abcd'[i % 4]},1,{['early', 'late', 'night'][shift]}"


@pytest.fixture(scope="module")
def shifts(share_dataset) -> OpenDataset:
    """Three classes, with missing numbers."""
    rows = [*map(shift_row, range(900))]
    return share_dataset("shifts", lambda folder: written_rows(folder, SHIFTS, SHIFT_HEADER, rows))


def run(dataset: OpenDataset, folder: Path, *argv: str) -> int:
    fixed = ["--data_dir", dataset.path, "--model_dir", str(folder), "--model", "boosted_trees", "--no_report"]
    return task.main([*fixed, *argv])


def export_of(folder: Path) -> str:
    return str(TrainedModel(folder).export)


@pytest.fixture(scope="module")
def model_dir(people, tmp_path_factory) -> Path:
    """Trees of two classes, on every kind of feature, with test metrics and a report; not to be changed."""
    folder = tmp_path_factory.mktemp("trees") / "model"
    fixed = ["--data_dir", people.path, "--model_dir", str(folder), "--model", "boosted_trees"]
    assert task.main([*fixed, "--evaluate_test", "--seed", "1"]) == 0
    return folder


class Spied:
    """The model that LightGBM has trained."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.booster: Any = None
        train = lightgbm.train

        def keep(*args: Any, **kwargs: Any) -> Any:
            self.booster = train(*args, **kwargs)
            return self.booster

        monkeypatch.setattr(lightgbm, "train", keep)


@pytest.mark.slow
class TestTraining:
    @pytest.mark.parametrize("data", ["people", "wages", "shifts"])
    def test_raw_rows_get_the_scores_of_lightgbm(self, request, data, tmp_path, monkeypatch):
        """Through the transform, the checkpoint and the export: two classes, a number, three classes."""
        dataset, spied = request.getfixturevalue(data), Spied(monkeypatch)
        assert run(dataset, tmp_path / "model") == 0
        (evaluation,) = read_evaluations(str(tmp_path / "model"))
        classes = classes_of(dataset.path, dataset.manifest, dataset.declared)
        assert {*metric_names(classes), "global_step"} == evaluation.keys()
        losses = read_rounds(str(tmp_path / "model"))["eval"]  # LightGBM's own, in the label's units
        assert losses[int(evaluation["global_step"]) - 1] == pytest.approx(evaluation["average_loss"], rel=1e-4)
        task_spec = read_table_task_spec(dataset)
        columns = Columns.of(task_spec.inputs, 64)
        records = read_parity_records(dataset)
        table = columns.table(tf.io.parse_example(records.transformed, stored_spec(dataset))).numpy()
        raw = spied.booster.predict(table, num_iteration=spied.booster.best_iteration)
        with ServedModel(export_of(tmp_path / "model"), checked=True) as served:
            answer = served.predict({EXAMPLES_INPUT: list(records.raw)}, signature=EXAMPLES)
        assert set(answer["error"]) == {b""}
        if data == "wages":
            manifest = read_model_manifest(str(tmp_path / "model"))
            assert manifest is not None
            scale = manifest.current.plan.label
            np.testing.assert_allclose(answer["value"], scale.mean + scale.deviation * raw, rtol=1e-6)
        else:
            expected = np.stack([1 - raw, raw], axis=1) if raw.ndim == 1 else raw
            np.testing.assert_allclose(answer["probabilities"], expected, rtol=0, atol=1e-6)
            assert (answer["class_id"] == expected.argmax(axis=1)).all()
            assert len(set(answer["class_id"])) == expected.shape[1]

    def test_the_loss_of_a_logarithm_is_called_that(self, tmp_path):
        schema = NUMBERS.replace("name: y, kind: numeric", "name: y, kind: numeric, transform: log1p")
        dataset = written_rows(tmp_path / "data", schema, "x,y", (f"{i},{i % 9}" for i in range(100)))
        folder = tmp_path / "model"
        argv = ["--data_dir", dataset.path, "--model_dir", str(folder), "--model", "boosted_trees"]
        assert task.main([*argv, "--hparams", "num_iterations=3"]) == 0
        assert "logarithm on eval, by round" in (folder / "report-eval.html").read_text()

    def test_it_keeps_the_best_rounds(self, model_dir):
        (evaluation,) = read_evaluations(str(model_dir))
        ended = read_ended(str(model_dir))
        assert ended is not None
        assert ended["reason"] == "no better evaluation for 50 rounds"
        assert [path.name for path in model_dir.glob("model.ckpt-*.index")] == [
            f"model.ckpt-{evaluation['global_step']}.index"
        ]
        assert evaluation["average_loss"] < np.log(2)
        metrics = json.loads((model_dir / "metrics-test.json").read_text())["metrics"]
        assert (metrics["global_step"], metrics["accuracy"] > 0.8) == (evaluation["global_step"], True)

    def test_its_report_shows_the_losses_after_each_round(self, model_dir):
        (evaluation,) = read_evaluations(str(model_dir))
        best = int(evaluation["global_step"])
        (panel,) = json.loads((model_dir / "report-eval.json").read_text())["learning_curves"]["panels"]
        assert panel["steps"] == [*range(1, best + 51)]
        assert panel["best"] == best == 1 + panel["values"].index(min(panel["values"]))
        assert len(panel["train"]) == len(panel["steps"])
        assert panel["train"] == sorted(panel["train"], reverse=True)
        assert "loss on eval, by round" in (model_dir / "report-eval.html").read_text()
        assert json.loads((model_dir / "report-test.json").read_text())["learning_curves"]["panels"] == []

    def test_the_rounds_are_as_asked(self, shifts, tmp_path, capsys):
        hparams = ["num_iterations=7", "early_stopping_round=0", "num_leaves=4"]
        assert run(shifts, tmp_path / "model", "--hparams", *hparams) == 0
        err = capsys.readouterr().err
        assert "ended    num_iterations=7 reached\ntrained  7 rounds of boosting in " in err
        assert "step 7 (epoch 7.0): eval average_loss" in err

    def test_equal_trainings_grow_equal_trees(self, shifts, tmp_path):
        for name in ("one", "other"):
            assert run(shifts, tmp_path / name, "--hparams", "bagging_fraction=0.5") == 0
        first, second = (next((tmp_path / name).glob("*.data-*")).read_bytes() for name in ("one", "other"))
        assert first == second

    def test_rows_are_weighed(self, tmp_path):
        """Where features say nothing, the probabilities are the classes' shares of the weight."""
        rows = [f"{i % 7},a,{5 if i % 3 == 2 else 1},{['early', 'late', 'night'][i % 3]}" for i in range(600)]
        weighed = written_rows(tmp_path, SHIFTS, SHIFT_HEADER, rows)
        assert run(weighed, tmp_path / "model", "--hparams", "num_leaves=2", "num_iterations=2") == 0
        with ServedModel(export_of(tmp_path / "model"), checked=True) as served:
            answer = served.predict({EXAMPLES_INPUT: list(read_parity_records(weighed).raw[:1])}, signature=EXAMPLES)
        np.testing.assert_allclose(answer["probabilities"], [[1 / 7, 1 / 7, 5 / 7]], atol=0.06)

    def test_classes_are_weighed_where_growing_ends_too(self, tmp_path):
        """And where it begins: features that say nothing of the shift leave the classes alike."""
        schema = SHIFTS.replace("name: shift, kind: category", "name: shift, kind: category, class_weights: balanced")
        rows = [f"{i % 7},a,1,{'night' if i % 10 == 0 else 'late' if i % 10 < 4 else 'early'}" for i in range(900)]
        weighed, folder = written_rows(tmp_path, schema, SHIFT_HEADER, rows), tmp_path / "model"
        assert run(weighed, folder) == 0
        (evaluation,) = read_evaluations(str(folder))
        losses = read_rounds(str(folder))["eval"]
        assert losses[int(evaluation["global_step"]) - 1] == pytest.approx(evaluation["balanced_loss"], rel=1e-4)
        assert evaluation["balanced_loss"] == pytest.approx(np.log(3), rel=0.15)
        assert json.loads((folder / "export" / "best" / "best.json").read_text())["metric"] == "balanced_loss"
        assert evaluate.main(["--data_dir", weighed.path, "--model_dir", str(folder)]) == 0
        metrics = json.loads((folder / "report-eval.json").read_text())["metrics"]
        assert metrics["balanced_log_loss"] == pytest.approx(evaluation["balanced_loss"], rel=1e-6)

    def test_it_is_verified_evaluated_and_promoted_without_lightgbm(self, people, model_dir, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "lightgbm", None)
        export, data = export_of(model_dir), ["--data_dir", people.path]
        assert verify.main([*data, "--saved_model", export, "--model_dir", str(model_dir)]) == 0
        assert evaluate.main([*data, "--model_dir", str(model_dir), "--output", str(tmp_path / "report")]) == 0
        report = json.loads((tmp_path / "report" / "report-eval.json").read_text())
        assert [point["epoch"] for point in report["learning_curves"]["evaluations"]] == [report["step"]]
        serving = str(tmp_path / "serving")
        assert promote.main(["--from", export, "--to", serving, "--data_dir", people.path, "--quiet"]) == 0

    def test_it_is_not_grown_further(self, people, model_dir, capsys):
        before = {path: path.read_bytes() for path in model_dir.glob("model*")}
        assert run(people, model_dir) == 2
        assert "holds a finished training, and boosted trees are not grown further; use another" in (
            capsys.readouterr().err
        )
        assert {path: path.read_bytes() for path in model_dir.glob("model*")} == before

    def test_one_that_was_killed_before_its_exports_is_completed(self, people, model_dir, tmp_path, capsys):
        shutil.copytree(model_dir, tmp_path / "model")
        shutil.rmtree(tmp_path / "model" / "export")
        (tmp_path / "model" / "evaluations.json").unlink()
        assert run(people, tmp_path / "model", "--seed", "1") == 0
        assert "ended    the trees were grown before" in capsys.readouterr().err
        assert read_evaluations(str(tmp_path / "model")) == read_evaluations(str(model_dir))
        assert Path(export_of(tmp_path / "model"), "saved_model.pb").exists()

    def test_too_little_memory_is_said_before_anything_is_read(self, people, tmp_path, capsys, monkeypatch):
        monkeypatch.setattr(boosting, "available_memory", lambda: 50_000)
        assert run(people, tmp_path / "model") == 1
        err = capsys.readouterr().err
        rows = people.rows("train") + people.rows("eval")
        assert f"boosted_trees reads train and eval into memory, {rows} rows of " in err
        assert "MB, and 0.05 MB are available" in err
        assert not list(tmp_path.glob("model/model.ckpt*"))

    def test_a_library_that_it_needs_is_named(self, people, tmp_path, capsys, monkeypatch):
        class Broken:
            def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
                if name == "lightgbm":
                    raise OSError("libgomp.so.1: cannot open shared object file")

        monkeypatch.delitem(sys.modules, "lightgbm")
        monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
        monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
        assert run(people, tmp_path / "model") == 2
        assert "install the library that is missing (libgomp.so.1: apt-get install libgomp1)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cells", "cores", "threads"),
    [(19_999_999, 8, 1), (20_000_000, 8, 2), (10**9, 8, 8)],
)
def test_threads_are_for_large_tables(cells, cores, threads):
    assert boosting.threads_for(cells, cores) == threads


@pytest.mark.parametrize(
    "flags",
    [
        ["--strategy", "mirrored"],
        ["--max_steps", "100"],
        ["--mixed_precision"],
    ],
)
def test_flags_of_steps_are_refused(flags, capsys):
    assert task.main([*DIRS, *flags]) == 2
    assert f"{' '.join(flags)}: is for models that train in steps" in capsys.readouterr().err


def test_a_cluster_is_refused(monkeypatch, capsys):
    cluster = {"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))
    assert task.main(DIRS) == 2
    assert "TF_CONFIG: names a cluster, but boosted_trees is grown in one process" in capsys.readouterr().err


def test_studies_and_submissions_refuse_what_a_training_would(tmp_path):
    """Before anything is trained or staged."""
    study_flags = ["--study", str(tmp_path / "study"), "--space", "batch_size=categorical:64:128"]
    with pytest.raises(UsageError, match="--space batch_size: a trial with 64 would end with: --batch_size 64: is for"):
        trial_command(COMMAND.parse([*DIRS[:2], *DIRS[4:], *study_flags]))
    with pytest.raises(UsageError, match="--max_steps 9: is for models that train in steps"):
        read_training(["train", *DIRS, "--max_steps", "9"], "millrace submit vertex", {})
    with pytest.raises(UsageError, match="--best_metric auc: is for models that train in steps"):
        read_training(["train", *DIRS, "--best_metric", "auc"], "millrace submit vertex", {})


def test_a_study_refuses_a_metric_that_no_evaluation_has(late, tmp_path, capsys):
    study = tmp_path / "study"
    argv = ["--data_dir", late.path, *DIRS[4:], "--study", str(study), "--space", "num_leaves=categorical:7:31"]
    assert tune([*argv, "--best_metric", "acuracy"]) == 2
    message = (
        "no metric 'acuracy' to select the best model by; did you mean accuracy? it has accuracy, accuracy_baseline"
    )
    assert message in capsys.readouterr().err
    assert not study.exists()
