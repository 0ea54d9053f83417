"""A runner that does not start, or does not accept its options, is one line that says what to do."""

from __future__ import annotations

import pytest

from beam_jobs import preprocess
from tests.support import commands
from tests.support.people import Job


def fail(job: Job, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """The exit code of a job that fails, and the only line that it prints."""
    code = preprocess.main(["--quiet", *paths(job), *flags])
    (line,) = capsys.readouterr().err.splitlines()
    assert not list(job.output.glob("*"))
    return code, line


def paths(job: Job) -> list[str]:
    return ["--schema", str(job.schema), "--input", str(job.raw), "--output", str(job.output)]


@pytest.mark.parametrize(
    ("flags", "found", "what_to_do"),
    [
        (
            ("FlinkRunner", "--flink_job_server_jar", "http://127.0.0.1:1/flink.jar"),
            "Unable to fetch remote job server jar at http://127.0.0.1:1/flink.jar",
            "install Java, and check --flink_job_server_jar",
        ),
        (
            ("SparkRunner", "--spark_job_server_jar", "no.jar"),
            "Unable to parse jar URL",
            "install Java, and check --spark_job_server_jar",
        ),
    ],
)
def test_a_jar_that_is_not_there(people, capsys, flags, found: str, what_to_do: str) -> None:
    code, line = fail(people, capsys, "--runner", *flags)
    assert code == 1
    assert line.startswith(f"error: {flags[0]}: its job service did not start: ")
    assert found in line
    assert what_to_do in line


def test_a_program_that_does_not_start_as_prism_does(people: Job) -> None:
    flags = ["--runner", "PrismRunner", "--prism_location", "/bin/false"]
    code, (line,) = commands.run("--quiet", *paths(people), *flags)
    assert code == 1
    assert line.startswith("error: PrismRunner: its job service did not start: Service failed to start up with error 1")
    assert "check --prism_location" in line


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("PrismRunner", "--environment_type", "FOO"),
            "--environment_type FOO: unknown; choose from DOCKER, PROCESS, EXTERNAL, LOOPBACK",
        ),
        (
            ("PrismRunner", "--environment_type", "EXTERNAL"),
            "PrismRunner: Option external_service_address is required for environment type EXTERNAL",
        ),
    ],
)
def test_options_that_beam_does_not_accept(people, capsys, flags, message: str) -> None:
    code, line = fail(people, capsys, "--runner", *flags)
    assert (code, line[: len(message) + 7]) == (2, f"error: {message}")
