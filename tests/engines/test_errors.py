"""Errors on Prism: the lines that the same job prints on this machine, and nothing else of Beam's."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from schemas import storage
from schemas.dataset import open_dataset
from schemas.storage import folders
from tests.support import commands
from tests.support import prism as prisms
from tests.support.datasets import folder_of_people
from tests.support.people import MEASURED_SCHEMA, people_csv, people_row
from tests.support.prism import Prism

BAD_ROWS = 60


def failing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """A preprocessing_fn whose graph fails on every batch."""
    wrong = tf.debugging.assert_less(inputs["age"], 0.0, message="no age is less than zero")
    with tf.control_dependencies([wrong]):
        return {"age": tf.identity(inputs["age"]), "y": inputs["y"]}


@pytest.fixture(scope="module")
def bad_rows(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments of a job that has too many bad rows, but for its output."""
    job = folder_of_people(tmp_path_factory.mktemp("bad"), MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * BAD_ROWS)
    return ["--quiet", "--schema", str(job.schema), "--input", str(job.raw)]


@dataclasses.dataclass(frozen=True)
class Failure:
    """What a failed job prints and keeps, without the name of its run and its folder."""

    code: int
    printed: list[str]
    summary: dict[str, Any]
    rejects: list[str]


def fail(arguments: list[str], output: Path) -> Failure:
    code, printed = commands.run(*arguments, "--output", str(output))
    (failed,) = (output / "failed").iterdir()
    assert os.listdir(output) == ["failed"]
    assert sorted(os.listdir(failed)) == ["rejects-00000.jsonl", "summary.json"]
    text = (failed / "summary.json").read_text()
    summary = json.loads(text.replace(str(output), "OUT").replace(failed.name, "RUN"))
    rejects = sorted((failed / "rejects-00000.jsonl").read_text().splitlines())
    lines = [line.replace(str(output), "OUT").replace(failed.name, "RUN") for line in printed]
    return Failure(code, lines, summary, rejects)


@pytest.fixture(scope="module")
def failure_here(bad_rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> Failure:
    """The job with too many bad rows on this machine."""
    failure = fail(bad_rows, tmp_path_factory.mktemp("here") / "out")
    assert (failure.code, len(failure.printed), len(failure.rejects)) == (1, 4, BAD_ROWS)
    assert f"rejected {BAD_ROWS} of {300 + BAD_ROWS} " in failure.printed[0]
    return failure


PRISMS = ["PortableRunner", "PrismRunner"]


def on(runner: str, prism: Prism) -> list[str]:
    args = ("--prism_location", str(prisms.BINARY)) if runner == "PrismRunner" else prism.beam_args
    return ["--runner", runner, *args]


@pytest.mark.engines
@pytest.mark.parametrize("runner", PRISMS)
def test_too_many_rejects_print_and_keep_what_they_do_on_this_machine(
    runner, prism, bad_rows, failure_here, tmp_path
) -> None:
    assert fail([*bad_rows, *on(runner, prism)], tmp_path / "out") == failure_here


@pytest.mark.engines
@pytest.mark.parametrize("runner", PRISMS)
def test_a_job_and_a_replay_that_succeed_print_nothing_of_beams(runner, prism, bad_rows, tmp_path) -> None:
    output = tmp_path / "out"
    limit = ("--max_rejects", str(BAD_ROWS))
    assert commands.run(*bad_rows, *limit, "--output", str(output), *on(runner, prism)) == (0, [])
    (rejects,) = output.glob("*/rejects-*.jsonl")
    lines = [json.loads(line) for line in rejects.read_text().splitlines()[:2]]
    for line, row in zip(lines, map(people_row, (1000, 1001)), strict=True):
        line["raw"] = row
    corrected = tmp_path / "corrected.jsonl"
    corrected.write_text("".join(json.dumps(line) + "\n" for line in lines))
    replay = ("--replay", str(corrected), "--append_to", str(output))
    assert commands.run("--quiet", *replay, *on(runner, prism)) == (0, [])
    assert open_dataset(str(output)).manifest.written == 302


@pytest.mark.engines
def test_an_error_of_another_library_is_one_line_and_verbose_prints_the_traceback(prism, tmp_path) -> None:
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    arguments = job.argv("--preprocessing_fn", f"{__name__}:failing_fn", *on("PortableRunner", prism))
    code, printed = commands.run("--quiet", *arguments)
    assert code == 1
    (line,) = printed
    assert line.startswith("error: ")
    assert "no age is less than zero" in line
    assert "--verbose" in line
    code, printed = commands.run("--quiet", *arguments, "--verbose")
    assert code == 1
    assert any("Traceback" in line for line in printed)
    assert printed[-1].startswith("error: ")


@pytest.mark.cloud
def test_too_many_rejects_on_dataflow_raise_the_workers_error_and_are_kept(running_cloud, dataflow, tmp_path) -> None:
    bucket = running_cloud.new_bucket()
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * BAD_ROWS)
    folders.upload(str(job.raw), f"{bucket}/people.csv")
    beam_args = dataflow.beam_args(bucket)
    there = {"input": (f"{bucket}/people.csv",), "output": f"{bucket}/out", "beam_args": beam_args}
    from beam_jobs.core.accounting import TooManyRejects

    with pytest.raises(TooManyRejects) as raised:
        job.run(runner="DataflowRunner", **there)
    assert len(str(raised.value).splitlines()) == 4
    assert f"rejected {BAD_ROWS} of {300 + BAD_ROWS} " in str(raised.value)
    assert storage.listdir(f"{bucket}/out") == ["failed"]
    (run,) = storage.listdir(f"{bucket}/out/failed")
    data = storage.read_bytes(f"{bucket}/out/failed/{run}/rejects-00000.jsonl")
    assert len(data.splitlines()) == BAD_ROWS
    storage.write_bytes(f"{bucket}/people.csv", people_csv(300).encode())
    assert job.run(runner="DataflowRunner", **there).manifest.written == 300  # the next job is not disturbed
