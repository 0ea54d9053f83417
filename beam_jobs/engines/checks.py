"""Reads Beam's own options, and finds wrong options for a cluster early: before Beam is imported or input is staged."""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from beam_jobs.core.options import JobOptions, RunnerOptions
from schemas import storage
from schemas.errors import UsageError
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema


@dataclasses.dataclass(frozen=True)
class BeamFlags:
    """The values of Beam's options that this project reads; None for an option that is not given."""

    project: str | None = None
    region: str | None = None
    temp_location: str | None = None
    staging_location: str | None = None
    template_location: str | None = None
    dataflow_endpoint: str | None = None
    impersonate_service_account: str | None = None
    job_endpoint: str | None = None
    prism_location: str | None = None
    job_name: str | None = None
    environment_type: str | None = None
    flink_master: str | None = None
    spark_master_url: str | None = None
    sdk_container_image: str | None = None
    setup_file: str | None = None
    no_auth: bool = False


def read_flags(beam_args: Sequence[str]) -> BeamFlags:
    """Reads the options of BeamFlags from the command line arguments for Beam.

    Other options are ignored here. An option without its value counts as not given. Beam itself reports such errors.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    for field in dataclasses.fields(BeamFlags):
        if field.name == "no_auth":
            parser.add_argument("--no_auth", action="store_true")
        else:
            parser.add_argument(f"--{field.name}", nargs="?")
    return BeamFlags(**vars(parser.parse_known_args(list(beam_args))[0]))


def is_dataflow(runner: str) -> bool:
    """Returns whether a runner is Dataflow's. `runner`: a name, or the dotted name of the runner's class."""
    return runner.rpartition(".")[2] == "DataflowRunner"


_ENVIRONMENTS = ("DOCKER", "PROCESS", "EXTERNAL", "LOOPBACK")
_GCS = "gs://"
# Addresses of a job service, of Flink or of Spark that are on this machine.
_LOOPBACK = re.compile(
    r"(\w+://)?(localhost|127(\.\d+){3}|\[::1\])(:\d+)?/?|embed|auto|\[(local|auto)\]|local(\[.*\])?"
)


def check_cluster(options: RunnerOptions, paths: Mapping[str, Iterable[str]]) -> None:
    """Checks the options of a job that runs on a cluster. Does nothing for a local job.

    Args:
      options: the job's options.
      paths: the paths that workers read or write, by the option that names them.

    Raises:
      UsageError: an option is missing or contradicts other options, a path is on a disk that workers cannot reach, or
        the address of a bucket is invalid.
    """
    if options.is_local:
        return
    flags = read_flags(options.beam_args)
    if flags.template_location is not None and not options.flex_template:
        raise UsageError(
            "--template_location: a classic template would write every dataset into one run, and nobody would commit "
            "it; use --no_wait, or the Flex Template in docker/flex_template (docs/dataflow.md)"
        )
    _check_service(options.runner.rpartition(".")[2], flags)
    if is_dataflow(options.runner):
        _check_dataflow(flags)
        on_disk = f"is on this machine's disk, and {options.runner}'s workers have disks of their own"
        _refuse(storage.is_local, paths, f"{on_disk}; copy it to a bucket")
        _check_buckets(flags, paths)
    elif not options.shared_disk and (master := _other_host(flags)) is not None:
        on_disk = f"is on this machine's disk, and the workers of {master} may have disks of their own"
        _refuse(
            storage.is_local,
            paths,
            f"{on_disk}; copy it to a bucket, or give --shared_disk if all of them have this path",
        )
    if options.no_wait:
        check_can_leave(options)


def check_can_leave(options: RunnerOptions) -> None:
    """Checks that --no_wait is possible: this process may end while the job goes on.

    Raises:
      UsageError: the job would end with this process, or its runner could not be asked about the job later.
    """
    if not can_leave(options):
        raise UsageError(
            f"--no_wait: a job on {options.runner} with these options cannot be asked about once this process has "
            "ended; use DataflowRunner, or PortableRunner with --job_endpoint HOST:PORT and an --environment_type "
            "other than LOOPBACK"
        )


def can_leave(options: RunnerOptions) -> bool:
    """Returns whether a job goes on after this process has ended, and its runner can be asked about the job later."""
    if is_dataflow(options.runner):
        return True
    flags = read_flags(options.beam_args)
    if options.runner.rpartition(".")[2] != "PortableRunner" or flags.job_endpoint in (None, "embed"):
        return False  # other runners start a job server of their own, which ends with this process
    return flags.environment_type != "LOOPBACK"  # with LOOPBACK, the workers end with this process


def read_or_written(options: JobOptions, schema: AnySchema) -> dict[str, tuple[str, ...]]:
    """Returns the paths that a job's workers read or write, by the option that names them."""
    paths = {"--input": options.input, "--output": (options.output,)}
    if options.transform_from is not None:
        paths["--transform_from"] = (options.transform_from,)
    root = schema.images.root if isinstance(schema, ImageSchema) else None
    if root is not None and (root.startswith("/") or "://" in root):  # another root is relative to an input file
        paths[f"the `root` in {options.schema}:"] = (root,)
    return paths


