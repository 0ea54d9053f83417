"""The reports of real trainings, by the commands; what cannot be computed is said in words, and never NaN or markup."""

from __future__ import annotations

import base64
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow.feather
import pytest
import tensorflow as tf

from schemas.command import finite
from schemas.report.thumbnails import thumbnails
from tests.support.html_page import FAINT, TOO_WIDE, Page, measured
from tests.support.prediction_tables import of_classes, of_values
from trainer import evaluate, task
from trainer.evaluation.content import content_of as measured_content
from trainer.evaluation.content import notes_of
from trainer.evaluation.learning_curves import learning_curves
from trainer.evaluation.page import page, verdict
from trainer.evaluation.predictions import Predictions
from trainer.evaluation.records import stored_values
from trainer.model_dir.model_json import read_evaluations

# Metrics of a report, as the terminal, `metrics-<split>.json` and Estimator call them.
SAME_NUMBER = {
    "accuracy": "accuracy",
    "accuracy_of_always_the_most_frequent_class": "accuracy_baseline",
    "auc": "auc",
    "average_precision": "auc_precision_recall",
    "log_loss": "average_loss",
}
ABOUT_PEOPLE = ("--slice_by", "work", "city,pet")


def read(folder: Path, split: str = "eval") -> dict:
    content: dict = json.loads((folder / f"report-{split}.json").read_text())
    return content


def trained(dataset, folder: Path, *argv: str) -> Path:
    """A training of 40 steps, with two evaluations and a report."""
    fixed = ["--data_dir", dataset.path, "--model_dir", str(folder), "--max_steps", "40"]
    assert task.main([*fixed, "--save_checkpoints_steps", "20", "--batch_size", "32", "--seed", "1", *argv]) == 0
    return folder


@pytest.fixture(scope="module")
def people_dir(people, tmp_path_factory) -> Path:
    """A model of two classes, with a key, a weight and every kind of feature; not to be changed."""
    argv = ("--model", "softmax", "--evaluate_test", *ABOUT_PEOPLE)
    return trained(people, tmp_path_factory.mktemp("people") / "model", *argv)


@pytest.mark.slow
def test_what_the_last_lines_name_is_of_the_export_that_they_recommend(wages, tmp_path, capsys):
    folder = tmp_path / "model"
    for again in (False, True):  # the second time nothing is trained
        if (
            again
        ):  # and another checkpoint has the best one's name, as after a training that lost some and made them anew
            for file in folder.glob("model.ckpt-40.*"):
                shutil.copy(file, folder / file.name.replace("-40", "-20"))
        argv = ["--model", "tests.support.own_models:worsening", "--evaluate_test", "--keep_checkpoints", "1", "--json"]
        result = json.loads((trained(wages, folder, *argv), capsys.readouterr())[1].out)
        (best,) = (folder / "export" / "best").glob("[0-9]*")
        assert (result["export_dir"], result["global_step"]) == (str(best), 40)
        for split in ("eval", "test"):
            metrics = json.loads((folder / f"metrics-{split}.json").read_text())["metrics"]
            assert metrics == result["metrics"][split]
            content = read(folder, split)
            assert (metrics["global_step"], content["step"]) == (20, 20)
            assert content["metrics"]["root_mean_squared_error"] ** 2 == pytest.approx(
                metrics["average_loss"], rel=1e-5
            )
            if split == "eval":  # whose page has the curves
                assert "step 20" in (folder / f"report-{split}.html").read_text()
    assert [e["global_step"] for e in read_evaluations(str(folder))] == [20, 40]


def assert_evaluated_again(dataset, folder: Path, exported: str, metrics: dict, split: str, output: Path) -> dict:
    """Evaluates an export; its numbers are those of the training. Returns the report's content."""
    of = ["--data_dir", dataset.path, "--model_dir", str(folder), "--saved_model", exported, "--slice_by", "age"]
    more = of[:-2] if dataset.image_schema is not None else of
    assert evaluate.main([*more, "--split", split, "--output", str(output)]) == 0
    content = read(output, split)
    assert metrics["global_step"] == content["step"]
    again = {name: value for name, value in content["metrics_of_the_estimator"].items() if value is not None}
    before = {name: value for name, value in metrics.items() if value is not None and name != "global_step"}
    assert before == pytest.approx(again, rel=1e-5)
    return content


