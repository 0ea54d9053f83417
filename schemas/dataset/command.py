"""`python -m schemas.dataset verify|show|stats|head|prune DIR`: inspects and cleans up a dataset directory."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import ClassVar

from schemas import command, storage
from schemas.dataset import layout
from schemas.display import ReadingDisplay
from schemas.errors import UsageError, counted
from schemas.options import QUIET_HELP, Options, json_flag, option
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetOptions(Options):
    """The dataset directory that a command reads."""

    data_dir: str = option("the dataset directory, local or gs://", name="--data_dir", positional=True, metavar="DIR")
    json: ClassVar[bool] = json_flag()

    @property
    def path(self) -> str:
        """The dataset directory.

        Raises:
          UsageError: there is no such directory.
        """
        path = self.data_dir
        layout.check_directory(path)
        if storage.is_local(path) and not os.path.isdir(path):
            raise UsageError(f"{path}: no such folder")
        return path


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyDatasetOptions(DatasetOptions):
    """The options of `verify`."""

    threads: int | None = option("files read in parallel (default: one per core)", None)
    quiet: bool = option(QUIET_HELP, False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StatsOptions(DatasetOptions):
    """The options of `stats`."""

    split: str | None = option("only this split", None, metavar="NAME")
    feature: tuple[str, ...] = option("only these features", (), metavar="NAME")


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeadOptions(DatasetOptions):
    """The options of `head`."""

    split: str = option("train, eval or test (default: train)", "train", metavar="NAME")
    n: int | None = option("how many records (default: 5; of images 24)", None, name="-n")
    output: str | None = option("the contact sheet of images (default: NAME-SPLIT.png)", None, metavar="FILE")
    overwrite: bool = option("replace an existing contact sheet", False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PruneOptions(DatasetOptions):
    """The options of `prune`."""

    dry_run: bool = option("only print what would be removed", False)
    all: bool = option("also remove the runs of the previous dataset", False)


def verify(options: VerifyDatasetOptions, prog: str) -> command.Report:
    """Runs `verify`: reports every problem and a summary. The exit code is 1 if there is a problem."""
    data_dir, threads = options.path, options.threads
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: must be 1 or more")
    from schemas.dataset.manifest import read_manifest
    from schemas.dataset.verify import ReadProgress, total_bytes, verify_dataset

    tally, total = ReadProgress(), total_bytes(read_manifest(data_dir))
    begun = time.monotonic()
    with ReadingDisplay(quiet=options.quiet, what="rows", doing="verifying") as display:
        tally.report = lambda: display(tally.rows, tally.bytes / max(total, 1))
        problems = verify_dataset(data_dir, threads=threads, tally=tally)
    seconds = max(time.monotonic() - begun, 1e-9)
    verdict = counted(len(problems), "problems") if problems else "valid"
    read = f"{counted(tally.files, 'files')}, {counted(tally.rows, 'rows')}, {tally.bytes:,} bytes"
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
    return command.Report(text, data, exit_code=1 if problems else 0, only_printed=True)


def show(options: DatasetOptions, prog: str) -> command.Report:
    """Runs `show`: describes the dataset."""
    data_dir = options.path
    from schemas.dataset.show import describe, render

    described = describe(data_dir)
    with as_written(data_dir, "what it holds"):
        return command.Report(render(described), described, only_printed=True)


def stats(options: StatsOptions, prog: str) -> command.Report:
    """Runs `stats`: shows the statistics of the features."""
    data_dir = options.path
    from schemas.dataset.statistics import chosen, read_statistics, render

    statistics = read_statistics(data_dir)
    with as_written(data_dir, "statistics"):
        selection = chosen(statistics, split=options.split, features=options.feature)
        return command.Report(render(selection), {"path": data_dir, **selection}, only_printed=True)


def head(options: HeadOptions, prog: str) -> command.Report:
    """Runs `head`: prints the first records of a split."""
    path = options.path
    from schemas.dataset.show import head_of

    return head_of(path, options.split, options.n, sheet=options.output, overwrite=options.overwrite)


def prune(options: PruneOptions, prog: str) -> command.Report:
    """Runs `prune`: removes leftovers of earlier jobs, or only lists them with `dry_run`."""
    data_dir, dry_run = options.path, options.dry_run
    from schemas.dataset import lease
    from schemas.dataset import prune as pruning
    from schemas.dataset.manifest import read_manifest

    if not pruning.is_output(data_dir):  # refuse other folders before a lease is written into them
        read_manifest(data_dir)  # raises the error that this is not a dataset directory
    with lease.hold(data_dir, run=f"{prog} prune") as dataset_lease:
        leftovers = pruning.leftovers(data_dir, keep_previous=not options.all, lease=dataset_lease)
        sizes = {name: pruning.size(data_dir, name) for name in leftovers}
        if not dry_run:
            pruning.remove(data_dir, leftovers, dataset_lease)
    verb = "would remove" if dry_run else "removed"
    remaining = {
        "left_alone": (pruning.foreign(data_dir), "which is not part of a dataset"),
        "orphans": (pruning.orphans(data_dir), f"which may be a dataset that has lost its {layout.MANIFEST}"),
    }
    lines = [f"{verb} {name}, {size:,} bytes" for name, size in sizes.items()]
    lines += [f"left alone: {name}, {reason}" for names, reason in remaining.values() for name in names]
    lines.append(f"{data_dir}: {verb} {counted(len(leftovers), 'leftovers')}, {sum(sizes.values()):,} bytes")
    names_by_kind = {kind: names for kind, (names, _) in remaining.items()}
    return command.Report("\n".join(lines), {"path": data_dir, "dry_run": dry_run, "removed": sizes, **names_by_kind})


COMMANDS = command.Commands(
    prog=PROG,
    description="Inspects, verifies and cleans up a dataset directory.",
    epilog=_EPILOG,
    commands=(
        command.Command(
            prog="verify",
            options=VerifyDatasetOptions,
            work=verify,
            description="Reads every byte of a dataset and reports every problem.\n\n"
            "Checks the sizes, checksums and rows in "
            "the manifest, each record against its own checksum and the schema, and the counts against each other.",
        ),
        command.Command(
            prog="show",
            options=DatasetOptions,
            work=show,
            description="Prints splits, features, inputs, rejects, versions and runs.\n\n"
            "Reads the manifest and the schema "
            "only.",
        ),
        command.Command(
            prog="stats",
            options=StatsOptions,
            work=stats,
            description="Prints the statistics of every feature.\n\n"
            "They are of the raw values of all written records, by "
            "split, as the job collected them. See docs/statistics.md.",
        ),
        command.Command(
            prog="head",
            options=HeadOptions,
            work=head,
            description="Prints the first records of a split.\n\n"
            "They are shown as they are stored: transformed, with the "
            "words that ids stand for. Images become a contact sheet, a PNG in the current folder.",
        ),
        command.Command(
            prog="prune",
            options=PruneOptions,
            work=prune,
            description="Removes leftovers of earlier jobs.\n\n"
            "These are run folders and temporary files that no manifest "
            "names: those of killed jobs, and replaced runs. Keeps the runs of the current and the previous dataset (a "
            "reader may have the latter open), those of submitted jobs that may still be committed, failed/, and files "
            "that Millrace did not write. Where no job has committed yet there is no manifest: unfinished runs of "
            "ended jobs are removed, and others are named. Refuses to run while a job writes to the directory, on this "
            "machine or on a cluster, and names it.",
        ),
    ),
)
app, main = COMMANDS.app, COMMANDS.main
