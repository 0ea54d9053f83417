"""The command's mistakes: each a line that says what to do, before TensorFlow is started."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from millrace.serve import command
from tests.support.commands import ROOT, assert_light
from tests.support.exports import write_export


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
def test_wrong_usage(argv, said):
    assert_light("millrace.serve.command", argv, code=2, message=said)


@pytest.mark.parametrize(
    ("model_dir", "said"),
    [
        ("gs://bucket/model", "no Google Cloud credentials were found"),
        ("s3://bucket/model", "no AWS credentials were found"),
    ],
)
def test_without_credentials_it_says_so_and_nothing_else(model_dir, said, tmp_path):
    nobody = "127.0.0.1:1"  # no cloud gives this machine an account
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "GCE_", "GCLOUD_"))
    }
    env |= {"HOME": str(tmp_path), "GCE_METADATA_HOST": nobody, "GCE_METADATA_IP": nobody, "PYTHONPATH": str(ROOT)}
    env |= {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{nobody}",
        "CLOUDSDK_CONFIG": str(tmp_path),
        "NO_GCE_CHECK": "true",
    }
    command = [sys.executable, "-m", "millrace", "serve", "--model_dir", model_dir]
    done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {model_dir}/saved_model.pb: {said}")


def test_a_bad_export(tmp_path, capsys):
    made = write_export(tmp_path, 1)
    (made / "saved_model.pb").write_bytes(b"")
    assert command.main(["--model_dir", str(tmp_path), "--port", "0", "--json"]) == 1
    assert "no export in it can be served" in json.loads(capsys.readouterr().out)["error"]
