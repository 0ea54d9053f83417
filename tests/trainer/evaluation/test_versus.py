"""Two models on one page: which is better, by how much, and that chance is not taken for a difference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.support.html_page import FAINT, TOO_WIDE, Page, measured
from tests.support.prediction_tables import of_classes, of_values
from trainer import evaluate
from trainer.evaluation.content import content_of
from trainer.evaluation.predictions import Predictions
from trainer.evaluation.versus import ComparedModel, difference, page, rows, verdict
from trainer.loop.evaluations import training_losses

LABELS = np.random.default_rng(3).integers(0, 2, 200)
HOSTILE = "<script>alert(1)</script>"


def noise(name: str) -> np.random.Generator:
    """The same for a model of the same name."""
    return np.random.default_rng(list(name.encode()))


def side(name: str, predictions: Predictions, **more: Any) -> ComparedModel:
    content = {
        "data": {"path": "d", "run": "r", "name": "n", "split": "eval"},
        "model": "m",
        "step": 1,
        "rows": predictions.rows,
        "export": "e",
        "learning_curves": {"panels": []},
        **content_of(predictions),
        **more,
    }
    return ComparedModel(name, content, predictions)


def classes(name: str, sharpness: float, labels: np.ndarray = LABELS) -> ComparedModel:
    """A model of two classes whose probability of the true class is about `sharpness`."""
    true = np.clip(sharpness + noise(name).normal(0, 0.05, len(labels)), 0.02, 0.98)
    second = np.where(labels == 1, true, 1 - true)
    return side(name, of_classes([HOSTILE, "yes"], labels, np.stack([1 - second, second], axis=1)))


def values(name: str, error: float) -> ComparedModel:
    labels = np.linspace(0, 9, 100)
    return side(name, of_values(labels, labels + noise(name).normal(0, error, 100)))


def test_the_better_one_is_named_with_the_difference_and_its_interval() -> None:
    good, bad = classes("good", 0.9), classes("bad", 0.6)
    mean, error = difference(good, bad, "log_loss") or (0, 0)
    assert mean == pytest.approx(float((bad.predictions.loss - good.predictions.loss).mean()), rel=1e-5)
    apart = (bad.predictions.loss - good.predictions.loss).astype(float)
    assert error == pytest.approx(1.96 * apart.std(ddof=1) / np.sqrt(len(apart)), rel=1e-5)
    for first, second in ((good, bad), (bad, good)):
        assert verdict(first, second).startswith("good is better: its log loss is 0.")


def test_regressions_are_compared_in_the_units_of_the_label() -> None:
    good, bad = values("good", 100), values("bad", 2000)
    apart = sum(sign * np.sqrt(np.mean(side.predictions.loss)) for sign, side in ((1, bad), (-1, good)))
    start = f"good is better: its root mean squared error is {apart:,.0f} lower than that of bad (± "
    assert verdict(good, bad).startswith(start)
    assert verdict(bad, good).startswith(start)
    better = {name: better for name, *_, better in rows(good, bad)}
    assert (better["mean_absolute_error"], better["mean_residual"]) == ("first", "")


def test_chance_is_no_difference() -> None:
    assert not any(row[-1] for row in rows(classes("a", 0.7), classes("b", 0.7)))
    assert "The difference is b minus a." in page(classes("a", 0.7), classes("b", 0.7))
    assert verdict(classes("a", 0.7), classes("b", 0.7)).startswith("No difference beyond chance")


@pytest.mark.parametrize("other", [classes("b", 0.7, 1 - LABELS), classes("b", 0.7, LABELS[:50])])
def test_rows_that_are_not_the_same_are_not_compared(other: ComparedModel) -> None:
    assert difference(classes("a", 0.7), other, "log_loss") is None
    assert "cannot be compared" in verdict(classes("a", 0.7), other)


def test_the_page_has_both_models_and_no_markup_of_theirs() -> None:
    text = page(classes(HOSTILE, 0.9), classes("b", 0.6))
    document = Page(text)
    assert HOSTILE not in text
    assert {HOSTILE, "b"} <= set(document.texts)


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_fits_its_window(tmp_path: Path, width: int) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(classes("a" * 60, 0.9), classes("b" * 60, 0.6)))
    assert measured(path, TOO_WIDE, width=width) == "false"
    assert [measured(path, FAINT, width=width, dark=dark) for dark in (False, True)] == ["0", "0"]


def events(path: Path, *losses: tuple[int, float]) -> None:
    with tf.Graph().as_default():
        writer = tf.compat.v1.summary.FileWriter(str(path), tf.compat.v1.get_default_graph())
        for step, loss in losses:
            values = [tf.compat.v1.Summary.Value(tag="loss", simple_value=loss)]
            writer.add_summary(tf.compat.v1.Summary(value=values), step)
            picture = tf.compat.v1.Summary.Image(encoded_image_string=bytes(10_000))
            writer.add_summary(tf.compat.v1.Summary(value=[tf.compat.v1.Summary.Value(tag="i", image=picture)]), step)
        writer.close()


def test_the_loss_of_a_training_is_read_beside_its_graphs_and_pictures(tmp_path: Path) -> None:
    assert training_losses(str(tmp_path)) == {}
    events(tmp_path, (0, 4.0), (100, 2.0), (200, float("nan")))
    assert training_losses(str(tmp_path)) == {0: 4.0, 100: 2.0}
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-10_050])  # as of a training that was killed
    assert training_losses(str(tmp_path)) == {0: 4.0, 100: 2.0}


def test_a_damaged_event_ends_what_is_read_of_its_file(tmp_path: Path) -> None:
    events(tmp_path, (0, 4.0), (100, 2.0))
    (file,) = tmp_path.iterdir()
    before, _, after = file.read_bytes().rpartition(b"loss")
    file.write_bytes(before[:-4] + b"\xff" * 4 + b"loss" + after)
    assert training_losses(str(tmp_path)) == {0: 4.0}


def test_a_long_training_has_a_bounded_number_of_points(tmp_path: Path) -> None:
    events(tmp_path, *((step, float(step)) for step in range(1000)))
    losses = training_losses(str(tmp_path))
    assert len(losses) == 334
    assert list(losses.items())[:2] == [(2, 1.0), (5, 4.0)]


@pytest.mark.slow
def test_two_exports_are_evaluated_on_the_same_rows(titanic, titanic_model, tmp_path, capsys, monkeypatch) -> None:
    folder = titanic_model.model_dir
    argv = ["--data_dir", titanic.path, "--model_dir", str(folder), "--output", str(tmp_path), "--overwrite"]
    (export,) = (Path(folder) / "export" / "best").glob("[0-9]*")
    assert evaluate.main([*argv, "--compare_with", str(export)]) == 0
    output = capsys.readouterr().out
    assert "No difference beyond chance: the log loss of " in output
    assert "is 0 higher than that of" in output
    assert f"page     {tmp_path}/compared-eval.html" in output
    monkeypatch.chdir(folder)
    assert evaluate.main([*argv, "--compare_with", f"export/best/{export.name}"]) == 0
    assert f"best/{export.name}" in (tmp_path / "compared-eval.html").read_text()
    capsys.readouterr()
    for report in tmp_path.glob("report-eval.*"):
        report.unlink()
    assert evaluate.main([*argv[:-1], "--compare_with", str(export)]) == 2
    assert "compared-eval.html: already exists; give --overwrite to replace it" in capsys.readouterr().err
    within = f"{titanic.path}/reports"
    assert evaluate.main([*argv[:-2], within]) == 2
    assert f"--output {within}: lies in {titanic.path}, which holds a dataset" in capsys.readouterr().err
    assert evaluate.main([*argv, "--compare_with", str(tmp_path)]) == 2
    assert f"{tmp_path}: holds no export" in capsys.readouterr().err
