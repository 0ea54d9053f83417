"""The command's mistakes: each a line that says what to do, before TensorFlow is started."""

from __future__ import annotations

import json

import pytest

from tests.support.small_exports import write_export
from trainer import serve


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "the following arguments are required: --model_dir"),
        (["--model_dir", "nowhere"], "nowhere: no such folder; expected a model directory, an export, or a folder"),
        (["--model_dir", "nowhere", "--port", "99999"], "--port 99999: must be between 0 and 65,535"),
        (["--model_dir", "nowhere", "--port", "0", "--host", "0.0.0.0"], "other machines can reach this address"),
        (["--model_dir", "nowhere", "--max_rows", "0"], "--max_rows 0: must be more than 0"),
        (["--model_dir", "nowhere", "--token", "secret"], "unrecognized arguments: --token"),
    ],
)
def test_wrong_usage(argv, said, capsys):
    assert serve.main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_bad_export(tmp_path, capsys):
    made = write_export(tmp_path, 1)
    (made / "saved_model.pb").write_bytes(b"")
    assert serve.main(["--model_dir", str(tmp_path), "--port", "0", "--json"]) == 1
    assert "no export in it can be served" in json.loads(capsys.readouterr().out)["error"]
