"""The command line of bulk inference, before anything heavy is imported."""

from __future__ import annotations

import json
import subprocess
import sys

from beam_jobs import predict
from beam_jobs.predicting.options import parse

NEEDED = ["--saved_model", "m", "--input", "a.csv", "--output", "out"]


def test_errors_are_json_where_that_is_asked_for(capsys):
    assert predict.main([*NEEDED, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["exit_code"] == 2
    assert error["error"].startswith("m: no saved_model.pb")


def test_columns_are_named_with_commas_or_one_by_one():
    assert parse([*NEEDED, "--pass_through", "a, b", "--pass_through", "c"]).pass_through == ("a", "b", "c")


def test_workers_of_a_cluster_cannot_read_an_export_on_this_disk(capsys):
    argv = ["--saved_model", "m", "--input", "gs://b/a.csv", "--output", "gs://b/out", "--runner", "DataflowRunner"]
    assert predict.main([*argv, "--project", "p", "--region", "r", "--temp_location", "gs://b/tmp"]) == 2
    assert "--saved_model m: is on this machine's disk" in capsys.readouterr().err


def test_help_answers_without_a_heavy_import():
    code = "import sys; from beam_jobs import predict\n"
    code += "try: predict.main(['--help'])\n"
    code += "except SystemExit: print([m for m in ('tensorflow', 'apache_beam') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "--pass_through NAME,NAME" in out
    assert out.endswith("[]\n")