@pytest.mark.slow
def test_evaluating_an_export_gives_the_numbers_of_the_training_of_classes(people, people_dir, tmp_path):
    (exported,) = (people_dir / "export" / "best").glob("[0-9]*")
    for split in ("eval", "test"):
        metrics = json.loads((people_dir / f"metrics-{split}.json").read_text())["metrics"]
        content = assert_evaluated_again(people, people_dir, str(exported), metrics, split, tmp_path)
        same = {metrics[theirs]: content["metrics"][ours] for ours, theirs in SAME_NUMBER.items()}
        assert [*same] == pytest.approx([*same.values()], rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "argv"),
    [
        ("wages", ("--model", "linear", "--hparams", "learning_rate=9", "--no_report")),
        pytest.param("patterns", ("--model", "face_pairs", "--hparams", "width=4"), marks=pytest.mark.long),
    ],
)
def test_evaluating_the_recommended_export_gives_the_numbers_of_the_last_lines(request, data, argv, tmp_path, capsys):
    dataset = request.getfixturevalue(data)
    folder = trained(dataset, tmp_path / "model", *argv, "--json")
    result = json.loads(capsys.readouterr().out)
    metrics = result["metrics"]["eval"]
    content = assert_evaluated_again(dataset, folder, result["export_dir"], metrics, "eval", tmp_path)
    if data == "wages":
        assert content["metrics"]["root_mean_squared_error"] ** 2 == pytest.approx(metrics["average_loss"], rel=1e-5)
        assert content["slices"]["asked"][0]["slices"][0]["root_mean_squared_error"] > 0
        page = Page((tmp_path / "report-eval.html").read_text())
        assert "residuals" in page.ids
        assert "image" not in page.tags  # which the page's own policy would block


