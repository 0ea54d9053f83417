"""The command `millrace`: finds the sub-command, and calls its `main` with the remaining arguments.

Only the module of the requested sub-command is imported, so that `millrace --help` answers at once.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas import command
from schemas.errors import UsageError

if TYPE_CHECKING:
    from cyclopts import App


@dataclasses.dataclass(frozen=True)
class Entry:
    """A sub-command.

    Attributes:
      module: the module of the sub-command. It has `app` and `main`, like `schemas.command.Command`, and does not
        import heavy packages.
      summary: the description in the list of commands.
      synonym: another word that a user might type for the sub-command; '' if there is none.
    """

    module: str
    summary: str
    synonym: str = ""  # another word that a user might look for

    def imported(self) -> Any:
        """Imports the sub-command's module, and returns it."""
        return importlib.import_module(self.module)


GROUPS = {
    "data": {
        "samples": Entry("schemas.samples.command", "generate sample files"),
        "init": Entry("schemas.init.command", "write a schema from raw data"),
        "schema": Entry("schemas.spec.shipped", "list the schemas that ship, or print one to copy"),
        "preprocess": Entry("beam_jobs.preprocess", "turn raw files into a dataset directory", "append"),
        "dataset": Entry("schemas.dataset.command", "show, verify or prune a dataset, or print its records"),
        "compare": Entry("beam_jobs.compare", "tell how two datasets, or a dataset and raw files, differ"),
    },
    "train": {
        "train": Entry("trainer.task", "train a model on a dataset, evaluate and export it"),
        "tune": Entry("millrace.tune.command", "search for hyper-parameters, by many trainings"),
        "evaluate": Entry("trainer.evaluate", "evaluate a trained model on a split, and write a report"),
        "submit": Entry("millrace.submit.command", "train in several processes, on Vertex AI or on Kubernetes"),
    },
    "use": {
        "predict": Entry("trainer.predict", "predict on raw files with an export"),
        "batch-predict": Entry("beam_jobs.predict", "predict on many files as a Beam job"),
        "serve": Entry("millrace.serve.command", "serve an export over HTTP, and newer ones after it"),
    },
    "operate": {
        "job": Entry("beam_jobs.job", "tell how a job on a cluster is doing, or cancel it"),
        "verify": Entry("trainer.verify", "check that an export sees what training saw"),
        "label": Entry("millrace.label.command", "join labels to stored requests, for preprocessing"),
        "promote": Entry("millrace.promote", "put an export in service if it is no worse"),
        "completion": Entry("millrace.completion", "print a shell script for tab completion"),
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
    """Returns the installed version; '0+unknown' in a checkout that is not installed."""
    from schemas import source_distribution

    installed = source_distribution.version()
    return installed if installed != "0" else "0+unknown"


def app(prog: str = "millrace") -> App:
    """Returns the command line for Cyclopts. Of each sub-command it knows only the name and the summary."""
    from schemas.arguments import new_app

    return _with_commands(prog, {name: new_app(name, "") for name in COMMANDS})


def whole_app() -> App:
    """Returns the command line for Cyclopts with all flags. This imports the modules of all sub-commands."""
    return _with_commands("millrace", {name: entry.imported().app(name) for name, entry in COMMANDS.items()})


def _with_commands(prog: str, commands: Mapping[str, App]) -> App:
    """Returns the command line for Cyclopts with the given sub-commands, in groups."""
    import cyclopts

    from schemas.arguments import new_app

    result = new_app(
        prog, "Turns raw CSV files and images into TFRecords, trains TensorFlow Estimators on them and predicts."
    )
    result.version, result.version_flags = f"millrace {version()}", ("--version",)
    result["--version"].show = False
    groups = {title: cyclopts.Group(title, sort_key=place) for place, title in enumerate(GROUPS)}
    group_of = {name: groups[title] for title, entries in GROUPS.items() for name in entries}
    for place, (name, command_app) in enumerate(commands.items()):
        entry = COMMANDS[name]
        command_app.help, command_app.synonym = entry.summary, entry.synonym
        command_app.group, command_app.sort_key = group_of[name], place
        result.command(command_app)
    return result


def main(argv: Sequence[str] | None = None, *, prog: str = "millrace") -> int:
    """Runs a sub-command. Returns its exit code, or 2 if there is no sub-command of that name."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in COMMANDS:
        code: int = COMMANDS[arguments[0]].imported().main(arguments[1:], prog=f"{prog} {arguments[0]}")
        return code
    return command.run(_refuse, arguments, prog=prog)


def _refuse(argv: Sequence[str], prog: str) -> command.Report:
    """Answers --help and --version; raises UsageError for anything else."""
    from schemas.arguments import parse

    parse(app(prog), argv, epilog=_EPILOG)
    raise UsageError(f"name a command before {argv[0]}. See {prog} --help")
