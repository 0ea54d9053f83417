"""The file for Vertex AI's tuner, in the form of Google's cloudml-hypertune."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.loop import evaluations


@pytest.fixture(autouse=True)
def nothing_reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(evaluations.FILE, raising=False)
    monkeypatch.delenv(evaluations.TRIAL, raising=False)
    evaluations._reported.clear()
    yield
    evaluations._reported.clear()


def test_each_evaluation_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "hypertune" / "output.metrics"
    monkeypatch.setenv(evaluations.FILE, str(path))
    monkeypatch.setenv(evaluations.TRIAL, "3")
    evaluations.report("accuracy", 0.5, 100)
    evaluations.report("accuracy", 0.75, 200)
    lines = path.read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert all(isinstance(entry.pop("timestamp"), float) for entry in found)
    assert found == [
        {"accuracy": "0.5", "checkpoint_path": "", "global_step": "100", "trial": "3"},
        {"accuracy": "0.75", "checkpoint_path": "", "global_step": "200", "trial": "3"},
    ]
    assert [list(json.loads(line)) for line in lines] == [sorted(json.loads(line)) for line in lines]


def test_the_latest_hundred_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(evaluations.FILE, str(tmp_path / "output.metrics"))
    for step in range(150):
        evaluations.report("auc", 0.9, step)
    steps = [json.loads(line)["global_step"] for line in (tmp_path / "output.metrics").read_text().splitlines()]
    assert steps == [str(step) for step in range(50, 150)]


def test_nothing_is_written_where_there_is_no_tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluations, "DEFAULT_FILE", str(tmp_path / "output.metrics"))
    evaluations.report("auc", 0.9, 1)
    assert list(tmp_path.iterdir()) == []