@pytest.mark.slow
class TestTraining:
    def test_the_page_has_all_sections_and_closes_every_tag(self, people_dir):
        page = Page((people_dir / "report-eval.html").read_text())
        sections = {"curves", "confusion", "classes", "scores", "slices", "importance", "rows"}
        assert sections <= set(page.ids)
        assert page.tags.count("svg") == 4 + len(read(people_dir)["learning_curves"]["panels"])
        assert {"<=50K", ">50K"} <= set(page.texts)

    def test_its_metrics_are_those_of_the_terminal(self, people, people_dir):
        content, metrics = read(people_dir), json.loads((people_dir / "metrics-eval.json").read_text())["metrics"]
        assert (content["rows"], content["weight"], content["step"]) == (people.rows("eval"), "w", 40)
        assert {ours: content["metrics"][ours] for ours in SAME_NUMBER} == {
            ours: metrics[theirs] for ours, theirs in SAME_NUMBER.items()
        }
        assert [content["classes"][1][name] for name in ("precision", "recall")] == [
            metrics["precision"],
            metrics["recall"],
        ]

    def test_slices_add_up_and_are_called_as_in_the_file(self, people, people_dir):
        slices = read(people_dir)["slices"]
        work, both = slices["asked"]
        assert (work["feature"], both["feature"]) == ("work", "city, pet")
        assert {entry["value"] for entry in work["slices"]} <= {"Private", "State-gov", "Self", "<unknown>"}
        assert all(sum(entry["rows"] for entry in t["slices"]) == people.rows("eval") for t in (work, both))
        names = {table["feature"] for table in slices["all"]}
        assert {"age", "age_missing", "scores[s0]", "hours", "city", "pet", "member"} <= names
        assert {"title", "words", "work_x_city"} <= set(slices["left_out"])

    def test_the_worst_rows_are_read_in_the_input(self, people_dir, people_csv):
        page = (people_dir / "report-eval.html").read_text()
        header = people_csv.read_text().splitlines()[0].split(",")
        worst = read(people_dir)["worst_rows"]
        assert [row["loss"] for row in worst] == sorted((row["loss"] for row in worst), reverse=True)
        for row in worst:
            line = people_csv.read_bytes()[row["offset"] :].decode().partition("\n")[0]
            cells = dict(zip(header, line.split(","), strict=True))
            assert (row["source"], row["key"], row["true"]) == (str(people_csv), cells["id"], cells["income"])
            assert row["features"]["city"] == cells["city"]
            assert f"{people_csv}, byte {row['offset']}" in page
            assert row["shard"].endswith(".tfrecord")

    def test_the_predictions_of_all_rows_are_a_table_beside_it(self, people, people_dir, people_csv):
        table = pyarrow.feather.read_table(people_dir / "predictions-eval.arrow").to_pylist()
        assert len(table) == people.rows("eval")
        lines = people_csv.read_bytes()
        for row in table:
            line = lines[row["offset"] :].partition(b"\n")[0].decode()
            assert (row["file"], row["label"]) == (str(people_csv), line.split(",")[-1])
            assert row["predicted"] == (">50K" if row["score"] > 0.5 else "<=50K")
        mean = sum(row["loss"] * row["weight"] for row in table) / sum(row["weight"] for row in table)
        assert mean == pytest.approx(read(people_dir)["metrics"]["log_loss"])

    def test_importance_is_of_each_feature(self, people_dir):
        features = {entry["feature"] for entry in read(people_dir)["importance"]["features"]}
        assert {"age", "scores[s0]", "work", "words", "title", "work_x_city"} <= features
        assert "age_missing" not in features

    def test_learning_curves_are_of_all_evaluations(self, people, people_dir):
        curves = read(people_dir)["learning_curves"]
        assert [e["step"] for e in curves["evaluations"]] == [20, 40]
        assert curves["evaluations"][1]["epoch"] == pytest.approx(40 * 32 / people.rows("train"), abs=0.01)
        assert curves["best_step"] in (20, 40)


