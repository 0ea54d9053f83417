"""What a training does where its options leave it open: by the data, or as recorded beside its checkpoint."""

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UsageError
from schemas.spec.features import CategoryLabel, Feature, Label, NumericLabel, Text
from trainer.loop.plan import as_recorded, ended_early, plan_training
from trainer.model_dir.model_json import EVALUATIONS, RecordedTraining, TrainedOn
from trainer.models import BUILT_IN
from trainer.spec.options import TrainingPlan, TrainOptions
from trainer.spec.task_spec import LabelScale

CLASSES, NUMBERS = CategoryLabel(name="y", kind="category"), NumericLabel(name="y", kind="numeric")


def table(rows: int, run: str = "r", label: Label = CLASSES, inputs: Sequence[Feature] = ()) -> Any:
    """As much of a dataset of rows as a plan is made of."""
    schema = SimpleNamespace(label=label, inputs=inputs)
    return SimpleNamespace(image_schema=None, schema=schema, rows=lambda split: rows, run=run)


def planned(rows: int, label: Label = CLASSES, **flags: Any) -> TrainingPlan:
    return plan_training(table(rows, label=label), TrainOptions(data_dir="d", model_dir="", **flags))


def sizes(plan: TrainingPlan) -> tuple[int, int, int, int]:
    return plan.batch_size, plan.max_steps, plan.save_checkpoints_steps, plan.early_stopping_steps


SMALL = ("learning_rate=0.001", "frequency_scale=0.1")
FEW_NUMBERS = ("learning_rate=0.002", "frequency_scale=2.0", "weight_decay=0.3")


class TestByTheData:
    @pytest.mark.parametrize(
        ("rows", "flags", "expected"),
        [
            (100, {}, (64, 300, 25, 100)),
            (50_000, {}, (512, 1_465, 123, 489)),
            (10_000_000, {}, (512, 20_000, 1_667, 6_667)),
            # what is given counts, and the rest follows from it
            (50_000, {"batch_size": 1_000}, (1_000, 750, 63, 250)),
            (50_000, {"max_steps": 120}, (512, 120, 10, 40)),
            (50_000, {"epochs": 2.0}, (512, 196, 17, 66)),
            (50_000, {"max_steps": 1_000_000}, (512, 1_000_000, 10_000, 333_334)),
            (50_000, {"save_checkpoints_steps": 1_000}, (512, 1_465, 1_000, 1_000)),
        ],
    )
    def test_sizes(self, rows, flags, expected):
        assert sizes(planned(rows, **flags)) == expected

    @given(st.integers(1, 10**9))
    def test_a_dozen_evaluations_of_fifteen_epochs(self, rows):
        plan = planned(rows)
        assert 300 <= plan.max_steps <= 20_000
        if 300 < plan.max_steps < 20_000:
            assert math.isclose(plan.max_steps * plan.batch_size, 15 * rows, abs_tol=plan.batch_size)
        assert 11 <= plan.max_steps / plan.save_checkpoints_steps <= 12
        assert plan.batch_size == 64 or rows / plan.batch_size >= 50
        assert plan.save_checkpoints_steps <= plan.early_stopping_steps < plan.max_steps

    def test_the_model_is_of_the_data(self, wages, stripes, patterns):
        options = TrainOptions(data_dir="d", model_dir="")
        models = [plan_training(dataset, options).model for dataset in (wages, stripes, patterns)]
        assert models == ["tabular", "convnet", "face_pairs"]

    def test_pairs_are_few_an_epoch_of_which_there_are_more(self):
        images = SimpleNamespace(image_schema=SimpleNamespace(pairs=True), rows=lambda split: 1_106, run="r")
        plan = plan_training(cast(Any, images), TrainOptions(data_dir="d", model_dir=""))
        assert (plan.model, plan.max_steps, plan.batch_size, plan.best_metric) == ("face_pairs", 692, 64, "auc")

    @pytest.mark.parametrize(("rows", "model"), [(999, "convnet"), (1_000, "squeezenext")])
    def test_few_images_have_a_model_of_their_own(self, rows, model):
        images = SimpleNamespace(image_schema=SimpleNamespace(pairs=False), rows=lambda split: rows, run="r")
        plan = plan_training(cast(Any, images), TrainOptions(data_dir="d", model_dir=""))
        assert plan.model == model

    def test_is_told_in_a_line(self):
        summary = "tabular, 1,465 steps of 512 examples (15 epochs of 50,000), evaluated every 123 steps, "
        assert planned(50_000).chosen.startswith(summary)

    @pytest.mark.parametrize(
        ("rows", "label", "flags", "expected"),
        [
            (639, CLASSES, {}, {"max_steps": 300, "hparams": SMALL}),
            (640, CLASSES, {}, {"max_steps": 300, "hparams": ()}),
            (640, NUMBERS, {}, {"max_steps": 450, "hparams": FEW_NUMBERS}),
            (12_799, NUMBERS, {}, {"max_steps": 4_500, "hparams": FEW_NUMBERS}),
            (12_800, NUMBERS, {}, {"max_steps": 750, "hparams": ()}),
            (9_999, CLASSES, {}, {"hparams": ()}),
            (10_000, CLASSES, {}, {"hparams": ("frequency_scale=1.0",)}),
            # what is given counts
            (639, CLASSES, {"model": "dnn"}, {"max_steps": 300, "hparams": ()}),
            (4_000, NUMBERS, {"epochs": 10.0}, {"max_steps": 625, "hparams": FEW_NUMBERS}),
            (
                639,
                CLASSES,
                {"hparams": ("members=4 learning_rate=1",)},
                {"hparams": (SMALL[1], "members=4 learning_rate=1")},
            ),
        ],
    )
    def test_tabular_trains_at_some_sizes_by_another_pace(self, rows, label, flags, expected):
        plan = planned(rows, label, **flags)
        assert {name: getattr(plan, name) for name in expected} == expected
        assert ("; for fewer than " in plan.chosen) == any(name in plan.hparams for name in (*SMALL, *FEW_NUMBERS))

    def test_n_grams_of_few_rows_are_learned_at_the_usual_rate(self):
        text = Text(name="note", kind="text", ngrams=(1, 2))
        options = TrainOptions(data_dir="d", model_dir="")
        assert plan_training(table(100, inputs=[text]), options).hparams == ()
        assert plan_training(table(100, inputs=[Text(name="note", kind="text")]), options).hparams == SMALL

    def test_epochs_and_steps_exclude_each_other(self):
        with pytest.raises(UsageError, match="--epochs 3 and --max_steps 5: give one of them"):
            planned(10, epochs=3.0, max_steps=5)

    @pytest.mark.parametrize("flags", [{"epochs": 1e308}, {"max_steps": 10**400}])
    def test_steps_that_no_training_counts_are_refused(self, flags):
        (name,) = flags
        with pytest.raises(UsageError, match=rf"--{name} 1[e+0-9.]*: is more than 9,007,199,254,740,992 steps; "):
            planned(10**7, **flags)
        assert planned(10**7, max_steps=2**53).max_steps == 2**53


