"""The command line: what it takes, and what it refuses before anything is imported or done."""

from __future__ import annotations

import re

import pytest

from beam_jobs.core.options import parse
from schemas.errors import UsageError
from tests.support.light_commands import assert_light

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
    ("arguments", "message"),
    [
        ([], "required: --schema, --input, --output"),
        ([*MUST, "--num_shards", "0"], "--num_shards 0: must be 1 or more"),
        ([*MUST, "--num_shards", "two"], "invalid int value: 'two'"),
        ([*MUST, "--num_shards", "2", "--shard_size_mb", "3"], "not allowed with argument"),
        ([*MUST, "--shard_size_mb", "0"], "must be more than 0"),
        ([*MUST, "--max_reject_fraction", "1.5"], "must be from 0 to 1"),
        ([*MUST, "--max_input_ratio", "0"], "--max_input_ratio 0: must be more than 0"),
        (
            [*MUST, "--input", "hdfs://b/x.csv"],
            "--input hdfs://b/x.csv: unsupported address; use a local path, gs:// or s3://",
        ),
        (
            [*MUST, "--output", "hdfs://b/out"],
            "--output hdfs://b/out: unsupported address; use a local path, gs:// or s3://",
        ),
        (
            [*MUST, "--transform_from", "hdfs://b/out"],
            "--transform_from hdfs://b/out: unsupported address; use a local path, gs:// or s3://",
        ),
        ([*MUST, "--output", "gs:/b/out"], "--output gs:/b/out: is no address of a bucket; did you mean gs://b/out?"),
        ([*MUST, "--output", "s3:/b/out"], "--output s3:/b/out: is no address of a bucket; did you mean s3://b/out?"),
        ([*MUST, "--input", "GS://b/*"], "--input GS://b/*: is no address of a bucket; did you mean gs://b/*?"),
        (
            [*MUST, "--output", "s3://b/out", "--runner", "DataflowRunner"],
            "s3://b/out: TensorFlow cannot read or write s3://, and writes the transform there on "
            "DataflowRunner; use gs://, or leave out --runner",
        ),
        ([*MUST, "--output", "s3://b/out", "--runner", "PrismRunner"], "use a local folder or gs://, or leave out"),
        ([*MUST, "--max_rejects", "-1"], "must be 0 or more"),
        ([*MUST, "--start_timeout", "-1"], "--start_timeout -1.0: must be 0 or more"),
        ([*MUST, "--start_timeout", "nan"], "--start_timeout nan: must be 0 or more"),
        ([*MUST, "--compression", "zip"], "invalid choice: 'zip'"),
        ([*MUST, "--preprocessing_fn", "module"], "must be package.module:function"),
        ([*MUST, "--preprocessing_fn", "a:b", "--transform_from", "o"], "give only one"),
        ([*MUST, "--runner", "DataflowRuner"], "unknown runner; did you mean DataflowRunner?"),
        ([*MUST, "--num-shards", "3"], "did you mean --num_shards?"),
        ([*MUST, "--overwite"], "did you mean --overwrite?"),
        ([*MUST, "--append-to", "x"], "did you mean --append_to?"),
    ],
)
def test_mistakes_are_named(arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        parse(arguments)


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