@pytest.mark.slow
class TestEvaluate:
    @pytest.fixture
    def argv(self, people, people_dir, tmp_path) -> list[str]:
        return ["--data_dir", people.path, "--model_dir", str(people_dir), "--output", str(tmp_path)]

    def test_reports_on_an_export(self, argv, people, people_dir, tmp_path, capsys):
        before = (people_dir / "report-test.json").read_bytes()
        assert evaluate.main([*argv, "--split", "test", "--slice_by", "work", "--json"]) == 0
        done = json.loads(capsys.readouterr().out)
        assert done["report"] == f"{tmp_path}/report-test.html"
        mark = json.loads((people_dir / "export" / "best" / "best.json").read_text())
        assert (done["step"], done["rows"]) == (mark["global_step"], people.rows("test"))
        assert done["export"].endswith(mark["export"])
        assert read(tmp_path, "test")["slices"]["asked"][0]["feature"] == "work"
        assert read(tmp_path, "test")["learning_curves"]["panels"] == []
        assert (people_dir / "report-test.json").read_bytes() == before

    def test_the_curves_are_shown_on_the_split_that_the_training_evaluated(self, people, people_dir, tmp_path, capsys):
        folder = tmp_path / "model"
        shutil.copytree(people_dir, folder)
        model = json.loads((folder / "model.json").read_text())
        model["current"]["plan"]["eval_split"] = "test"
        (folder / "model.json").write_text(json.dumps(model))
        argv = ["--data_dir", people.path, "--model_dir", str(folder)]
        assert evaluate.main([*argv, "--split", "test", "--eval_steps", "1", "--batch_size", "7"]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"report   {folder}/report-test.html"
        assert any(note.startswith("Evaluated on 7 of the ") for note in read(folder, "test")["notes"])
        assert len(pyarrow.feather.read_table(folder / "predictions-test.arrow")) == 7
        assert evaluate.main([*argv, "--split", "eval"]) == 0
        shown = [bool(read(folder, split)["learning_curves"]["panels"]) for split in ("test", "eval")]
        assert shown == [True, False]

    def test_an_earlier_report_in_a_folder_of_ones_own_is_replaced_only_if_told(self, argv, tmp_path, capsys):
        (tmp_path / "report-eval.json").write_text("mine")
        assert evaluate.main(argv) == 2
        assert "report-eval.json: already exists; give --overwrite to replace it" in capsys.readouterr().err
        assert (tmp_path / "report-eval.json").read_text() == "mine"

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            (["--slice_by", "height"], "--slice_by height: no feature 'height'; choose from age"),
            (["--slice_by", "title"], "--slice_by title: no feature 'title'"),
            (["--saved_model", "none"], "none: no such folder"),
        ],
    )
    def test_refuses(self, people, people_dir, capsys, more, message):
        assert evaluate.main(["--data_dir", people.path, "--model_dir", str(people_dir), *more]) == 2
        assert message in capsys.readouterr().err

    def test_images_by_a_model_that_gives_no_predictions_in_eval(self, stripes, stripes_model, tmp_path):
        argv = ["--data_dir", stripes.path, "--model_dir", str(stripes_model.model_dir), "--output", str(tmp_path)]
        assert evaluate.main([*argv, "--trust"]) == 0
        content = read(tmp_path)
        assert content["rows"] == stripes.rows("eval") == np.sum(content["confusion"]["matrix"])
        estimator = content["metrics_of_the_estimator"]
        assert content["metrics"]["accuracy"] == pytest.approx(estimator["accuracy"], abs=1e-6)
        assert all(row["files"][0].startswith(row["true"]) for row in content["worst_rows"])
        assert not any("source" in row for row in content["worst_rows"])
        assert "slices" not in content
        assert "pictures" not in content  # which stand in the page alone
        wrong = [row for row in content["worst_rows"] if row["true"] != row["predicted"]]
        page = Page((tmp_path / "report-eval.html").read_text())
        shown = [value for name, value in page.attributes if name == "src"]
        assert len(shown) == len(wrong)
        assert all(url.startswith("data:image/jpeg;base64,") and len(url) < 20_000 for url in shown if url)
        assert {row["files"][0].split("/")[-1] for row in wrong} <= {text.split("/")[-1] for text in page.texts}


def stored(**features: bytes | int) -> bytes:
    """A record of an image."""
    example = tf.train.Example()
    for name, value in features.items():
        entry = example.features.feature[f"image/{name}"]
        (entry.bytes_list if isinstance(value, bytes) else entry.int64_list).value.append(value)
    return example.SerializeToString()


@pytest.mark.parametrize(
    ("record", "size"),
    [
        (stored(encoded=bytes(3 * 600 * 300), format=b"RAW", height=300, width=600), (120, 60)),
        (stored(encoded=b"no JPEG", format=b"JPEG"), None),
        (stored(encoded=b"12", format=b"RAW", height=2, width=2), None),
        (stored(height=2), None),
    ],
    ids=["raw", "no JPEG", "too few bytes", "no bytes"],
)
def test_stored_images_become_thumbnails_and_damaged_ones_are_left_out(record, size):
    urls = thumbnails(stored_values(record))
    assert len(urls) == (size is not None)
    for url in urls:
        with PIL.Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) as image:
            assert image.size == size


def test_pictures_stand_beside_what_they_were_taken_for():
    content = content_of(of_classes(["cat", "dog"], [0, 1], [[0.1, 0.9], [0.2, 0.8]]))
    name = "<b>.jpg"
    row = {"row": 0, "true": "cat", "predicted": "dog", "probability_of_predicted": 0.9, "loss": 2.3}
    rows = [{**row, "files": [f"cats/{name}"], "shard": "s", "record": 0}]
    document = shown({**content, "worst_rows": rows, "pictures": [["data:image/jpeg;base64,AAAA"]]})
    assert ("src", "data:image/jpeg;base64,AAAA") in document.attributes
    text = " ".join(document.texts)
    assert "cat , taken for dog (90.0 %)" in text
    assert f"cats/{name}" in document.texts


