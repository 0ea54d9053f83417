"""What cannot be computed, or is no number, or is no plain text: said in words, and never NaN or markup."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from schemas.command import finite
from tests.support.html_page import Page
from trainer.evaluation.metrics import class_content, value_content
from trainer.evaluation.page import draw_all, page, pictures, write_report
from trainer.evaluation.predictions import DENSE, ClassCollector, Confusion, ValueCollector
from trainer.evaluation.report import learning_curves, notes

NO_CURVES: dict[str, Any] = {"evaluations": [], "panels": [], "best_metric": None, "best_step": None}


def content_of(collector, *, rows: int | None = None):
    """What `brief` gives, without a dataset."""
    content = {
        "data": {"path": "d", "run": "r", "name": "n", "split": "eval"},
        "model": "m",
        "step": 1,
        "rows": collector.rows,
        "rows_of_the_split": collector.rows if rows is None else rows,
        "weight": None,
        "metrics_of_the_estimator": {"loss": float("nan")},
        "learning_curves": NO_CURVES,
        **(class_content(collector) if isinstance(collector, ClassCollector) else value_content(collector)),
    }
    return {**content, "notes": list(notes(collector, content))}


def shown(content) -> Page:
    """The page, after the JSON was found to hold no NaN."""
    content = finite(content)
    json.dumps(content, allow_nan=False)
    found = Page(page(content, {name: picture.draw("svg")["svg"] for name, picture in pictures(content).items()}))
    assert len(found.ids) == len(set(found.ids))
    assert not [text for text in found.texts if text in ("nan", "None", "inf")]
    return found


def of_classes(names, labels, probabilities) -> ClassCollector:
    collector = ClassCollector(names)
    collector.add(np.array(labels), np.array(probabilities, np.float32))
    return collector


@pytest.mark.parametrize("probability", [0.01, 0.99])
def test_all_on_one_side_of_every_threshold(probability):
    """As of a rare class: below each of them, nothing has a precision."""
    content = content_of(of_classes(["no", "yes"], [0, 0, 1], [[1 - probability, probability]] * 3))
    (precision,) = {row["precision"] for row in content["thresholds"]["table"]}
    assert precision == (None if probability < 0.5 else pytest.approx(1 / 3))
    shown(content)
    assert draw_all(content)["thresholds"]["png"]


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


@pytest.mark.parametrize("collector", [ClassCollector("ab"), ClassCollector("abc"), ValueCollector()])
def test_an_empty_split(collector):
    content = content_of(collector)
    assert set(content["metrics"].values()) == {None}
    assert "The split has no rows: there is nothing to report." in shown(content).texts


def test_one_row():
    shown(content_of(of_classes(["no", "yes"], [1], [[0.3, 0.7]])))
    values = ValueCollector()
    values.add(np.array([2.0]), np.array([5.0]))
    content = content_of(values)
    assert content["metrics"]["mean_absolute_error"] == 3.0
    assert content["undefined"]["r2"] == "every label of the split is the same number"
    assert any(text.startswith("1 rows are few") for text in shown(content).texts)


def test_predictions_that_are_no_numbers_are_left_out_and_counted():
    bad = [[0.1, 0.9], [float("nan"), float("nan")], [float("inf"), 0.0], [0.8, 0.2]]
    collector = of_classes(["no", "yes"], [1, 1, 0, 0], bad)
    content = content_of(collector)
    assert (collector.rows, collector.not_finite, content["metrics"]["accuracy"]) == (4, 2, 1.0)
    assert any(note.startswith("2 of 4 predictions are NaN or infinite") for note in content["notes"])
    assert collector.kept.worst(10).tolist() == [3, 0]
    shown(content)
    values = ValueCollector()
    values.add(np.array([1.0, 2.0]), np.array([float("nan"), float("nan")]))
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


def test_very_many_classes_take_memory_by_the_pairs_that_occur():
    counts, few = Confusion(DENSE * 50), Confusion(5)
    labels, predicted = np.array([0, 1, 1, 4]), np.array([0, 2, 2, 0])
    for confusion in (counts, few):
        confusion.add(labels, predicted, np.ones(4))
        confusion.add(labels[:1], predicted[:1], np.ones(1))
    for confusion in (counts, few):
        assert [x.tolist() for x in confusion.pairs()] == [[0, 1, 4], [0, 2, 0], [2, 2, 1]]
    assert counts.worst_pairs(1) == [(1, 2, 2.0)]
    assert counts.most_confused(3).tolist() == few.most_confused(3).tolist()
    np.testing.assert_array_equal(counts.matrix(np.array([0, 4])), [[2, 0], [1, 0]])


def test_names_of_classes_are_text_and_no_markup():
    names = ["<script>alert(1)</script>", '$x^2$ & "it\'s"']
    content = content_of(of_classes(names, [0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]]))
    plain = shown(content_of(of_classes(["a", "b"], [0, 1, 1], [[0.9, 0.1], [0.4, 0.6], [0.8, 0.2]])))
    found = shown(content)
    assert found.tags == plain.tags
    assert names[0] in found.texts
    assert names[1] in found.texts


def test_the_page_asks_for_nothing_from_a_network():
    found = shown(content_of(of_classes(["no", "yes"], [1, 0, 1], [[0.3, 0.7], [0.6, 0.4], [0.8, 0.2]])))
    policy = dict(found.attributes)["http-equiv"]
    assert policy == "Content-Security-Policy"
    assert not {"link", "img", "iframe", "image"} & set(found.tags)
    linked = [value for name, value in found.attributes if name in ("src", "href", "xlink:href")]
    assert all(value is not None and value.startswith("#") for value in linked)


def test_what_is_written(tmp_path):
    content = content_of(of_classes(["no", "yes"], [1, 0, 1], [[0.3, 0.7], [0.6, 0.4], [0.8, 0.2]]))
    path = write_report(str(tmp_path), "eval", content, draw_all(content))
    assert path == f"{tmp_path}/report-eval.html"
    read = json.loads((tmp_path / "report-eval.json").read_text())
    assert read["metrics_of_the_estimator"] == {"loss": None}
    names = {"calibration", "confusion_matrix", "precision_recall", "roc", "thresholds"}
    assert {file.stem for file in (tmp_path / "report-eval").iterdir()} == names
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in (tmp_path / "report-eval").iterdir())


def test_learning_curves():
    evaluations: list[dict[str, Any]] = [
        {"global_step": 10, "accuracy": 0.5, "loss": 1.0, "average_loss": None},
        {"global_step": 20, "accuracy": 0.75, "loss": 0.5, "average_loss": 0.5},
    ]
    curves = learning_curves(evaluations, best_metric="accuracy", best_step=20, steps_an_epoch=8.0)
    assert [(e["step"], e["epoch"]) for e in curves["evaluations"]] == [(10, 1.25), (20, 2.5)]
    assert curves["panels"] == [
        {"metric": "accuracy", "steps": [10, 20], "values": [0.5, 0.75], "best": 20},
        {"metric": "average_loss", "steps": [20], "values": [0.5], "best": 20},
    ]
