"""`millrace submit PLATFORM ... -- train ...`: checks everything, and hands it to the platform."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from millrace.submit import flags
from schemas import command

PROG = flags.PROG


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser, of what stands before `--`."""
    return flags.parser(prog)


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Submits a training. Returns the exit code: 0 done, 1 failed, 2 usage error, 130 interrupted."""
    from millrace.submit.training import split_arguments

    own, given = split_arguments(sys.argv[1:] if argv is None else argv)

    def work(argv: Sequence[str], prog: str) -> command.Report:
        options = parser(prog).parse_args(argv)
        platform = importlib.import_module(f"millrace.submit.{options.platform}")
        report: command.Report = platform.submit(options, given, prog)
        return report

    return command.run(work, own, prog=prog)
