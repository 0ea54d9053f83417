"""`millrace completion SHELL`: prints a script, made by Cyclopts, that completes commands, options and file names.

The script is static: pressing Tab does not start Python.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from schemas import command
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


@dataclasses.dataclass(frozen=True)
class CompletionOptions(Options):
    """The options of `millrace completion`: the shell."""

    shell: Literal["bash", "zsh", "fish"] = option("the shell that the script is for", positional=True)


def _run(options: CompletionOptions, prog: str) -> command.Report:
    from millrace.cli import whole_app

    script = whole_app().generate_completion(shell=options.shell)
    return command.Report(script, {"shell": options.shell, "script": script}, only_printed=True)


COMMAND = command.Command(
    prog="millrace completion",
    options=CompletionOptions,
    work=_run,
    description="Prints a shell script for tab completion of `millrace`.",
    epilog=_EPILOG,
)
app, main = COMMAND.app, COMMAND.main
