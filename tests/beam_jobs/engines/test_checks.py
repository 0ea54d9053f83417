"""Mistakes in how a cluster is used are usage errors of one line, found before anything is staged or imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from beam_jobs import preprocess
from beam_jobs.core.options import AppendOptions, JobOptions, parse_as
from beam_jobs.engines.checks import check_cluster
from schemas.errors import UsageError
from tests.support.commands import run_program
from tests.support.people import LEAN_SCHEMA, people_csv

DATAFLOW = ("--project=p", "--region=us-central1", "--temp_location=gs://b/tmp")
GCS = {"--input": ("gs://b/in.csv",), "--output": ("gs://b/out",)}

IMAGES = """\
name: photos
format: image_folder
images: {listing: csv, root: /photos, resize: {exact: [8, 8]}}
label: {values: [a, b]}
split: {by: content, train: 0.8, eval: 0.1, test: 0.1}
"""


def options(runner: str = "DataflowRunner", beam_args: tuple[str, ...] = DATAFLOW, **changes) -> JobOptions:
    return JobOptions("covertype", GCS["--input"], "gs://b/out", runner=runner, beam_args=beam_args, **changes)


def without(*names: str) -> tuple[str, ...]:
    return tuple(arg for arg in DATAFLOW if arg.split("=")[0][2:] not in names)


@pytest.mark.parametrize(
    ("job_options", "message"),
    [
        (options(beam_args=without("project")), "--project: missing; DataflowRunner needs the Google Cloud project"),
        (options(beam_args=without("region")), "--region: missing; .* such as us-central1"),
        (options(beam_args=without("temp_location")), "--temp_location: missing; .* gs://my-bucket/tmp"),
        (
            options(beam_args=(*without("temp_location"), "--temp_location", "/tmp/x")),
            "--temp_location /tmp/x: must be in a bucket",
        ),
        (options(beam_args=(*DATAFLOW, "--staging_location=/tmp/x")), "--staging_location /tmp/x: must be in a bucket"),
        *(
            (
                options(beam_args=(*DATAFLOW, f"--{name}={address}")),
                f"--{name} {address}: .* is not",
            )
            for name, address in (
                ("temp_location", "gs://"),
                ("staging_location", "gs:///x"),
            )
        ),
        (
            options(beam_args=(*DATAFLOW, "--template_location=gs://b/template")),
            "--template_location: a classic template would .* use --no_wait, or the Flex Template",
        ),
        (
            options("apache_beam.runners.dataflow.DataflowRunner", without("region")),
            "--region: missing",
        ),
        (options("PrismRunner", (), no_wait=True), "--no_wait: a job on PrismRunner .* cannot be asked about"),
        (options("FlinkRunner", ("--flink_master=host:8081",), no_wait=True), "--no_wait: a job on FlinkRunner"),
        (options("PortableRunner", ()), "--job_endpoint: missing; PortableRunner needs HOST:PORT"),
        (options("PrismRunner", ("--prism_location=no/prism",)), "--prism_location no/prism: no such file; `make"),
        (
            options("PortableRunner", ("--job_endpoint=h:1", "--environment_type=LOOPBACK"), no_wait=True),
            "--no_wait: .* other than LOOPBACK",
        ),
    ],
)
def test_what_a_runner_needs_is_asked_for_in_one_line(job_options: JobOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        check_cluster(job_options, GCS)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("job_options", "option", "path", "message"),
    [
        (options(), "--output", "out", "--output out: is on this machine's disk, .* copy it to a bucket"),
        (options(), "--input", "/data/*.csv", r"--input /data/\*.csv: is on this machine's disk"),
        (options(shared_disk=True), "--output", "out", "--output out: is on this machine's disk"),
        (options(), "--output", "gs:///out", "--output gs:///out: expected gs://bucket/name"),
        (options("PortableRunner", ("--job_endpoint=10.0.0.5:8099",)), "--output", "/o", "workers of 10.0.0.5:8099"),
        (options("FlinkRunner", ("--flink_master=jobs:8081",)), "--input", "in.csv", "or give --shared_disk"),
        (options("SparkRunner", ("--spark_master_url=spark://m:7077",)), "--input", "in.csv", "spark://m:7077"),
    ],
)
def test_what_workers_elsewhere_cannot_reach_is_refused(
    job_options: JobOptions, option: str, path: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        check_cluster(job_options, {**GCS, option: (path,)})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "job_options",
    [
        options("FnApiRunner", ()),
        options("PrismRunner", ()),
        options("PortableRunner", ("--job_endpoint=localhost:8099",)),
        options("PortableRunner", ("--job_endpoint=embed",)),
        options("PortableRunner", ("--job_endpoint=far:8099",), shared_disk=True),
        options("FlinkRunner", ("--flink_master=[local]",)),
        options("SparkRunner", ("--spark_master_url=local[4]",)),
    ],
)
def test_runners_on_this_machine_and_shared_disks_may_use_local_paths(job_options: JobOptions) -> None:
    check_cluster(job_options, {"--input": ("in.csv",), "--output": ("/out",)})


def test_a_job_on_dataflow_or_on_a_job_server_of_its_own_may_be_left() -> None:
    check_cluster(options(no_wait=True), GCS)
    server = ("--job_endpoint=server:8099", "--environment_type=EXTERNAL", "--environment_config=pool:50000")
    check_cluster(options("PortableRunner", server, no_wait=True), GCS)


def test_the_in_process_runner_cannot_be_left() -> None:
    with pytest.raises(UsageError, match="--no_wait: the job runs in this process with FnApiRunner"):
        options("FnApiRunner", (), no_wait=True)


def test_the_command_exits_with_2_and_one_line_and_imports_neither_beam_nor_tensorflow(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text(people_csv(10))
    (tmp_path / "schema.yaml").write_text(LEAN_SCHEMA)
    argv = ["--schema", "schema.yaml", "--input", "people.csv", "--output", "out", "--runner", "DataflowRunner"]
    program = (
        "import sys; from beam_jobs.preprocess import main; code = main(sys.argv[1:]); "
        "print(code, 'apache_beam' in sys.modules, 'tensorflow' in sys.modules)"
    )
    done = run_program(program, *argv, *DATAFLOW, cwd=tmp_path)
    assert done.stdout == "2 False False\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --input people.csv: is on this machine's disk")
    assert not (tmp_path / "out").exists()


def test_a_root_of_images_that_dataflow_cannot_reach_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "schema.yaml").write_text(IMAGES)
    argv = ["--schema", str(tmp_path / "schema.yaml"), "--input", "gs://b/list.csv", "--output", "gs://b/out"]
    assert preprocess.main([*argv, "--runner", "DataflowRunner", *DATAFLOW]) == 2
    assert "the `root` in" in (message := capsys.readouterr().err)
    assert "/photos: is on this machine's disk" in message


def test_an_append_and_a_replay_take_what_allows_a_path() -> None:
    argv = ["--replay", "c.jsonl", "--append_to", "out", "--runner", "FlinkRunner", "--flink_master", "far:8081"]
    allowed = parse_as(AppendOptions, [*argv, "--shared_disk"])
    check_cluster(allowed, {"--append_to": ("out",)})
    with pytest.raises(UsageError, match="--append_to out: is on this machine's disk"):
        check_cluster(parse_as(AppendOptions, argv), {"--append_to": ("out",)})
