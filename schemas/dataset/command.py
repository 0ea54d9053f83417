"""`python -m schemas.dataset verify|show|prune DIR`: inspects, verifies and cleans up a dataset directory."""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Sequence

from schemas import storage
from schemas.errors import MillraceError, UsageError

_EPILOG = """\
examples:
  python -m schemas.dataset show out/
  python -m schemas.dataset verify gs://bucket/out
  python -m schemas.dataset prune out/ --all --dry_run

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted. A problem that verify finds is a failure.
"""


class _Parser(argparse.ArgumentParser):
    """Raises instead of exiting, so that `main` alone decides on exit codes."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}\nSee {self.prog} --help.")


def parser() -> argparse.ArgumentParser:
    """The command line's parser."""
    p = _Parser(
        prog="python -m schemas.dataset",
        description="Inspects, verifies and cleans up a dataset directory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = p.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_text, description in (
        (
            "verify",
            "check every byte and report every problem",
            "Reads every byte of a dataset and reports every problem. Checks the sizes, checksums and rows in the "
            "manifest, each record against its own checksum and the schema, and the counts against each other.",
        ),
        (
            "show",
            "print what is in it",
            "Prints splits, features, inputs, rejects, versions and runs. Reads the manifest and the schema only.",
        ),
        (
            "prune",
            "remove leftovers of earlier jobs",
            "Removes run folders and temporary files that no manifest names: those of killed jobs, and replaced runs. "
            "Keeps the runs of the current and the previous dataset (a reader may have the latter open), failed/, and "
            "files that Millrace did not write. Refuses to run while a job writes to the directory.",
        ),
    ):
        command = commands.add_parser(name, help=help_text, description=description, allow_abbrev=False)
        command.add_argument("data_dir", metavar="DIR", help="the dataset directory, local or gs://")
        if name == "verify":
            command.add_argument(
                "--threads", type=int, metavar="N", help="number of files to read at once (default: one for each core)"
            )
            command.add_argument("--quiet", action="store_true", help="show no progress")
        elif name == "show":
            command.add_argument("--json", action="store_true", help="print JSON")
        else:
            command.add_argument("--dry_run", action="store_true", help="only list what would be removed")
            command.add_argument("--all", action="store_true", help="also remove the runs of the previous dataset")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, runs, reports. Returns the exit code."""
    try:
        options = parser().parse_args(sys.argv[1:] if argv is None else argv)
        if storage.is_local(options.data_dir) and not os.path.isdir(options.data_dir):
            raise UsageError(f"{options.data_dir}: no such folder")
        match options.command:
            case "verify":
                return verify(options.data_dir, threads=options.threads, quiet=options.quiet)
            case "show":
                return show(options.data_dir, as_json=options.json)
            case _:
                return prune(options.data_dir, dry_run=options.dry_run, everything=options.all)
    except MillraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def verify(data_dir: str, *, threads: int | None, quiet: bool) -> int:
    """Prints every problem, and a summary. Returns 1 if there is a problem."""
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
    for problem in problems:
        print(problem)
    said = f"{len(problems):,} problem(s)" if problems else "valid"
    read = f"{tally.files:,} files, {tally.rows:,} rows, {tally.bytes:,} bytes"
    print(f"{data_dir}: {said}. Read {read} in {seconds:,.1f} s, {tally.bytes / seconds / 1e9:.3f} GB/s")
    return 1 if problems else 0


def show(data_dir: str, *, as_json: bool) -> int:
    """Prints a description of the dataset."""
    from schemas.dataset.show import describe, render

    described = describe(data_dir)
    print(json.dumps(described, indent=1, ensure_ascii=False) if as_json else render(described))
    return 0


def prune(data_dir: str, *, dry_run: bool, everything: bool) -> int:
    """Removes leftovers, or lists them."""
    from schemas.dataset import lease
    from schemas.dataset import prune as pruning
    from schemas.dataset.manifest import read_manifest

    read_manifest(data_dir)  # before a lease is written into a folder that is not a dataset
    with lease.hold(data_dir, run="python -m schemas.dataset prune") as held:
        found = pruning.leftovers(data_dir, keep_previous=not everything, held=held)
        sizes = {name: pruning.size(data_dir, name) for name in found}
        if not dry_run:
            pruning.remove(data_dir, found, held)
    verb = "would remove" if dry_run else "removed"
    for name in found:
        print(f"{verb} {name}, {sizes[name]:,} bytes")
    for name in pruning.foreign(data_dir):
        print(f"left alone: {name}, which is not part of a dataset")
    print(f"{data_dir}: {verb} {len(found):,} leftover(s), {sum(sizes.values()):,} bytes")
    return 0
