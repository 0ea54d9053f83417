"""`python -m schemas.dataset verify|show|stats|head|prune DIR`: inspects and cleans up a dataset directory."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import threading
import time
from collections.abc import Sequence

from schemas import command, storage
from schemas.dataset import layout
from schemas.errors import UsageError
from schemas.storage.json_files import as_written

_EPILOG = """\
examples:
  %(prog)s show out/
  %(prog)s stats out/ --split eval
  %(prog)s head out/ --split eval -n 3
  %(prog)s verify gs://bucket/out
  %(prog)s prune out/ --all --dry_run

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A problem that verify finds is a failure.
"""


PROG = "python -m schemas.dataset"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    p = command.Parser(
        prog=prog,
        description="Inspects, verifies and cleans up a dataset directory.",
        epilog=_EPILOG,
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text, description in (
        (
            "verify",
            "read every byte and report every problem",
            "Reads every byte of a dataset and reports every problem. Checks the sizes, checksums and rows in the "
            "manifest, each record against its own checksum and the schema, and the counts against each other.",
        ),
        (
            "show",
            "describe the contents",
            "Prints splits, features, inputs, rejects, versions and runs. Reads the manifest and the schema only.",
        ),
        (
            "stats",
            "show the statistics of every feature",
            "Prints the statistics of the raw values of all written records, by feature and split, as the job "
            "collected them. See docs/statistics.md.",
        ),
        (
            "head",
            "print the first records",
            "Prints the first records of a split as they are stored: transformed, with the words that ids stand for. "
            "Images become a contact sheet, a PNG in the current folder.",
        ),
        (
            "prune",
            "remove leftovers of earlier jobs",
            "Removes run folders and temporary files that no manifest names: those of killed jobs, and replaced runs. "
            "Keeps the runs of the current and the previous dataset (a reader may have the latter open), those of "
            "submitted jobs that may still be committed, failed/, and files that Millrace did not write. Where no job "
            "has committed yet there is no manifest: unfinished runs of ended jobs are removed, and others are named. "
            "Refuses to run while a job writes to the directory, on this machine or on a cluster, and names it.",
        ),
    ):
        sub = commands.add_parser(name, help=help_text, description=description)
        place = sub.add_mutually_exclusive_group(required=True)
        place.add_argument("dir", nargs="?", metavar="DIR", help="the dataset directory, local, gs:// or s3://")
        place.add_argument("--data_dir", metavar="DIR", help="the same as DIR; other commands call it --data_dir")
        sub.add_argument("--json", action="store_true", help=command.JSON_HELP)
        if name == "verify":
            sub.add_argument("--threads", type=int, metavar="N", help="files read in parallel (default: one per core)")
            sub.add_argument("--quiet", action="store_true", help=command.QUIET_HELP)
        elif name == "stats":
            sub.add_argument("--split", metavar="NAME", help="only this split")
            sub.add_argument("--feature", nargs="+", default=[], metavar="NAME", help="only these features")
        elif name == "head":
            sub.add_argument("--split", default="train", metavar="NAME", help="train, eval or test (default: train)")
            sub.add_argument("-n", type=int, metavar="N", help="how many records (default: 5; of images 24)")
            sub.add_argument("--output", metavar="FILE", help="the contact sheet of images (default: NAME-SPLIT.png)")
            sub.add_argument("--overwrite", action="store_true", help="replace an existing contact sheet")
        elif name == "prune":
            sub.add_argument("--dry_run", action="store_true", help="only print what would be removed")
            sub.add_argument("--all", action="store_true", help="also remove the runs of the previous dataset")
    return p


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Runs the command and returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options = parser(prog).parse_args(argv)
    data_dir = options.dir or options.data_dir
    layout.check_directory(data_dir)
    if storage.is_local(data_dir) and not os.path.isdir(data_dir):
        raise UsageError(f"{data_dir}: no such folder")
    match options.command:
        case "verify":
            return verify(data_dir, threads=options.threads, quiet=options.quiet)
        case "show":
            return show(data_dir)
        case "stats":
            return stats(data_dir, split=options.split, features=options.feature)
        case "head":
            return head(data_dir, options)
        case _:
            return prune(data_dir, dry_run=options.dry_run, everything=options.all, prog=prog)


def verify(data_dir: str, *, threads: int | None, quiet: bool) -> command.Report:
    """Reports every problem, and a summary. The exit code is 1 if there is a problem."""
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: must be 1 or more")
    from schemas.dataset.manifest import read_manifest
    from schemas.dataset.verify import Tally, total_bytes, verify_dataset

    tally, total = Tally(), total_bytes(read_manifest(data_dir))
    done = threading.Event()

    def display() -> None:
        while not done.wait(0.5):
            share = min(100.0, 100 * tally.bytes / max(total, 1))
            print(f"\r\x1b[Kverifying: {share:.0f} %, {tally.rows:,} rows", end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=display, name="progress", daemon=True)
    shown = not quiet and sys.stderr.isatty()
    begun = time.monotonic()
    try:
        if shown:
            thread.start()
        problems = verify_dataset(data_dir, threads=threads, tally=tally)
    finally:
        done.set()
        if shown:
            thread.join()
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    seconds = max(time.monotonic() - begun, 1e-9)
    verdict = f"{len(problems):,} problem(s)" if problems else "valid"
    read = f"{tally.files:,} files, {tally.rows:,} rows, {tally.bytes:,} bytes"
    rate = f"{seconds:,.1f} s, {tally.bytes / seconds / 1e9:.3f} GB/s"
    data = {
        "path": data_dir,
        "problems": [dataclasses.asdict(problem) for problem in problems],
        "files": tally.files,
        "rows": tally.rows,
        "bytes": tally.bytes,
        "seconds": seconds,
    }
    text = "\n".join([*map(str, problems), f"{data_dir}: {verdict}. Read {read} in {rate}"])
    return command.Report(text, data, exit_code=1 if problems else 0)


def show(data_dir: str) -> command.Report:
    """Describes the dataset."""
    from schemas.dataset.show import describe, render

    described = describe(data_dir)
    with as_written(data_dir, "what it holds"):
        return command.Report(render(described), described)


def stats(data_dir: str, *, split: str | None, features: Sequence[str]) -> command.Report:
    """Shows the statistics of the features."""
    from schemas.dataset.statistics import chosen, read_statistics, render

    statistics = read_statistics(data_dir)
    with as_written(data_dir, "statistics"):
        found = chosen(statistics, split=split, features=features)
        return command.Report(render(found), {"path": data_dir, **found})


def head(data_dir: str, options: argparse.Namespace) -> command.Report:
    """Prints the first records of a split."""
    from schemas.dataset.head import head_of

    return head_of(data_dir, options.split, options.n, sheet=options.output, overwrite=options.overwrite)


def prune(data_dir: str, *, dry_run: bool, everything: bool, prog: str) -> command.Report:
    """Removes leftovers of earlier jobs, or with `dry_run` lists them."""
    from schemas.dataset import lease
    from schemas.dataset import prune as pruning
    from schemas.dataset.manifest import read_manifest

    if not pruning.is_output(data_dir):  # else a lease would be written into it
        read_manifest(data_dir)  # which says that it is no dataset directory
    with lease.hold(data_dir, run=f"{prog} prune") as held:
        found = pruning.leftovers(data_dir, keep_previous=not everything, held=held)
        sizes = {name: pruning.size(data_dir, name) for name in found}
        if not dry_run:
            pruning.remove(data_dir, found, held)
    verb = "would remove" if dry_run else "removed"
    kept = {
        "left_alone": (pruning.foreign(data_dir), "which is not part of a dataset"),
        "orphans": (pruning.orphans(data_dir), f"which may be a dataset that has lost its {layout.MANIFEST}"),
        "waiting": (pruning.waiting(data_dir), "whose job may still be committed; see millrace job status"),
    }
    lines = [f"{verb} {name}, {size:,} bytes" for name, size in sizes.items()]
    lines += [f"left alone: {name}, {reason}" for names, reason in kept.values() for name in names]
    lines.append(f"{data_dir}: {verb} {len(found):,} leftover(s), {sum(sizes.values()):,} bytes")
    found_by_kind = {kind: names for kind, (names, _) in kept.items()}
    return command.Report("\n".join(lines), {"path": data_dir, "dry_run": dry_run, "removed": sizes, **found_by_kind})