def test_the_loss_of_the_training_is_drawn_beside_the_evaluated_one():
    evaluations = [{"global_step": step, "average_loss": 0.5, "loss": 0.6, "accuracy": 0.9} for step in (10, 20)]
    settings: dict[str, Any] = {"best_metric": "average_loss", "best_step": 10, "steps_an_epoch": 10}
    curves = learning_curves(evaluations, training={1: 9.0, 11: 0.7, 20: 0.65}, **settings)
    panels = {panel["metric"]: panel for panel in curves["panels"]}
    assert panels["loss"]["values"] == [0.6, 0.6]
    assert (panels["loss"]["train_steps"], panels["loss"]["train"]) == ([1, 11, 20], [9.0, 0.7, 0.65])
    assert "loss" not in {panel["metric"] for panel in learning_curves(evaluations, **settings)["panels"]}
    content = content_of(of_classes(["no", "yes"], [0, 1], [[0.7, 0.3], [0.2, 0.8]]))
    texts = set(shown({**content, "learning_curves": curves}).texts)
    assert {"train", "evaluated", "log loss (nats per row)", "loss that the training lowers"} <= texts
    same = [{**evaluation, "loss": 0.5001} for evaluation in evaluations]  # without weights and penalties
    (panel, _) = learning_curves(same, training={1: 9.0}, **settings)["panels"]
    assert (panel["metric"], panel["train"]) == ("average_loss", [9.0])


NO_CURVES: dict[str, Any] = {"evaluations": [], "panels": [], "best_metric": None, "best_step": None}


def content_of(predictions: Predictions) -> dict[str, Any]:
    """What `brief` gives, without a dataset."""
    content = {
        "data": {"path": "d", "run": "r", "name": "n", "split": "eval"},
        "model": "m",
        "step": 1,
        "rows": predictions.rows,
        "rows_of_the_split": predictions.rows,
        "weight": None,
        "metrics_of_the_estimator": {"loss": float("nan")},
        "learning_curves": NO_CURVES,
        **measured_content(predictions),
    }
    return {**content, "notes": list(notes_of(predictions, content))}


def shown(content) -> Page:
    """The page, after the JSON was found to hold no NaN."""
    content = finite(content)
    json.dumps(content, allow_nan=False)
    document = Page(page(content))
    assert len(document.ids) == len(set(document.ids))
    assert not [text for text in document.texts if text in ("nan", "None", "inf")]
    return document


MOST_FREQUENT = "always predicting the most frequent class has 0.6667"


@pytest.mark.parametrize(
    ("yes", "chosen", "sentence"),
    [
        (
            [0.1, 0.2, 0.9],
            "average_loss",
            "Better than a guess: its log loss is 0.1446 (predicting the shares of the classes has 0.6365), and its "
            f"accuracy is 1.0000 ({MOST_FREQUENT}).",
        ),
        (
            [0.9, 0.8, 0.1],
            "auc",
            f"No better than a guess: its AUC is 0 (chance has 0.5000), and its accuracy is 0 ({MOST_FREQUENT}).",
        ),
        (
            [0.6, 0.1, 0.8],
            "auc",
            "Little better than a guess: its AUC is 1.0000 (chance has 0.5000), and its accuracy is 0.6667 "
            f"({MOST_FREQUENT}).",
        ),
    ],
)
def test_the_page_begins_with_the_chosen_metric_beside_a_guess(yes, chosen, sentence):
    content = content_of(of_classes(["no", "yes"], [0, 0, 1], [[1 - p, p] for p in yes]))
    content["learning_curves"] = {**NO_CURVES, "best_metric": chosen}
    assert verdict(content) == (sentence, not sentence.startswith("Better"))
    assert shown(content).texts.index(sentence) < 20