def _check_service(runner: str, flags: BeamFlags) -> None:
    """Checks the options of runners with a job service: its address or program, and how its workers are started."""
    if runner == "PortableRunner" and flags.job_endpoint is None:
        raise UsageError(
            "--job_endpoint: missing; PortableRunner needs HOST:PORT of a job service, such as localhost:8073"
        )
    environment = flags.environment_type
    if environment and environment not in _ENVIRONMENTS and not environment.startswith("beam:env:"):
        raise UsageError(f"--environment_type {environment}: unknown; choose from {', '.join(_ENVIRONMENTS)}")
    prism = flags.prism_location
    is_path = prism is not None and os.sep in prism and "://" not in prism
    if runner == "PrismRunner" and prism is not None and is_path and not os.path.isfile(prism):
        raise UsageError(
            f"--prism_location {prism}: no such file; `make cloud-tools` builds it, and without this option Beam "
            "downloads it"
        )


def _check_dataflow(flags: BeamFlags) -> None:
    """Checks the options of Dataflow. Raises UsageError if one is missing or wrong."""
    for name, value, what in (
        ("project", flags.project, "the Google Cloud project that the job runs in"),
        ("region", flags.region, "the region that the job runs in, such as us-central1"),
        ("temp_location", flags.temp_location, "a folder for temporary files, such as gs://my-bucket/tmp"),
    ):
        if not value:
            raise UsageError(f"--{name}: missing; DataflowRunner needs {what}")
    if flags.setup_file is not None and not os.path.isfile(flags.setup_file):
        raise UsageError(f"--setup_file {flags.setup_file}: no such file")
    for name, value in (("temp_location", flags.temp_location), ("staging_location", flags.staging_location)):
        if value is not None and not value.startswith(_GCS):
            raise UsageError(f"--{name} {value}: must be in a bucket, such as gs://my-bucket/tmp")


def _refuse(unreachable: Callable[[str], bool], paths: Mapping[str, Iterable[str]], why: str) -> None:
    """Raises UsageError, with the reason `why`, for the first path that workers cannot reach."""
    for option, values in paths.items():
        for path in values:
            if unreachable(path):
                raise UsageError(f"{option} {path}: {why}")


def _other_host(flags: BeamFlags) -> str | None:
    """The address of a cluster on other machines; None if all addresses in the options are on this machine."""
    addresses = (flags.job_endpoint, flags.flink_master, flags.spark_master_url)
    return next((a for a in addresses if a and not _LOOPBACK.fullmatch(a)), None)


def _check_buckets(flags: BeamFlags, paths: Mapping[str, Iterable[str]]) -> None:
    """Checks that all gs:// paths are valid, and that Beam's own folders are in a bucket. Raises UsageError."""
    folders = {"--temp_location": flags.temp_location, "--staging_location": flags.staging_location}
    addresses = [(option, path) for option, values in paths.items() for path in values if path.startswith(_GCS)]
    addresses += [(option, path) for option, path in folders.items() if path is not None]
    for option, path in addresses:
        try:
            storage.split_address(path)
        except UsageError as error:
            raise UsageError(f"{option} {error}") from error
