"""Pipelines on runners: submitted with this code, run here without what only clusters need, and their errors found."""

from __future__ import annotations

import dataclasses
import traceback
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_jobs import preprocess
from beam_jobs.core.accounting import TooManyRejects
from beam_jobs.engines import remote_job, runner
from beam_jobs.engines.runner import LocalRunner
from schemas.dataset import OpenDataset
from schemas.errors import MillraceError, UsageError
from tests.support import commands
from tests.support.datasets import Folder, folder_of_people
from tests.support.people import MEASURED_SCHEMA
from tests.support.written_records import records

MESSAGES = [
    "rows.csv: 3 bad rows",
    "two\nlines",
    "it ends with: colons: and [brackets]",
    "a name like [while waiting 'x'] within",
    "Unicode: Köln",
]
KILLED = "and no worker reported an error: one may have been killed, such as for memory"


def as_beam_reports(error: Exception, *, step: str = "ReadTrain") -> str:
    """What Beam's worker sends: the error's traceback, and that of the same error with the name of the step."""
    try:
        try:
            raise error
        except Exception as first:
            raise type(first)(f"{first} [while running '{step}']").with_traceback(first.__traceback__)  # noqa: B904
    except Exception:
        return traceback.format_exc()


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("cls", [MillraceError, TooManyRejects, UsageError])
@pytest.mark.parametrize(
    "around", ["{}", "bundle inst007 stage-009 failed:{}", "generic::unknown: {}\n\nat worker-1\n"]
)
def test_an_error_of_ours_comes_out_as_it_was_raised(cls: type[MillraceError], message: str, around: str) -> None:
    error = remote_job.reported(["a message before", around.format(as_beam_reports(cls(message)))])
    assert type(error) is cls
    assert str(error) == message


def test_the_last_error_of_ours_counts() -> None:
    texts = [as_beam_reports(MillraceError("first")), as_beam_reports(MillraceError("second")), "work item failed"]
    assert str(remote_job.reported(texts)) == "second"


@pytest.mark.parametrize(
    "text",
    ["", "SDK worker disconnected", "the name schemas.errors.MillraceError alone", as_beam_reports(ValueError())],
)
def test_other_texts_hold_no_error_of_ours(text: str) -> None:
    assert remote_job.reported([text]) is None


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ([], f"{KILLED}; the runner gave no reason"),
        ([""], f"{KILLED}; the runner gave no reason"),
        (["SDK worker disconnected:\n  worker 1"], f"{KILLED}; the runner says: SDK worker disconnected: worker 1"),
        (["bundle inst005 stage-003 failed:worker lost"], f"{KILLED}; the runner says: worker lost"),
        ([as_beam_reports(ValueError("no\nluck"), step="Encode")], "in the step 'Encode': ValueError: no luck"),
        ([as_beam_reports(KeyError("x"), step="A/B"), "the job failed"], "in the step 'A/B': KeyError: \"'x'\""),
    ],
)
def test_another_error_becomes_one_line_with_its_step(texts: list[str], line: str) -> None:
    assert remote_job.cause(texts) == line


def test_a_long_message_is_shortened() -> None:
    line = remote_job.cause([as_beam_reports(ValueError("x" * 10_000))])
    assert line.startswith("in the step 'ReadTrain': ValueError: xxx")
    assert line.endswith("...")
    assert len(line) < 600


def fail(job: Folder, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, str]:
    """The exit code of a job that fails, and the only line that it prints."""
    code = preprocess.main(job.argv("--quiet", *flags))
    (line,) = capsys.readouterr().err.splitlines()
    assert not list(job.output.glob("*"))
    return code, line


def test_a_jar_that_is_not_there(people, capsys) -> None:
    jar = ("--flink_job_server_jar", "http://127.0.0.1:1/flink.jar")
    code, line = fail(people, capsys, "--runner", "FlinkRunner", *jar)
    assert code == 1
    assert line.startswith("error: FlinkRunner: its job service did not start: ")
    assert "Unable to fetch remote job server jar at http://127.0.0.1:1/flink.jar" in line
    assert "install Java, and check --flink_job_server_jar" in line


def test_a_program_that_does_not_start_as_prism_does(people: Folder) -> None:
    flags = ["--runner", "PrismRunner", "--prism_location", "/bin/false"]
    code, (line,) = commands.run(*people.argv("--quiet", *flags))
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


# A mean, quantiles and a vocabulary: each is combined in another way.
SCHEMA = MEASURED_SCHEMA.replace(
    "size, kind: numeric, transform: none", "size, kind: numeric, transform: {bucketize: 4}"
)
SCHEMA = SCHEMA.replace("city, kind: ignore", "city, kind: category, missing: nowhere")


@dataclasses.dataclass
class Run:
    dataset: OpenDataset
    transforms: list[str]


def run(folder: Any, cls: type[FnApiRunner]) -> Run:
    """The job on people, and the transforms that were run."""

    class Leaves(PipelineVisitor):
        def visit_transform(self, transform_node: AppliedPTransform) -> None:
            names.append(transform_node.full_label)

    class Listing(cls):
        def run_pipeline(self, pipeline: beam.Pipeline, options: Any) -> Any:
            pipeline.visit(Leaves())
            return super().run_pipeline(pipeline, options)

    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "make_runner", lambda options: Listing())
        return Run(folder_of_people(folder, SCHEMA).run(), names)


@pytest.mark.slow
def test_a_local_job_writes_the_same_with_fewer_transforms(tmp_path):
    """Fails when Beam or tf.Transform has changed, and `LocalRunner` is to be changed or to go."""
    (tmp_path / "beams").mkdir()
    (tmp_path / "ours").mkdir()
    beams, ours = run(tmp_path / "beams", FnApiRunner), run(tmp_path / "ours", LocalRunner)
    for split in ("train", "eval", "test"):
        assert records(ours.dataset, split) == records(beams.dataset, split)
    for field in ("read", "written", "rejected"):
        assert getattr(ours.dataset.manifest, field) == getattr(beams.dataset.manifest, field)
    left_out = ("SplitHotCold", "Map(decode)", "CountedBytes", "IncrementCounters", "/Count/Count", "CountAPIUse")
    for part in left_out:
        assert any(part in name for name in beams.transforms), part
        assert not any(part in name for name in ours.transforms), part
    assert len(ours.transforms) < 0.9 * len(beams.transforms)