def test_numbers_are_held_against_their_mean():
    values = of_values([1.0, 3.0], [1.0, 2.0])
    sentence = "Better than a guess: its root mean squared error is 0.7071 (always predicting the mean has 1.0000)."
    assert verdict(content_of(values)) == (sentence, False)


@pytest.mark.parametrize("probability", [0.01, 0.99])
def test_all_on_one_side_of_every_threshold(probability):
    """As of a rare class: below each of them, nothing has a precision."""
    content = content_of(of_classes(["no", "yes"], [0, 0, 1], [[1 - probability, probability]] * 3))
    (precision,) = {row["precision"] for row in content["thresholds"]["table"]}
    assert precision == (None if probability < 0.5 else pytest.approx(1 / 3))
    shown(content)


@pytest.mark.parametrize(("label", "only"), [(0, "no"), (1, "yes")])
def test_a_split_of_one_class(label, only):
    content = content_of(of_classes(["no", "yes"], [label] * 3, [[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]))
    assert content["metrics"]["auc"] is None
    assert content["undefined"]["auc"] == (
        f"every row of the split is of the class {only!r}, and a curve needs rows of both"
    )
    assert "thresholds" not in content
    assert content["undefined"]["auc"] in shown(content).texts


def test_a_split_of_one_class_of_several():
    content = content_of(of_classes("abc", [1, 1], [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]]))
    name = "mean_auc_of_each_class_against_the_rest"
    assert content["undefined"][name] == "the split has rows of one class only"
    assert [row["recall"] for row in content["classes"]] == [None, 0.5, None]
    assert any("No row of the split is of the class a, c" in note for note in content["notes"])
    shown(content)


@pytest.mark.parametrize("predictions", [of_classes("ab", [], []), of_classes("abc", [], []), of_values([], [])])
def test_an_empty_split(predictions):
    content = content_of(predictions)
    assert set(content["metrics"].values()) == {None}
    assert "The split has no rows: there is nothing to report." in shown(content).texts


def test_rows_whose_weights_are_all_0():
    """Their slices have rows, and no loss."""
    content = content_of(of_classes(["no", "yes"], [1], [[0.3, 0.7]]))
    rows = [{"value": "a", "rows": 30, "loss": None, "accuracy": None}]
    tables = [{"feature": "work", "slices": rows, "left_out": 0}, {"feature": "age", "slices": [], "left_out": 0}]
    shown({**content, "slices": {"worst": [], "asked": [], "all": tables, "left_out": []}})


def test_one_row():
    shown(content_of(of_classes(["no", "yes"], [1], [[0.3, 0.7]])))
    content = content_of(of_values([2.0], [5.0]))
    assert content["metrics"]["mean_absolute_error"] == 3.0
    assert content["undefined"]["r2"] == "every label of the split is the same number"
    assert any(text.startswith("Only 1 row: ") for text in shown(content).texts)


def test_predictions_that_are_no_numbers_are_left_out_and_counted():
    bad = [[0.1, 0.9], [float("nan"), float("nan")], [float("inf"), 0.0], [0.8, 0.2]]
    predictions = of_classes(["no", "yes"], [1, 1, 0, 0], bad)
    content = content_of(predictions)
    assert (predictions.rows, predictions.usable.sum(), content["metrics"]["accuracy"]) == (4, 2, 1.0)
    assert any(note.startswith("2 of 4 predictions are NaN or infinite") for note in content["notes"])
    assert predictions.worst(10).tolist() == [3, 0]
    shown(content)
    values = of_values([1.0, 2.0], [float("nan"), float("nan")])
    assert content_of(values)["undefined"]["mean_absolute_error"] == "no row has a prediction"
    shown(content_of(values))


def test_a_thousand_classes():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 1000, 400)
    content = content_of(of_classes([f"c{i}" for i in range(1000)], labels, rng.dirichlet(np.ones(1000), 400)))
    assert len(content["confusion"]["classes"]) == 30
    assert not content["confusion"]["complete"]
    assert len(content["curves"]) == 12
    assert len(content["classes"]) == 1000
    assert shown(content).tags.count("svg") == 3


