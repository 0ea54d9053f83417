"""`python -m beam_jobs.plan`: what a preprocessing job would need, before it runs."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Literal

from schemas import command
from schemas.errors import UsageError
from schemas.options import QUIET_HELP, Options, option, positive_finite

if TYPE_CHECKING:
    from beam_jobs.planning.report import Plan

PROG = "python -m beam_jobs.plan"
ROWS_MB, IMAGES_MB = 32.0, 8.0  # some seconds of work

_DESCRIPTION = """\
Says what a preprocessing job would read, write and need: records, shards, disk, memory, time on this machine, and on
Dataflow time and cost. Runs the job on two small samples of the input, in this process: some 20 s of CPU time.
"""

_EPILOG = """\
examples:
  %(prog)s --schema covertype --input covtype.data
  %(prog)s --schema my.yaml --input 'gs://bucket/raw/*.csv' --runner DataflowRunner --machine_type n2-standard-4

Nothing is written but temporary files of two samples. docs/plan.md says what is assumed about Dataflow, and how good
the estimates are. Exit codes: 0 done, 1 failed, 2 invalid usage.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanOptions(Options):
    """The job that is planned, and the machines that it is planned for."""

    schema: str = option("the job's schema, or the name of one that ships", metavar="FILE")
    input: tuple[str, ...] = option("the job's files or glob patterns", metavar="PATTERN")
    sample_mb: float | None = option(
        "size of the larger sample; the smaller one is a quarter of it (default: 32 of rows, 8 of images)",
        None,
        metavar="MB",
        check=positive_finite,
    )
    shard_size_mb: float = option("the job's size of shards (default: %(default)g)", 64.0, metavar="MB")
    compression: Literal["none", "gzip"] = option("the job's compression (default: %(default)s)", "none")
    max_rejects: int = option("as of the job (default: %(default)s)", 10)
    max_reject_fraction: float = option("as of the job (default: %(default)s)", 0.001, metavar="F")
    runner: Literal["FnApiRunner", "DataflowRunner"] = option(
        "DataflowRunner: also time and cost there (default: %(default)s, this machine)", "FnApiRunner"
    )
    machine_type: str = option("of Dataflow's workers (default: %(default)s)", "n2-standard-4", metavar="TYPE")
    workers: tuple[int, ...] = option("how many workers (default: 1 4 16)", (1, 4, 16), action="store")
    prices: str | None = option(
        "a table of prices in YAML, instead of the assumed ones that ship", None, metavar="FILE"
    )
    quiet: bool = option(QUIET_HELP, False)


def _run(options: PlanOptions, prog: str) -> command.Report:
    from beam_jobs.planning import report

    found = plan(options)
    return command.Report(report.as_text(found), report.as_data(found), only_printed=True)


def plan(given: PlanOptions) -> Plan:
    """Plans the job that the arguments describe.

    Raises:
      UsageError: an argument, the schema or the input is invalid.
      MillraceError: the input cannot be read, or the job on a sample failed.
    """
    from beam_jobs.core.children import CHILD_BYTES, LIBRARIES_BYTES, with_libraries, workers_by_default
    from beam_jobs.core.options import JobOptions
    from beam_jobs.core.source import list_input
    from beam_jobs.planning import report
    from beam_jobs.planning.estimate import boosting_memory, cpu_seconds, measure, needs, shards_of
    from beam_jobs.planning.report import Plan
    from beam_jobs.planning.sample import take
    from beam_jobs.runs.job import check_inputs
    from beam_jobs.runs.run import load_libraries
    from beam_jobs.runs.write import plan_shards
    from schemas.spec.images import ImageSchema
    from schemas.spec.loader import parse_schema

    table, kind = report.read_prices(given.prices), report.machine(given.machine_type)
    if min(given.workers) < 1:
        raise UsageError(f"--workers {min(given.workers)}: must be 1 or more")
    with tempfile.TemporaryDirectory(prefix="millrace-plan-") as folder:
        options = JobOptions(
            schema=given.schema,
            input=tuple(given.input),
            output=os.path.join(folder, "never-written"),
            shard_size_mb=given.shard_size_mb,
            compression=given.compression,
            max_rejects=given.max_rejects,
            max_reject_fraction=given.max_reject_fraction,
        )
        source = check_inputs(options)
        schema = parse_schema(source.schema_text, options.schema)
        listing = list_input(options.input)[0]
        images = isinstance(schema, ImageSchema)
        most = 1e6 * (given.sample_mb or (IMAGES_MB if images else ROWS_MB))
        small, large = (
            take(schema, listing, classes=source.classes, size=int(size), folder=os.path.join(folder, name))
            for name, size in (("small", most / 4), ("large", most))
        )
        began, cpu = time.monotonic(), cpu_seconds()
        load_libraries(quiet=given.quiet)
        loading = time.monotonic() - began, cpu_seconds() - cpu
        measured = []
        for sample in (small, large) if small.share < large.share else (large,):
            if not given.quiet:
                print(f"running the job on {report.percent(sample.share)} of the input", file=sys.stderr, flush=True)
            measured.append(measure(sample, options, os.path.join(folder, "job")))
        shards = shards_of(plan_shards(options, source, "staging", "temporary"))
        found = needs(measured[0], measured[-1], shards, loading=loading)
        if not images:  # the samples are too small for processes that decode
            children = workers_by_default(listing.bytes) - 1
            beside = children * CHILD_BYTES + with_libraries(children, listing.bytes) * LIBRARIES_BYTES
            found = dataclasses.replace(found, memory=found.memory + beside)
    on_dataflow = given.runner == "DataflowRunner"
    return Plan(
        needs=found,
        records=schema.records,
        input_files=len(listing),
        input_bytes=listing.bytes,
        machine=kind if on_dataflow else None,
        currency=table.currency,
        fleets=[report.fleet(found, n, kind, table, images=images) for n in given.workers] if on_dataflow else [],
        boosting_memory=None if isinstance(schema, ImageSchema) else boosting_memory(schema, found.split_rows),
        limit=max(options.max_rejects, options.max_reject_fraction * found.read),
    )


COMMAND = command.Command(prog=PROG, options=PlanOptions, work=_run, description=_DESCRIPTION, epilog=_EPILOG)
parser, main = COMMAND.parser, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
