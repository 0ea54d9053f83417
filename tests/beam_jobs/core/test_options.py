"""The command lines of jobs and of bulk inference: what they take and refuse before anything is imported or done."""

from __future__ import annotations

import json

import pytest

from beam_jobs import predict
from beam_jobs.core.options import parse
from beam_jobs.predicting.options import parse as parse_predict
from tests.support.commands import assert_light

MUST = ["--schema", "s.yaml", "--input", "a.csv", "--output", "out"]


def test_patterns_may_be_given_together_and_again():
    options = parse(["--schema", "s", "--input", "a", "b", "--input", "c", "--output", "o"])
    assert options.input == ("a", "b", "c")


def test_what_is_not_ours_is_passed_to_beam():
    assert parse([*MUST, "--temp_location", "gs://b/t", "--runner=DataflowRunner"]).beam_args == (
        "--temp_location",
        "gs://b/t",
    )


@pytest.mark.parametrize("runner", ["FnApiRunner", "DirectRunner"])
def test_both_local_names_mean_the_runner_in_this_process(runner):
    assert parse([*MUST, "--runner", runner]).is_local


@pytest.mark.parametrize(
    ("command", "arguments", "code", "message"),
    [
        ("preprocess", ["--help"], 0, "--schema"),
        ("preprocess", ["--schema", "nowhere.yaml", "--input", "x", "--output", "o"], 2, "nowhere.yaml"),
        ("preprocess", ["--schema", "covertyp", "--input", "x", "--output", "o"], 2, "did you mean covertype?"),
        ("predict", ["--help"], 0, "--pass_through NAME,NAME"),
    ],
)
def test_help_and_mistakes_answer_at_once(command, arguments, code, message):
    assert_light(f"beam_jobs.{command}", arguments, code=code, message=message)


NEEDED = ["--saved_model", "m", "--input", "a.csv", "--output", "out"]


def test_errors_are_json_where_that_is_asked_for(capsys):
    assert predict.main([*NEEDED, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)
    assert error["exit_code"] == 2
    assert error["error"].startswith("m: no such folder")


def test_columns_are_named_with_commas_or_one_by_one():
    assert parse_predict([*NEEDED, "--pass_through", "a, b", "--pass_through", "c"]).pass_through == ("a", "b", "c")


def test_workers_of_a_cluster_cannot_read_an_export_on_this_disk(capsys):
    argv = ["--saved_model", "m", "--input", "gs://b/a.csv", "--output", "gs://b/out", "--runner", "DataflowRunner"]
    assert predict.main([*argv, "--project", "p", "--region", "r", "--temp_location", "gs://b/tmp"]) == 2
    assert "--saved_model m: is on this machine's disk" in capsys.readouterr().err