def test_names_of_classes_are_text_and_no_markup():
    names = ["<script>alert(1)</script>", '$x^2$ & "it\'s"']
    content = content_of(of_classes(names, [0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]))
    plain = shown(content_of(of_classes(["a", "b"], [0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]])))
    document = shown(content)
    assert document.tags == plain.tags
    assert names[0] in document.texts
    assert names[1] in document.texts


def test_the_page_asks_for_nothing_from_a_network():
    document = shown(content_of(of_classes(["no", "yes"], [1, 0, 1], [[0.3, 0.7], [0.6, 0.4], [0.8, 0.2]])))
    policy = dict(document.attributes)["http-equiv"]
    assert policy == "Content-Security-Policy"
    assert not {"link", "img", "iframe", "image"} & set(document.tags)
    linked = [value for name, value in document.attributes if name in ("src", "href", "xlink:href")]
    assert all(value is not None and value.startswith("#") for value in linked)


def with_every_section(predictions: Predictions) -> dict[str, Any]:
    """The content of a report with long names, slices, importance, worst rows and curves."""
    content = content_of(predictions)
    classes = content["kind"] == "classes"
    error = "loss" if classes else "root_mean_squared_error"
    name = "a_feature_with_quite_a_long_name"
    rows = [{"value": "a long value " * 3, "rows": 1234, error: 123_456.0, "accuracy": 0.5, "auc": 0.5}] * 3
    tables = [{"feature": name, "slices": rows, "left_out": 1}]
    labels = ("a class " * 9, "another " * 9) if classes else (1_234_567.0, 7_654_321.0)
    worst: dict[str, Any] = {"row": 1234, "true": labels[0], "predicted": labels[1], "residual": -6e6}
    worst |= {"probability_of_predicted": 0.9}
    worst |= {"loss": 2.3, "shard": "20261128T092618Z-56b9/eval-00000-of-00001.tfrecord", "record": 3}
    worst |= {"source": "a/long/folder/" * 5, "offset": 12_345, "features": {name: "a value " * 9}}
    evaluations = [
        {"global_step": step, "accuracy": 0.5, "average_loss": 1.0, "loss": 1.0, "rmse": 1.0} for step in range(1, 9)
    ]
    curves = learning_curves(evaluations, best_metric="average_loss", best_step=3, steps_an_epoch=2, training={1: 2.0})
    return {
        **content,
        "notes": ["A note."],
        "learning_curves": curves,
        "slices": {"worst": [{"feature": name, **rows[0]}], "asked": tables, "all": tables, "left_out": [name] * 9},
        "importance": {
            "rows": 9,
            "repeats": 3,
            "features": [{"feature": name, error: 123_456.0, "spread": 1_234.0}] * 2,
        },
        "worst_rows": [worst] * 2,
        "worst_rows_notes": ["A file is gone."],
    }


@pytest.mark.browser
@pytest.mark.parametrize("kind", ["two classes", "many classes", "numbers"])
def test_the_page_fits_its_window_and_is_legible(kind, tmp_path):
    rng = np.random.default_rng(1)
    if kind == "numbers":
        predictions = of_values(rng.normal(0, 1e6, 200), rng.normal(0, 1e6, 200))
    else:
        names = [
            f"{name}, a class with a long name" for name in ("ab" if kind == "two classes" else map(str, range(15)))
        ]
        labels = np.arange(300) % len(names)
        right = rng.random(300) < labels / len(names) + 0.4  # so that cells of the confusion matrix have all shades
        guesses = np.where(right, labels, rng.integers(0, len(names), 300))
        predictions = of_classes(names, labels, 0.9 * np.eye(len(names))[guesses] + 0.1 / len(names))
    path = tmp_path / "page.html"
    path.write_text(page(finite(with_every_section(predictions))))
    for width in (1280, 400):
        assert measured(path, TOO_WIDE, width=width) == "false"
        assert [measured(path, FAINT, width=width, dark=dark) for dark in (False, True)] == ["0", "0"]
