"""What every command shares: its parser, and how results and errors are printed, for people or (`--json`) programs."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn

from schemas.errors import MillraceError, UsageError, readable, telling, untold
from schemas.outage import left_by_ctrl_c
from schemas.scratch import own_temporary_folder

JSON_HELP = "print the result, or the error, as one JSON object on standard output, and nothing else there"
QUIET_HELP = "show no progress"
VERBOSE_HELP = "also show TensorFlow's own log"


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that `run` prints every error alike. Takes no abbreviated flags.

    The lines of a description and of an epilog are printed as they are.
    """

    def __init__(self, **settings: Any) -> None:
        as_written = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"allow_abbrev": False, "formatter_class": as_written, **settings})

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nSee {self.prog} --help.")


class Interrupted(MillraceError):
    """A signal ended the command. `exit_code` is 128 and the signal's number, as shells have it."""

    def __init__(self, message: str, exit_code: int = 130) -> None:
        super().__init__(message)
        self.exit_code = exit_code


OnInterrupt = Literal["ask", "cancel", "leave"]


def cancel_or_leave(what: OnInterrupt, job: str) -> Literal["cancel", "leave"]:
    """What to do after Ctrl-C with a job that runs elsewhere.

    Args:
      what: as the options have it; "ask" asks on a terminal, and means "cancel" where there is none.
      job: the job's name, for the question.
    """
    if what != "ask":
        return what
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "cancel"
    try:
        print(f"Cancel {job}? It goes on otherwise. [y/N] ", end="", file=sys.stderr, flush=True)
        return "cancel" if sys.stdin.readline().strip().lower() in ("y", "yes") else "leave"
    except KeyboardInterrupt:  # again: out of here, at once
        return "leave"


@dataclasses.dataclass(frozen=True)
class Report:
    """What a command prints on standard output at its end: `text` for a person, or `data` with --json."""

    text: str
    data: dict[str, Any]
    exit_code: int = 0


def run(
    work: Callable[[Sequence[str], str], Report],
    argv: Sequence[str] | None,
    *,
    prog: str,
    json_takes_file: bool = False,
) -> int:
    """Runs a command and prints its report, or its error.

    With --json, standard output holds one JSON object: the report's data, or `{"error": ..., "exit_code": ...}`. What
    else would be printed there while the command works goes to standard error.

    Args:
      work: does what the arguments ask for; it is given them, and `prog`.
      argv: the arguments; None: those of this process.
      prog: the command as it is typed, such as 'millrace train' or 'python -m trainer.task'.
      json_takes_file: the command also has `--json FILE`, which leaves standard output to the text.

    Returns:
      The exit code.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    as_json = wants_json(argv, takes_file=json_takes_file)
    with telling(), left_by_ctrl_c(), own_temporary_folder():
        try:
            with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
                report = work(argv, prog)
        except MillraceError as error:
            return _failed(error, as_json=as_json)
        except KeyboardInterrupt:
            return _failed(Interrupted("interrupted"), as_json=as_json)
    text = _to_json(report.data) if as_json else report.text
    if text:
        _print(text)
    return report.exit_code


def wants_json(argv: Sequence[str], *, takes_file: bool = False) -> bool:
    """Whether --json asks for JSON on standard output; looked up before parsing, which may fail.

    `takes_file`: it may be followed by a file's name, or by `-` for standard output.
    """
    if "--json" not in argv:
        return takes_file and "--json=-" in argv
    following = argv[argv.index("--json") + 1 :][:1]
    return not (takes_file and following and not following[0].startswith("-"))


def duration(seconds: float) -> str:
    """Seconds as a person says them: `48 s`, `3 min 20 s`, `5 h 12 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _print(text: str) -> None:
    """Prints to standard output; a reader that has seen enough, such as `head`, may close it."""
    try:
        print(readable(text), flush=True)
    except BrokenPipeError:
        # Python flushes standard output once more when it exits, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(error: MillraceError, *, as_json: bool) -> int:
    rest = untold(str(error))
    if rest:
        print(rest, file=sys.stderr)
    if as_json:
        _print(_to_json({"error": str(error), "exit_code": error.exit_code}))
    return error.exit_code


def _to_json(data: dict[str, Any]) -> str:
    return json.dumps(finite(data), indent=1, ensure_ascii=False, allow_nan=False)


def finite(value: Any) -> Any:
    """A value of lists and mappings, with None for numbers that JSON has no word for (NaN, infinity)."""
    match value:
        case dict():
            return {name: finite(held) for name, held in value.items()}
        case list() | tuple():
            return [finite(held) for held in value]
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value