SCALE = LabelScale(transform="z_score", mean=3.0, deviation=2.0)


def recorded(folder: Path, plan: TrainingPlan, *, step: int = 60) -> str:
    """A model directory with a checkpoint of this step, of a training with this plan."""
    hparams: dict[str, dict[str, Any]] = {
        "dnn": {**dataclasses.asdict(BUILT_IN["dnn"].hparams()), "dropout": 0.5},
        "backbone": {"path": str(folder / "net.keras"), "pixels": "0..1"},
    }
    entry = RecordedTraining(
        started="",
        model=plan.model,
        hparams=hparams.get(plan.model, {}),
        augment={},
        data=TrainedOn(path="d", name="t", run="r", schema_fingerprint="f"),
        versions={},
        plan=as_recorded(plan),
    ).model_dump()
    manifest: dict[str, Any] = {"format_version": 1, "current": entry}
    (folder / "model.json").write_text(json.dumps(manifest))
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-{step}"\n')
    return str(folder)


class TestResumed:
    def resumed(self, model_dir: str, **flags: Any) -> TrainingPlan:
        return plan_training(table(50_000), TrainOptions(data_dir="d", model_dir=model_dir, **flags))

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            ({}, (128, 900, 75, 300)),
            ({"batch_size": 64}, (64, 900, 75, 300)),
            ({"max_steps": 2_000}, (128, 2_000, 75, 667)),
            ({"save_checkpoints_steps": 500}, (128, 900, 500, 500)),
            ({"early_stopping_steps": 30}, (128, 900, 30, 30)),
            ({"early_stopping_steps": 0}, (128, 900, 75, 0)),
        ],
    )
    def test_as_before_but_for_what_is_given(self, tmp_path, flags, expected):
        before = planned(1, model="dnn", batch_size=128, max_steps=900, best_metric="auc")
        model_dir = recorded(tmp_path, dataclasses.replace(before, label=SCALE))
        plan = self.resumed(model_dir, **flags)
        assert sizes(plan) == expected
        assert (plan.model, plan.best_metric, plan.label) == ("dnn", "auc", SCALE)

    @pytest.mark.parametrize(
        ("step", "flags", "state"),
        [
            (300, {}, "dnn, 900 steps of 128 examples {}: m resumes at step 300"),
            (300, {"batch_size": 64}, "dnn, {}: m resumes at step 300, with batch_size 64 (was 128)"),
            (
                300,
                {"max_steps": 1_200},
                "dnn, 1,200 {} at step 300, with max_steps 1200 (was 900), early_stopping_steps 400 (was 300)",
            ),
            (300, {"model": "linear"}, "linear, 900 steps {}: m holds a dnn model"),
            (375, {}, "{}: m ended at step 375 with no better evaluation for 300 steps, so nothing is left to train"),
            (375, {"early_stopping_steps": 0}, "{}: m resumes at step 375, with early_stopping_steps 0 (was 300)"),
            (
                375,
                {"max_steps": 300},
                "{}m is at step 375, so nothing is left to train, with max_steps 300 (was 900)",
            ),
            (900, {}, "{}: m is at step 900, so nothing is left to train"),
        ],
    )
    def test_its_state_is_told_in_a_line(self, tmp_path, monkeypatch, step, flags, state):
        monkeypatch.chdir(tmp_path)
        Path("m").mkdir()
        recorded(Path("m"), planned(1, model="dnn", batch_size=128, max_steps=900), step=step)
        evaluations = [{"loss": 1.0, "auc": 0.5, "global_step": at} for at in range(75, min(step, 375) + 1, 75)]
        Path("m", EVALUATIONS).write_text(json.dumps(evaluations))
        begins, _, ends = state.partition("{}")
        chosen = self.resumed("m", **flags).chosen
        assert (chosen.startswith(begins), chosen.endswith(ends)) == (True, True), chosen

    def test_another_metric_would_choose_another_best_export(self, tmp_path):
        model_dir = recorded(tmp_path, planned(1, model="dnn", max_steps=900, best_metric="auc"))
        message = f"--best_metric accuracy: the best checkpoint of {model_dir} is chosen by auc; leave it out, or use"
        with pytest.raises(UsageError, match=message):
            self.resumed(model_dir, best_metric="accuracy")

    def test_of_trees_that_were_grown_the_exports_are_left(self, tmp_path):
        model_dir = recorded(tmp_path, planned(1, model="boosted_trees"))
        assert self.resumed(model_dir).chosen == (
            "boosted_trees, up to 1,000 rounds, stopping after 50 without improvement on eval: those of "
            f"{model_dir} are grown, and are evaluated and exported"
        )
        assert self.resumed(model_dir, model="linear").chosen.endswith(f": {model_dir} holds a boosted_trees model")
        (tmp_path / "export" / "final" / "1").mkdir(parents=True)
        with pytest.raises(UsageError, match="holds a finished training, and boosted trees are not grown further"):
            self.resumed(model_dir)
        assert self.resumed(model_dir, model="linear").chosen.endswith(f": {model_dir} holds a boosted_trees model")

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            ({}, 30),  # as if it had not been interrupted
            ({"max_steps": 901}, 500),
            ({"early_stopping_steps": 400}, 500),
            ({"early_stopping_steps": 0}, 500),  # for ever
            ({"max_steps": 600}, 30),  # less of either has ended by then, or ends earlier
            ({"early_stopping_steps": 100}, 30),
        ],
    )
    def test_patience_begins_anew_where_it_is_made_longer(self, tmp_path, flags, expected):
        before = planned(1, model="dnn", batch_size=128, max_steps=900)
        model_dir = recorded(tmp_path, dataclasses.replace(before, patience_from=30))
        evaluations = [{"loss": 1.0, "global_step": step} for step in (250, 500)]
        (tmp_path / EVALUATIONS).write_text(json.dumps(evaluations))
        plan = self.resumed(model_dir, **flags)
        assert plan.patience_from == expected
        recorded(tmp_path, plan)
        (tmp_path / EVALUATIONS).write_text(json.dumps([*evaluations, {"loss": 1.0, "global_step": 750}]))
        assert self.resumed(model_dir, **flags).patience_from == expected  # and not once more

    @pytest.mark.parametrize(
        ("losses", "patience", "since", "step", "ends"),
        [
            ([1, 0, 1, 1], 100, 0, 200, True),
            ([1, 0, 1, 1], 101, 0, 200, False),
            ([1, 0, 1, 1], 100, 0, 199, False),  # of checkpoints that it has lost
            ([1, 0, 1, 1], 100, 101, 200, False),
            ([1, 0, 1, 1, 1], 100, 150, 250, True),
            ([], 1, 0, 200, False),
        ],
    )
    def test_a_training_that_resumes_ends_where_it_would_have_ended(
        self, tmp_path, losses, patience, since, step, ends
    ):
        plan = dataclasses.replace(
            planned(1, max_steps=900, early_stopping_steps=patience), model_dir=str(tmp_path), patience_from=since
        )
        evaluations = [{"loss": float(loss), "global_step": 50 * (i + 1)} for i, loss in enumerate(losses)]
        (tmp_path / EVALUATIONS).write_text(json.dumps(evaluations))
        assert (ended_early(plan, step) is not None) == ends

    def test_hyper_parameters_stay_but_for_those_given(self, tmp_path):
        model_dir = recorded(tmp_path, planned(1, model="dnn"))
        hparams = self.resumed(model_dir, hparams=("dropout=0.1 squash=0",)).hparams
        assert {"dropout=0.1 squash=0", "hidden_units=256,256,128"} <= set(hparams)
        assert not any(setting.startswith(("dropout=0.5", "squash=3")) for setting in hparams)
