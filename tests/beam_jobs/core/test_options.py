"""The command line: what it takes, and what it refuses before anything is imported or done."""

from __future__ import annotations

import pytest

from beam_jobs.core.options import parse
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
    ("arguments", "code", "message"),
    [
        (["--help"], 0, "--schema"),
        (["--schema", "nowhere.yaml", "--input", "x", "--output", "o"], 2, "nowhere.yaml"),
        (["--schema", "covertyp", "--input", "x", "--output", "o"], 2, "did you mean covertype?"),
    ],
)
def test_help_and_mistakes_answer_at_once(arguments, code, message):
    assert_light("beam_jobs.preprocess", arguments, code=code, message=message)
