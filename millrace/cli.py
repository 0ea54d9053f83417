"""The `millrace` command: it finds the sub-command and hands the rest to that one's own `main`.

Nothing but the sub-command that was asked for is imported, so that `millrace --help` answers at once.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from schemas import command
from schemas.errors import UsageError, did_you_mean
from schemas.options import Parser


@dataclasses.dataclass(frozen=True)
class Command:
    """A sub-command. Its module has `parser(prog)` and `main(argv, prog=...)`, and imports nothing heavy by itself."""

    module: str
    summary: str

    def parser(self, prog: str) -> argparse.ArgumentParser:
        """The command's own parser."""
        return importlib.import_module(self.module).parser(prog)

    def main(self, argv: Sequence[str], prog: str) -> int:
        """Runs it. Returns the exit code."""
        return importlib.import_module(self.module).main(argv, prog=prog)


_FLAGS = {"append": "preprocess --append_to", "help": "--help"}  # of what is no command here
GROUPS = {
    "data": {
        "samples": Command("schemas.samples.command", "generate sample files"),
        "init": Command("schemas.init.command", "write a schema from raw data"),
        "schema": Command("schemas.spec.shipped", "list the schemas that ship, or print one to copy"),
        "preprocess": Command("beam_jobs.preprocess", "turn raw files into a dataset directory"),
        "dataset": Command("schemas.dataset.command", "show, verify or prune a dataset, or print its records"),
        "compare": Command("beam_jobs.compare", "tell how two datasets, or a dataset and raw files, differ"),
    },
    "train": {
        "train": Command("trainer.task", "train a model on a dataset, evaluate and export it"),
        "tune": Command("millrace.tune.command", "search for hyper-parameters, by many trainings"),
        "evaluate": Command("trainer.evaluate", "evaluate a trained model on a split, and write a report"),
        "submit": Command("millrace.submit.command", "train in several processes, on Vertex AI or on Kubernetes"),
    },
    "use": {
        "predict": Command("trainer.predict", "predict on raw files with an export"),
        "batch-predict": Command("beam_jobs.predict", "predict on many files as a Beam job"),
        "serve": Command("millrace.serve.command", "serve an export over HTTP, and newer ones after it"),
    },
    "operate": {
        "job": Command("beam_jobs.job", "ask about a cluster's job, wait for it, commit or cancel it"),
        "verify": Command("trainer.verify", "check that an export sees what training saw"),
        "label": Command("millrace.label.command", "join labels to stored requests, for preprocessing"),
        "promote": Command("millrace.promote", "put an export in service if it is no worse"),
        "completion": Command("millrace.completion", "print a shell script for tab completion"),
    },
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}

_EPILOG = """\
examples:
  %(prog)s samples covertype covertype.csv
  %(prog)s preprocess --schema covertype --input covertype.csv --output out/
  %(prog)s train --data_dir out/ --model_dir model/

`%(prog)s COMMAND --help` describes a command. Exit codes: 0 done, 1 failed, 2 invalid usage, 130 after
Ctrl-C, 143 after SIGTERM.
"""


def version() -> str:
    """The installed version; '0+unknown' in a checkout that is not installed."""
    from schemas import source_distribution

    found = source_distribution.version()
    return found if found != "0" else "0+unknown"


def parser(prog: str = "millrace", *, whole: bool = False) -> argparse.ArgumentParser:
    """The command line's parser; `whole`: with every sub-command's own parser in it, which imports them all."""
    p = Parser(
        prog=prog,
        description="Turns raw CSV files and images into TFRecords, trains TensorFlow Estimators on them and predicts.",
        epilog=_EPILOG,
    )
    p.add_argument("--version", action="version", version=f"millrace {version()}")

    def own_parser(*, prog: str, of: Command, **_: Any) -> argparse.ArgumentParser:
        return of.parser(prog) if whole else argparse.ArgumentParser(prog=prog, add_help=False)

    makes: Any = own_parser  # argparse calls it as it would call a class
    commands: Any = p.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=makes, help="one of these:"
    )
    for title, group in GROUPS.items():
        p.add_argument_group(title, "\n".join(f"{name:<14} {entry.summary}" for name, entry in group.items()))
    for name, entry in COMMANDS.items():  # with a summary, for the shells, it would be listed a second time
        commands.add_parser(name, prog=f"{prog} {name}", of=entry, **({"help": entry.summary} if whole else {}))
    return p


def main(argv: Sequence[str] | None = None, *, prog: str = "millrace") -> int:
    """Runs a sub-command. Returns its exit code, or 2 where there is none of that name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        return COMMANDS[arguments[0]].main(arguments[1:], f"{prog} {arguments[0]}")
    return command.run(_refuse, arguments, prog=prog)


def _refuse(argv: Sequence[str], prog: str) -> command.Report:
    """Answers --help and --version; whatever else comes here is no command."""
    known = ", ".join(COMMANDS)
    given = next((arg for arg in argv if not arg.startswith("-")), None)
    if argv and argv[0] in ("-h", "--help", "--version"):
        parser(prog).parse_args(argv[:1])  # prints, and exits
    if argv and argv[0] in ("-v", "-V"):
        raise UsageError(f"{argv[0]}: unknown option; did you mean --version?")
    if given in COMMANDS:
        raise UsageError(f"{argv[0]}: the command comes first: {prog} {given} {argv[0]} ...")
    if given is None or argv[0] != given:
        raise UsageError(f"name a command{f' before {argv[0]}' if argv else ''}: {known}. See {prog} --help.")
    near = _FLAGS.get(given)
    hint = f"; did you mean {prog} {near}?" if near else did_you_mean(given, COMMANDS, cutoff=0.5)
    raise UsageError(f"{given}: no such command{hint}\nChoose from {known}. See {prog} --help.")
