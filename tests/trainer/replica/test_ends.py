"""How the processes of a training learn that others have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import MillraceError
from trainer.replica import cluster
from trainer.replica.cluster import Ends, Task

CHIEF, EVALUATOR = Task("chief", 0), Task("evaluator", 0)


def test_all_have_ended_when_each_has_written_so(tmp_path: Path) -> None:
    waiting = Ends(str(tmp_path), "job")
    assert not waiting.done([CHIEF, EVALUATOR])
    Ends(str(tmp_path), "job").write(CHIEF, 0)
    assert not waiting.done([CHIEF, EVALUATOR])
    assert waiting.done([CHIEF])
    assert waiting.done([])
    Ends(str(tmp_path), "job").write(EVALUATOR, 0)
    assert waiting.done([CHIEF, EVALUATOR])


def test_another_job_into_the_same_directory_is_not_meant(tmp_path: Path) -> None:
    Ends(str(tmp_path), "earlier").write(CHIEF, 0)
    assert not Ends(str(tmp_path), "job").done([CHIEF])


def test_a_task_that_is_started_again_has_not_ended(tmp_path: Path) -> None:
    waiting = Ends(str(tmp_path), "job")
    waiting.write(CHIEF, 1)
    assert not waiting.done([CHIEF])
    Ends(str(tmp_path), "job").clear(CHIEF)
    assert not waiting.done([CHIEF])
    waiting.write(CHIEF, 0)
    assert waiting.done([CHIEF])


def test_a_task_that_nobody_starts_again_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RESTART_SECONDS", 0.0)
    waiting = Ends(str(tmp_path), "job")
    waiting.write(EVALUATOR, 143)
    with pytest.raises(MillraceError, match="evaluator-0: ended with exit code 143, and was not started again"):
        waiting.done([CHIEF, EVALUATOR])


def test_a_store_that_cannot_be_read_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "replicas").write_text("in the place of the folder")
    assert not Ends(str(tmp_path), "job").done([CHIEF])
    (tmp_path / "replicas").unlink()
    Ends(str(tmp_path), "job").write(CHIEF, 0)
    (tmp_path / "replicas" / "job" / "evaluator-0.json").mkdir()
    assert not Ends(str(tmp_path), "job").done([CHIEF, EVALUATOR])
