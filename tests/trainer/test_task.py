"""The command: what it refuses at once, how hyper-parameters are typed, what it leaves behind, and how it goes on."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from schemas import display
from schemas.errors import UsageError
from schemas.storage import folders
from tests.support.commands import assert_light
from tests.support.datasets import Folder, written, written_rows
from tests.support.training import run
from trainer import evaluate, task
from trainer.loop.early_stopping import StopWithChief, mark_ended, read_ended
from trainer.loop.evaluations import Trained
from trainer.loop.plan import plan_training, steps_without_improvement
from trainer.model_dir.model_json import (
    read_evaluations,
)
from trainer.models import BUILT_IN
from trainer.spec.hparams import describe_hparams, parse_hparams
from trainer.spec.options import TrainOptions
from trainer.task import summary

DATA = "$DATA"  # stands for the path of a dataset
DIRS = ["--data_dir", "d", "--model_dir", "m"]
OWN = "tests.support.own_models"


def numbered(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.name.isdecimal())


def latest_step(model_dir: Path) -> int:
    return max(int(path.stem.partition("-")[2]) for path in model_dir.glob("model.ckpt-*.index"))


class TestAnswersAtOnce:
    """TensorFlow is not imported for these."""

    @pytest.mark.parametrize(
        ("argv", "code", "message"),
        [
            ([], 2, "required: --data_dir, --model_dir"),
            (
                [*DIRS, "--model", "dnn", "--hparams", "depth=3"],
                2,
                "model 'dnn' has no hyper-parameter 'depth'. It has: hidden_units=256",
            ),
            (
                ["--data_dir", DATA, "--model_dir", "m", "--hparams", "hidden_units=512,256 dropout=0.1"],
                2,
                "model 'tabular' has no hyper-parameter 'hidden_units'. It has: members=8",
            ),
            (
                [*DIRS, "--model", "cnn"],
                2,
                "--model cnn: unknown model; choose from linear, dnn, tabular, wide_deep, softmax",
            ),
            ([*DIRS, "--max_steps", "0"], 2, "--max_steps 0: must be 1 or more"),
            (
                ["--data_dir", "d", "--model_dir", "s3://b/m"],
                2,
                "s3://b/m: Amazon S3 is not supported; use a local path or gs://",
            ),
            (DIRS, 2, "d: no manifest.json"),
            (["--data_dir", DATA, "--model_dir", __file__], 2, "test_task.py: is not a folder; use a folder"),
            (["--data_dir", DATA, "--model_dir", DATA], 2, f"--model_dir {DATA}: holds a dataset"),
            (
                ["--data_dir", DATA, "--model_dir", "m", "--model", "squeezenext"],
                2,
                "'squeezenext' reads images; for rows",
            ),
            (["--data_dir", DATA, "--model_dir", "m", "--slice_by", "no"], 2, "--slice_by no: no feature 'no'"),
            (["--data_dir", DATA, "--model_dir", "m", "--augment", "flip=true"], 2, "--augment is for images"),
        ],
    )
    def test_without_a_heavy_import(self, late, argv, code, message):
        argv = [word.replace(DATA, late.path) for word in argv]
        assert_light("trainer.task", argv, code=code, message=message.replace(DATA, late.path))

    def test_vertex_ai_may_say_where_the_model_goes(self, monkeypatch):
        monkeypatch.setenv("AIP_MODEL_DIR", "gs://b/out/model/")
        assert task.parse_options(["--data_dir", "d"]).model_dir == "gs://b/out/model/"
        assert task.parse_options(DIRS).model_dir == "m"

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["--num_gpus", "2"], "--num_gpus 2: --strategy none trains on one device; use --strategy mirrored"),
            (["--shuffle_buffer", "-1"], "--shuffle_buffer -1: must be 0 or more"),
            (["--intra_op_threads", "-2"], "--intra_op_threads -2: must be 1 or more"),
            (["--early_stopping_steps", "10"], "must be at least --save_checkpoints_steps 20"),
            (["--hparams", "learning_rate"], "'learning_rate': expected key=value"),
            (["--augment", "flip=false"], "--augment is for images"),
        ],
    )
    def test_refuses(self, late, tmp_path, capsys, argv, message):
        assert run(late, tmp_path / "model", *argv) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "model").exists()


@pytest.fixture(scope="module")
def model_dir(late, tmp_path_factory) -> Path:
    """40 steps of `softmax`; not to be changed."""
    folder = tmp_path_factory.mktemp("task") / "model"
    assert run(late, folder, "--evaluate_test") == 0
    return folder


@pytest.mark.slow
class TestTraining:
    def test_model_json_describes_the_model(self, late, model_dir):
        manifest = json.loads((model_dir / "model.json").read_text())
        assert manifest["format_version"] == 1
        assert manifest["current"]["model"] == "softmax"
        hparams = {"learning_rate": 0.001, "indicator_limit": 64, "embedding_size": 0}
        assert manifest["current"]["hparams"] == hparams
        assert manifest["current"]["data"]["run"] == late.run
        assert manifest["current"]["versions"]["tensorflow-estimator"] == "2.15.0"

    @pytest.mark.parametrize("split", ["eval", "test"])
    def test_metrics(self, late, model_dir, split):
        metrics = json.loads((model_dir / f"metrics-{split}.json").read_text())
        assert (metrics["split"], metrics["rows"], metrics["data_run"]) == (split, late.rows(split), late.run)
        assert metrics["metrics"]["global_step"] in (20, 40)  # of the best export
        assert 0 <= metrics["metrics"]["accuracy"] <= 1

    def test_each_checkpoint_is_evaluated(self, model_dir):
        assert [e["global_step"] for e in read_evaluations(str(model_dir))] == [20, 40]
        ended = read_ended(str(model_dir))
        assert ended is not None
        assert ended["reason"] == "all 40 steps are done"

    def test_a_metric_that_there_is_not_is_not_recorded(self, late, tmp_path, capsys):
        assert run(late, tmp_path / "model", "--best_metric", "acuracy") == 2
        assert "no metric 'acuracy' to select the best model by; did you mean accuracy?" in capsys.readouterr().err
        assert not (tmp_path / "model").exists()

    def test_exports_and_summaries(self, model_dir):
        assert len(numbered(model_dir / "export" / "best")) >= 1
        assert len(numbered(model_dir / "export" / "final")) == 1
        assert list(model_dir.glob("events.out.tfevents.*"))
        assert not [path.name for path in model_dir.iterdir() if path.suffix in (".pbtxt", ".meta")]
        assert list((model_dir / "eval").glob("events.out.tfevents.*"))
        assert not list(model_dir.glob("report*"))  # with --no_report

    def test_progress_says_how_good_the_model_is_and_how_long_the_rest_takes(self, late, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(display, "LOG_SECS", 0.0)
        assert run(late, tmp_path / "model") == 0
        line = r"step 3[0-9] of 40 .*, loss [0-9.]+, eval accuracy [0-9.]+, at most [0-9]+ s left\n"
        assert re.search(line, capsys.readouterr().err)

    def test_resumes_where_it_stopped(self, late, model_dir, tmp_path, capsys):
        shutil.copytree(model_dir, tmp_path / "model")
        assert run(late, tmp_path / "model", steps=60) == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["eval"]["global_step"] in (20, 40, 60)  # of the best export
        assert "trained  20 steps in " in err
        assert "\nreport " not in err
        assert [e["global_step"] for e in read_evaluations(str(tmp_path / "model"))] == [20, 40, 60]

    def test_one_that_is_running_is_left_alone(self, late, model_dir, capsys):
        before = {path: path.read_bytes() for path in model_dir.rglob("*") if path.is_file()}
        with folders.locked(str(model_dir)):
            assert run(late, model_dir, steps=60) == 1
        message = "another training is writing to it. Wait until it has ended, or use another --model_dir."
        assert f"error: {model_dir}: {message}\n" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in model_dir.rglob("*") if path.is_file()} == before

    def test_nothing_left_to_train(self, late, model_dir, tmp_path, capsys):
        shutil.copytree(model_dir, tmp_path / "model")
        assert run(late, tmp_path / "model") == 0
        out, err = capsys.readouterr()
        assert "trained  nothing: the model is at step 40; raise --max_steps to continue" in err
        assert json.loads(out)["eval"] == json.loads((model_dir / "metrics-eval.json").read_text())["metrics"]

    @pytest.mark.parametrize(
        ("argv", "model", "data", "message"),
        [
            (["--hparams", "learning_rate=0.5"], "softmax", "late", "its learning_rate is 0.001, not 0.5"),
            ([], "linear", "late", "its model is 'softmax', not 'linear'"),
            ([], "softmax", "wages", "it was trained on run "),
        ],
    )
    def test_another_training_is_refused(self, request, model_dir, capsys, argv, model, data, message):
        before = {path: path.read_bytes() for path in model_dir.rglob("*") if path.is_file()}
        assert run(request.getfixturevalue(data), model_dir, *argv, model=model) == 2
        err = capsys.readouterr().err
        assert f"error: {model_dir}: contains a model of another training: {message}" in err
        assert f"Use another --model_dir; --warm_start_from {model_dir} begins there with the weights that fit." in err
        assert {path: path.read_bytes() for path in model_dir.rglob("*") if path.is_file()} == before


WEIGHTS = """\
name: weights
format: csv
features:
  - {name: age, kind: numeric}
  - {name: w, kind: weight}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: file, train: train.csv, eval: eval.csv}
