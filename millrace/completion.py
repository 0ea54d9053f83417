"""`millrace completion SHELL`: a script that completes commands, options and file names, made by shtab.

The script is static: pressing Tab starts no Python.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

from schemas import command
from schemas.errors import UsageError
from schemas.options import Options, option

_EPILOG = """\
for bash, in this shell only:
  eval "$(millrace completion bash)"
for bash, in every new shell:
  millrace completion bash > ~/.local/share/bash-completion/completions/millrace
for zsh, where ~/.zfunc is in $fpath:
  millrace completion zsh > ~/.zfunc/_millrace

Exit codes: 0 done, 1 failed, 2 invalid usage.
"""

# What arguments of a metavar are completed with.
FILES = frozenset({"FILE", "PATTERN", "JSONL"})
FOLDERS = frozenset({"DIR"})


@dataclasses.dataclass(frozen=True)
class CompletionOptions(Options):
    """The shell that is completed in."""

    shell: Literal["bash", "zsh", "tcsh"] = option("the shell that the script is for", name="shell")


def _run(options: CompletionOptions, prog: str) -> command.Report:
    script = completion_script(options.shell)
    return command.Report(script, {"shell": options.shell, "script": script}, only_printed=True)


COMMAND = command.Command(
    prog="millrace completion",
    options=CompletionOptions,
    work=_run,
    description="Prints a shell script for tab completion of `millrace`. Needs the package shtab.",
    epilog=_EPILOG,
)
parser, main = COMMAND.parser, COMMAND.main


def completion_script(shell: str) -> str:
    """The script for a shell: 'bash', 'zsh' or 'tcsh'.

    Raises:
      UsageError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError as error:
        from schemas.source_distribution import how_to_install

        raise UsageError(f"completion needs shtab: {how_to_install('completion')}") from error
    from millrace.cli import parser as whole_parser

    whole = whole_parser(whole=True)
    for action in _actions(whole):
        kinds = action.metavar if isinstance(action.metavar, str) else ""
        if kinds in FILES | FOLDERS:
            action.complete = shtab.FILE if kinds in FILES else shtab.DIRECTORY
    return str(shtab.complete(whole, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[Any]:
    """The arguments of a parser, and of its sub-commands."""
    for action in parser._actions:  # private: argparse has no other way to list them; shtab reads the same
        yield action
        if isinstance(action.choices, dict):
            yield from (found for sub in action.choices.values() for found in _actions(sub))
