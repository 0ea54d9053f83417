"""The options of Beam's own that this package looks at too, read before Beam is imported."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class BeamFlags:
    """Values of Beam's options; None for those that are not given."""

    project: str | None = None
    region: str | None = None
    temp_location: str | None = None
    staging_location: str | None = None
    template_location: str | None = None
    worker_region: str | None = None
    worker_zone: str | None = None
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

    @property
    def work_region(self) -> str | None:
        """The region whose machines read and write the data."""
        return self.worker_region or (self.worker_zone or "").rpartition("-")[0] or self.region


def read_flags(beam_args: Sequence[str]) -> BeamFlags:
    """Reads them from arguments that are Beam's; unknown ones and those without a value are left to Beam."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    for field in dataclasses.fields(BeamFlags):
        if field.name == "no_auth":
            parser.add_argument("--no_auth", action="store_true")
        else:
            parser.add_argument(f"--{field.name}", nargs="?")
    return BeamFlags(**vars(parser.parse_known_args(list(beam_args))[0]))


def is_dataflow(runner: str) -> bool:
    """Whether a runner's name, or the dotted name of its class, is that of Dataflow's."""
    return runner.rpartition(".")[2] == "DataflowRunner"
