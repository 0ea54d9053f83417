"""Credentials in the environment are in nothing that a job or a training writes or says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from beam_jobs import preprocess
from schemas.samples import tables
from tests.support.datasets import folder_of_people
from tests.support.people import LEAN_SCHEMA

ROOT = Path(__file__).parent.parent
SECRET = "SENTINEL-5f3a91c0-not-to-be-seen"
VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_OAUTH_ACCESS_TOKEN", "HF_TOKEN", "DB_PASSWORD")


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """A service account's key file, its path, and tokens."""
    key = tmp_path / "credentials" / "key.json"
    key.parent.mkdir()
    key.write_text(json.dumps({"type": "service_account", "private_key": SECRET, "client_email": "a@b.c"}))
    secrets = dict.fromkeys(VARIABLES, SECRET)
    return {**os.environ, **secrets, "GOOGLE_APPLICATION_CREDENTIALS": str(key)}


@pytest.mark.long
def test_no_file_and_no_message_contains_them(tmp_path, environment):
    work = tmp_path / "work"
    work.mkdir()
    people = folder_of_people(work, LEAN_SCHEMA)
    job = ["beam_jobs.preprocess", "--schema", str(people.schema), "--input", str(people.raw)]
    training = ["trainer.task", "--data_dir", str(work / "out"), "--model_dir", str(work / "model"), "--verbose"]
    training += ["--model", "linear", "--max_steps", "2", "--batch_size", "32"]
    for command in ([*job, "--output", str(work / "out"), "--num_shards", "1"], training):
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        assert SECRET.encode() not in done.stdout + done.stderr
        assert b"key.json" not in done.stdout + done.stderr
    written = [path for path in work.rglob("*") if path.is_file()]
    assert len(written) > 30
    assert not [path for path in written if SECRET.encode() in path.read_bytes() or b"key.json" in path.read_bytes()]


@pytest.mark.parametrize(
    "flag", ["--s3_secret_access_key", "--azure_connection_string", "--s3_session_token", "--password"]
)
@pytest.mark.parametrize("form", ["{flag}={secret}", "{flag} {secret}"])
def test_secrets_are_no_pipeline_options(tmp_path, capsys, flag, form):
    argv = ["--schema", "x.yaml", "--input", "x.csv", "--output", str(tmp_path / "out")]
    assert preprocess.main([*argv, *form.format(flag=flag, secret=SECRET).split()]) == 2
    err = capsys.readouterr().err
    assert f"{flag}: do not pass secrets on the command line" in err
    assert SECRET not in err


def test_an_unknown_option_is_named_without_its_value(tmp_path, capsys):
    tables.write_sample("titanic", str(tmp_path / "raw.csv"), rows=100, seed=1)
    argv = ["--schema", str(ROOT / "schemas" / "titanic.yaml"), "--input", str(tmp_path / "raw.csv")]
    assert preprocess.main([*argv, "--output", str(tmp_path / "out"), "--quiet", f"--pipeline_pin={SECRET}"]) == 2
    err = capsys.readouterr().err
    assert "--pipeline_pin: not an option of this command" in err
    assert SECRET not in err