"""


def test_a_split_whose_weights_are_all_0_is_refused(tmp_path, capsys):
    for split, weight in (("train", 1), ("eval", 0)):
        rows = [f"{20 + i},{weight},{['no', 'yes'][i % 2]}" for i in range(20)]
        Folder(tmp_path).write(f"{split}.csv", ["age,w,late", *rows])
    dataset = written(tmp_path, WEIGHTS, f"{tmp_path}/*.csv")
    assert run(dataset, tmp_path / "model") == 2
    message = "the weight 'w' is 0 in all 20 records of split 'eval', so that none of them counts; correct the weights"
    assert f"error: {dataset.path}: {message}" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()


CLASSES = """\
name: classes
format: csv
features:
  - {name: id, kind: key}
  - {name: work, kind: category}
label: {name: late, kind: category}
split: {by: row, train: 0.6, eval: 0.2, test: 0.2}
"""


@pytest.fixture(scope="module")
def few_words(share_dataset):
    rows = [f"{i},{'abc'[i % 3]},{['no', 'yes'][i % 2]}" for i in range(90)]
    return share_dataset("few_words", lambda folder: written_rows(folder, CLASSES, "id,work,late", rows))


@pytest.fixture(scope="module")
def more_words(share_dataset):
    rows = [f"{i},{'abcd'[i % 4]},{['no', 'yes', 'maybe'][i % 3]}" for i in range(90)]
    return share_dataset("more_words", lambda folder: written_rows(folder, CLASSES, "id,work,late", rows))


@pytest.fixture(scope="module")
def few_words_model(few_words, tmp_path_factory):
    folder = tmp_path_factory.mktemp("few_words_model")
    assert run(few_words, folder, steps=1) == 0
    return folder


class TestDataWithOtherWords:
    """Of one schema, whose classes and words are those of the train split."""

    CHANGES = (
        "classes of the label: 2 in the model, 3 in the data (new: 'maybe'); words of 'work': 3 in the model, 4 in "
    )
    CHANGES += "the data (new: 'd')"

    def test_a_model_is_not_evaluated_on_them(self, more_words, few_words_model, capsys):
        assert evaluate.main(["--data_dir", more_words.path, "--model_dir", str(few_words_model)]) == 2
        err = capsys.readouterr().err
        assert (
            f": does not fit {more_words.path}: {self.CHANGES}. Evaluate it on the dataset that it was trained on"
            in err
        )


class TestSavedAndNotEvaluated:
    @pytest.mark.slow
    def test_the_last_checkpoint_is_evaluated_and_exported(self, late, model_dir, tmp_path):
        """As after a kill between the two."""
        copy = Path(shutil.copytree(model_dir, tmp_path / "model"))
        shutil.rmtree(copy / "export")
        evaluations = read_evaluations(str(copy))
        (copy / "evaluations.json").write_text(json.dumps(evaluations[:1]))
        assert run(late, copy) == 0
        again = read_evaluations(str(copy))
        assert [e["global_step"] for e in again] == [20, 40]
        assert again[1]["loss"] == pytest.approx(evaluations[1]["loss"], rel=1e-4)
        assert len(numbered(copy / "export" / "best")) == 1


class TestAugmentation:
    def test_the_command_notes_it_for_images(self, stripes_model):
        manifest = json.loads((stripes_model.model_dir / "model.json").read_text())
        assert manifest["current"]["augment"] == {"flip": True, "color_jitter": 0.0, "resized_crop": None}


def test_the_hparams_of_a_model_of_ones_own_are_its_own(late, tmp_path, capsys):
    assert run(late, tmp_path / "model", "--hparams", "depth=3", model=f"{OWN}:model_fn") == 2
    assert "has no hyper-parameter 'depth'. It has: learning_rate=0.05, units=4" in capsys.readouterr().err


def test_a_nan_loss_is_said(late, tmp_path, capsys):
    assert run(late, tmp_path / "model", model=f"{OWN}:nan_model_fn") == 1
    assert "the loss became NaN" in capsys.readouterr().err


class TestEarlyStopping:
    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([], 0),
            ([0.7, 0.8], 0),
            ([0.8, 0.7], 20),
            ([0.8, 0.8, 0.8], 40),  # as good is no better
            ([0.7, 0.9, 0.8, 0.85], 40),
            ([float("nan"), 0.1, 0.1], 20),
        ],
    )
    def test_steps_without_improvement(self, values, expected):
        evaluations = [{"accuracy": v, "loss": 1.0, "global_step": 20 * (i + 1)} for i, v in enumerate(values)]
        assert steps_without_improvement(evaluations, metric="accuracy") == expected

    @pytest.mark.slow
    def test_stops(self, late, tmp_path, capsys):
        argv = ("--early_stopping_steps", "20", "--hparams", "learning_rate=0")
        assert run(late, tmp_path / "model", *argv, steps=1000) == 0
        out, err = capsys.readouterr()
        assert "ended    no better evaluation for 20 steps" in err
        assert json.loads(out)["eval"]["global_step"] == 20, "the metrics are of the best export"
        step = latest_step(tmp_path / "model")
        assert step == 40, "not after a step whose checkpoint could be better"
        assert len(numbered(tmp_path / "model" / "export" / "final")) == 1
        # the same command trains no more
        assert run(late, tmp_path / "model", *argv, steps=1000) == 0
        out, err = capsys.readouterr()
        assert "ended    no better evaluation for 20 steps\n" in err
        assert f"trained  nothing: the model is at step {step}; raise --max_steps or --early_stopping_steps to" in err
        assert "learning rate:" not in err
        assert json.loads(out)["eval"]["global_step"] == 20
        assert latest_step(tmp_path / "model") == step
        assert [e["global_step"] for e in read_evaluations(str(tmp_path / "model"))] == [20, 40]
        # what stopped one training does not stop the next
        again = ("--hparams", "learning_rate=0", "--early_stopping_steps", "0")
        assert run(late, tmp_path / "model", *again, steps=step + 5) == 0
        assert latest_step(tmp_path / "model") == step + 5

    @pytest.mark.parametrize(
        ("at_first", "later", "stops"),
        [(None, None, False), (None, "a", True), ("a", "a", False), ("a", "b", True)],
    )
    def test_workers_stop_with_the_chief(self, tmp_path, at_first, later, stops):
        class Context:
            stopped = False

            def request_stop(self):
                self.stopped = True

        now = [0.0]
        hook, context = StopWithChief(str(tmp_path), every_secs=10, clock=lambda: now[0]), Context()
        if at_first:
            mark_ended(str(tmp_path), at_first)
        hook.begin()
        if later not in (None, at_first):
            mark_ended(str(tmp_path), later)
        hook.after_run(context, None)
        assert not context.stopped  # not due yet
        now[0] = 11.0
        hook.after_run(context, None)
        assert context.stopped == stops


@pytest.mark.parametrize(
    ("kind", "inputs", "files"),
    [
        ("people", ["day 1.csv"], "'day 1.csv'"),
        ("people", [], "'raw/*.csv'"),  # in files of their own, where there are many
        ("stripes", ["fotos/*/*.png more/*"], "'fotos/*/*.png' 'more/*'"),
        ("patterns", ["people/*/*"], "pairs.csv"),  # of pairs that are to be named
    ],
)
def test_predict_is_given_the_input_or_files_of_the_kind_that_it_takes(
    request: pytest.FixtureRequest, kind: str, inputs: list[str], files: str
) -> None:
    dataset = request.getfixturevalue(kind)
    read = tuple(dataset.manifest.inputs[0].model_copy(update={"path": path}) for path in inputs)
    dataset = dataclasses.replace(dataset, manifest=dataset.manifest.model_copy(update={"inputs": read}))
    trained = Trained(
        model_dir="m", ended="max_steps", global_step=1, steps=1, seconds=1.0, metrics={}, exports={"final": "m/1"}
    )
    plan = plan_training(dataset, TrainOptions(data_dir=dataset.path, model_dir="m"))
    text = summary(trained, plan, dataset)
    assert f"trainer.predict --model_dir m --input {files} --output" in text


@dataclasses.dataclass(frozen=True)
class Every:
    """A field of each type."""

    count: int = 1
    rate: float = 0.5
    on: bool = False
    name: str = "adam"
    units: tuple[int, ...] = (4, 2)
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.rate > 1:
            raise ValueError("rate must be 1 or less")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], Every()),
        (["count=3"], Every(count=3)),
        (["rate=1e-3"], Every(rate=0.001)),
        (["on=true"], Every(on=True)),
        (["name=a=b"], Every(name="a=b")),
        (["units=8,4,2"], Every(units=(8, 4, 2))),
        (["units=8x4"], Every(units=(8, 4))),
        (["limit=none"], Every(limit=None)),
        (["count=3 rate=0.1", "on=yes"], Every(count=3, rate=0.1, on=True)),
        (["units=8,4,"], Every(units=(8, 4))),
        (["name=/my dir/x  y", "count=3"], Every(name="/my dir/x  y", count=3)),
        ([" count=3  name=my dir\nrate=0.1 "], Every(name="my dir", count=3, rate=0.1)),
    ],
)
def test_reads_values_by_type(settings, expected):
    assert parse_hparams(Every, settings, model="m") == expected


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("cuont=1", "model 'm' has no hyper-parameter 'cuont'; did you mean count? It has: count=1, rate=0.5"),
        ("count", "'count': expected key=value"),
        ("count=1.5", "count=1.5: expected an integer"),
        ("count=\u0663", "count=\u0663: expected an integer"),
        ("rate=fast", "rate=fast: expected a number"),
        ("on=maybe", "on=maybe: expected true or false"),
        ("units=4,a", "units=4,a: expected an integer, one or more, separated by commas"),
        ("count=3 count=4", "count is given twice"),
        ("rate=nan", "rate=nan: expected a number"),
        ("limit=x", "limit=x: expected an integer or none"),
        ("rate=2", "rate must be 1 or less"),
    ],
)
def test_refuses(setting, message):
    with pytest.raises(UsageError) as refused:
        parse_hparams(Every, [setting], model="m")
    assert message in str(refused.value)


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_described_can_be_typed(name):
    kind = BUILT_IN[name].hparams
    assert parse_hparams(kind, describe_hparams(kind).split(", "), model=name) == kind()


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        ("dnn", "hidden_units=", "hparams of model 'dnn'"),
        ("squeezenext", "units=1,1", "units needs four numbers, each of 1 or more"),
        ("squeezenext", "warmup=1", "warmup=1.0: must be below 1"),
        ("squeezenext", "l2=-1", "l2=-1.0: must be 0 or more"),
        ("face_pairs", "width=0", "width=0: must be 1 or more"),
    ],
)
def test_models_check_their_own(model, setting, message):
    with pytest.raises(UsageError) as refused:
        parse_hparams(BUILT_IN[model].hparams, [setting], model=model)
    assert message in str(refused.value)
