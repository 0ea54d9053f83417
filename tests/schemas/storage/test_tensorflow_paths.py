"""Which paths TensorFlow finds its own files in."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from beam_jobs import preprocess
from schemas.errors import UsageError
from schemas.storage.paths import check_characters
from trainer import task

GOOD = ["plain", "a[b", "a]b", "*", "?", "{a,b}", "a b#%41 ü"]
BAD = ["a[1]", "[!a]", "back\\slash"]


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_what_is_refused_is_what_tensorflow_does_not_find(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    saved = tf.train.Checkpoint(x=tf.Variable(1)).write(str(folder / "saved"))
    found = tf.compat.v1.train.checkpoint_exists(saved)
    assert found == (name in GOOD)
    if found:
        check_characters(str(folder))
    else:
        with pytest.raises(UsageError, match="for a pattern"):
            check_characters(str(folder))


def test_neither_a_job_nor_a_training_starts_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("")
    for main, flag, argv in (
        (preprocess.main, "--output", ["--schema", "covertype", "--input", str(tmp_path / "x.csv")]),
        (task.main, "--model_dir", ["--data_dir", str(tmp_path), "--max_steps", "1"]),
    ):
        assert main([*argv, flag, f"{tmp_path}/a[1]"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {flag} {tmp_path}/a[1]: TensorFlow takes [1] for a pattern")
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]
