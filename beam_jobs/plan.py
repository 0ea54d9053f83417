"""`python -m beam_jobs.plan`: what a preprocessing job would need, before it runs."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas import command
from schemas.errors import UsageError

if TYPE_CHECKING:
    from beam_jobs.planning.report import Plan

PROG = "python -m beam_jobs.plan"

_DESCRIPTION = """\
Says what a preprocessing job would read, write and need: records, shards, disk, memory, time on this machine, and on
Dataflow time and cost. Runs the job on two samples of the input, which takes about half a minute.
"""

_EPILOG = """\
examples:
  %(prog)s --schema covertype --input covtype.data
  %(prog)s --schema my.yaml --input 'gs://bucket/raw/*.csv' --runner DataflowRunner --machine_type n2-standard-4

Nothing is written but temporary files of two samples. docs/plan.md says what is assumed about Dataflow, and how good
the estimates are. Exit codes: 0 done, 1 failed, 2 invalid usage.
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    p = command.Parser(prog=prog, description=_DESCRIPTION, epilog=_EPILOG)
    p.add_argument("--schema", required=True, metavar="FILE", help="the job's schema, or the name of one that ships")
    p.add_argument(
        "--input", required=True, nargs="+", action="extend", metavar="PATTERN", help="the job's files or glob patterns"
    )
    p.add_argument(
        "--sample_mb",
        type=float,
        default=64.0,
        metavar="MB",
        help="size of the larger sample; the smaller one is a quarter of it (default: %(default)g)",
    )
    p.add_argument(
        "--shard_size_mb",
        type=float,
        default=64.0,
        metavar="MB",
        help="the job's size of shards (default: %(default)g)",
    )
    p.add_argument(
        "--compression", choices=("none", "gzip"), default="none", help="the job's compression (default: %(default)s)"
    )
    p.add_argument("--max_rejects", type=int, default=10, metavar="N", help="as of the job (default: %(default)s)")
    p.add_argument(
        "--max_reject_fraction", type=float, default=0.001, metavar="F", help="as of the job (default: %(default)s)"
    )
    p.add_argument(
        "--runner",
        choices=("FnApiRunner", "DataflowRunner"),
        default="FnApiRunner",
        help="DataflowRunner: also time and cost there (default: %(default)s, this machine)",
    )
    p.add_argument(
        "--machine_type",
        default="n2-standard-4",
        metavar="TYPE",
        help="of Dataflow's workers (default: %(default)s)",
    )
    p.add_argument(
        "--workers", type=int, nargs="+", default=[1, 4, 16], metavar="N", help="how many workers (default: 1 4 16)"
    )
    p.add_argument("--prices", metavar="FILE", help="a table of prices in YAML, instead of the assumed ones that ship")
    p.add_argument("--quiet", action="store_true", help=command.QUIET_HELP)
    p.add_argument("--json", action="store_true", help=command.JSON_HELP)
    return p


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses, plans, prints. Returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    given = parser(prog).parse_args(argv)
    from beam_jobs.planning import report

    found = plan(given)
    return command.Report(report.as_text(found), report.as_data(found))


def plan(given: argparse.Namespace) -> Plan:
    """Plans the job that the arguments describe.

    Raises:
      UsageError: an argument, the schema or the input is invalid.
      MillraceError: the input cannot be read, or the job on a sample failed.
    """
    from beam_jobs.core.options import JobOptions
    from beam_jobs.planning import prices, report
    from beam_jobs.planning.estimate import measure, needs, shards_of
    from beam_jobs.planning.report import Plan
    from beam_jobs.planning.sample import take
    from beam_jobs.runtime.job import plan_shards
    from beam_jobs.runtime.job_checks import check_inputs
    from schemas import storage
    from schemas.spec.images import ImageSchema
    from schemas.spec.loader import parse_schema

    table, kind = prices.read_prices(given.prices), prices.machine(given.machine_type)
    if not given.sample_mb > 0:
        raise UsageError(f"--sample_mb {given.sample_mb:g}: must be more than 0")
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
        listing = storage.list_files(options.input, on_duplicate=lambda *_: None)
        flags = ["--compression", options.compression, "--shard_size_mb", str(options.shard_size_mb)]
        measured = []
        for name, share in (("small", 0.25), ("large", 1.0)):
            size = int(share * given.sample_mb * 1e6)
            sample = take(schema, listing, classes=source.classes, size=size, folder=os.path.join(folder, name))
            if not given.quiet:
                print(f"running the job on {report.percent(sample.share)} of the input", file=sys.stderr, flush=True)
            measured.append(measure(sample, flags, os.path.join(folder, f"job-{name}")))
            if sample.share >= 1:
                break
        images = isinstance(schema, ImageSchema)
        found = needs(measured[0], measured[-1], shards_of(plan_shards(options, source, "staging", "temporary")))
    on_dataflow = given.runner == "DataflowRunner"
    return Plan(
        needs=found,
        records=schema.records,
        input_files=len(listing),
        input_bytes=listing.bytes,
        machine=kind if on_dataflow else None,
        currency=table.currency,
        fleets=[prices.fleet(found, n, kind, table, images=images) for n in given.workers] if on_dataflow else [],
        limit=max(options.max_rejects, options.max_reject_fraction * found.read),
    )


if __name__ == "__main__":
    sys.exit(main())
