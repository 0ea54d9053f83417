"""`millrace submit PLATFORM ... -- train ...`: checks everything, and hands it to the platform."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence

from millrace.submit.flags import COMMANDS
from schemas import command

PROG, parser = COMMANDS.prog, COMMANDS.parser


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Submits a training. Returns the exit code: 0 done, 1 failed, 2 usage error, 130 interrupted."""
    from millrace.submit.training import split_arguments

    own, given = split_arguments(sys.argv[1:] if argv is None else argv)
    training = None if given is None else tuple(given)
    return command.run(functools.partial(COMMANDS.work, training=training), own, prog=prog)
