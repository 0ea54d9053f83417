"""Runs commands: parses their options, and prints results and errors, as text for people or as JSON for programs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from schemas.errors import MillraceError, counted, readable
from schemas.interrupts import Interrupted, how_ended, interruptible
from schemas.options import only
from schemas.scratch import own_temporary_folder
from schemas.streams import open_standard_streams, print_result

if TYPE_CHECKING:
    from cyclopts import App


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a command, which is printed on standard output at the command's end.

    Attributes:
      text: what is printed for a person.
      data: what is printed with --json.
      exit_code: the exit code of the command.
      only_printed: whether the printed report is all that the command produces. If such a report cannot be printed, the
        command has failed.
    """

    text: str
    data: dict[str, Any]
    exit_code: int = 0
    only_printed: bool = False


def run(
    work: Callable[[Sequence[str], str], Report],
    argv: Sequence[str] | None,
    *,
    prog: str,
) -> int:
    """Runs a command, and prints its report or its error.

    With --json, standard output holds exactly one JSON object: the report's data, or `{"error": ..., "exit_code":
    ...}`. Anything else that is printed to standard output while the command works goes to standard error instead.

    If standard output is full or closed, a message on standard error says so. A command that has written files, such as
    a job that has committed, still ends with its own exit code. If standard error is full or closed, only the messages
    are lost.

    Args:
      work: the command's function. It receives the arguments and `prog`.
      argv: the arguments; None: those of this process.
      prog: the command as it is typed, such as 'millrace train' or 'python -m trainer.task'.

    Returns:
      The exit code.
    """
    is_closed = open_standard_streams()
    argv = list(sys.argv[1:] if argv is None else argv)
    as_json = wants_json(argv)
    with own_temporary_folder():
        try:
            with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext(), interruptible():
                report = work(argv, prog)
        except MillraceError as error:
            return _failed(error, as_json=as_json)
        except KeyboardInterrupt:
            return _failed(Interrupted("interrupted"), as_json=as_json)
    text = _to_json(report.data) if as_json else report.text
    problem = ("it is closed" if is_closed else print_result(text)) if text else None
    if not problem:
        return report.exit_code
    lost = f"standard output: {problem}; the result was not printed in whole"
    done = "error: " if report.only_printed else "note: the command has done its work, but "
    print(f"{done}{lost}", file=sys.stderr)
    return report.exit_code or int(report.only_printed)


def wants_json(argv: Sequence[str]) -> bool:
    """Returns whether --json is among the arguments. Parsing may fail, and even that error must be printed as JSON."""
    return "--json" in argv


Opts = TypeVar("Opts")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Generic[Opts]):
    """A command: its options, its function, and its help.

    Attributes:
      prog: the command as it is typed.
      options: the dataclass of its options.
      work: the function that runs the command. It receives the options, and the command as it was typed.
      description: the text of the help, often the module's docstring. The part from `Exit codes: ` on is printed at the
        end of the help, unless there is an `epilog`.
      epilog: the end of the help.
      usage: the usage line; '' lets Cyclopts make one.
      instead: what to give instead of some unknown flags, by the flag's name without dashes.
    """

    prog: str
    options: type[Opts]
    work: Callable[[Opts, str], Report]
    description: str
    epilog: str = ""
    usage: str = ""
    instead: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def app(self, prog: str = "") -> App:
        """Returns the command as an app of Cyclopts. `prog` replaces the command's own name, if it is not ''."""
        from schemas.arguments import add_flags, new_app

        about = self.description.replace(self.prog, "%(prog)s").partition("Exit codes: ")[0]
        app = new_app(prog or self.prog, about, self.usage)
        add_flags(app, lambda values: (self, values), (self.options,))
        return app

    def parse(self, argv: Sequence[str], prog: str = "") -> Opts:
        """Parses a command line and returns the command's options.

        Raises:
          UsageError: a flag is missing, unknown or out of its range.
          SystemExit: the help was printed (0).
        """
        from schemas.arguments import parse

        epilog = self.epilog or "".join(self.description.partition("Exit codes: ")[1:])
        (_, values), _ = parse(self.app(prog), argv, epilog=epilog, instead=self.instead)
        return self.options(**only(values, self.options))

    def main(self, argv: Sequence[str] | None = None, *, prog: str = "") -> int:
        """Parses the arguments, runs the command, and prints its report. Returns the exit code."""
        return run(lambda argv, prog: self.work(self.parse(argv, prog), prog), argv, prog=prog or self.prog)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commands:
    """Several commands under one name, such as `millrace job status` and `millrace job cancel`.

    Attributes:
      prog: the common name as it is typed.
      description: the beginning of the help.
      epilog: the end of the help.
      commands: the commands. The `prog` of each command is the word after the common name.
    """

    prog: str
    description: str
    epilog: str
    commands: Sequence[Command[Any]]

    def app(self, prog: str = "") -> App:
        """Returns the commands as an app of Cyclopts. `prog` replaces the common name, if it is not ''."""
        from schemas.arguments import new_app

        app = new_app(prog or self.prog, self.description)
        for command in self.commands:
            usage = command.usage.replace("%(prog)s", f"{prog or self.prog} {command.prog}")
            app.command(dataclasses.replace(command, usage=usage).app(), name=command.prog)
        return app

    def work(self, argv: Sequence[str], prog: str, **more: Any) -> Report:
        """Parses the arguments, and runs the command that they name. `more`: values of options that have no flag."""
        from schemas.arguments import parse

        instead = {name: hint for command in self.commands for name, hint in command.instead.items()}
        (command, values), _ = parse(self.app(prog), argv, epilog=self.epilog, instead=instead)
        return command.work(command.options(**only(values, command.options), **more), prog)

    def main(self, argv: Sequence[str] | None = None, *, prog: str = "") -> int:
        """Parses the arguments, runs the command that they name, and prints its report. Returns the exit code."""
        return run(self.work, argv, prog=prog or self.prog)


@contextlib.contextmanager
def when_interrupted(what: str = "") -> Iterator[None]:
    """Turns Ctrl-C or SIGTERM in the block into an error that ends the command with the message `interrupted; WHAT`.

    Args:
      what: what has happened to the command's work, for the message.

    Raises:
      Interrupted: the signal came.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        how, code = how_ended(error)
        raise Interrupted(f"{how}; {what}" if what else how, code) from None


def duration(seconds: float) -> str:
    """Returns a time in seconds as text for a person.

    >>> duration(48.3), duration(200), duration(18_720)
    ('48 s', '3 min 20 s', '5 h 12 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def digits(value: float) -> str:
    """Returns a rate as text: in whole numbers, or with two significant digits if it is below 10: `1,234`, `0.042`."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


def rate(count: int, unit: str, seconds: float, *, startup: float | None = None) -> str:
    """Returns a line about speed: `100 rows in 0.4 s (250 rows/s), after 3.1 s of start-up`.

    Args:
      count: how many things were done.
      unit: what they are, in the plural, such as "rows".
      seconds: how long it took, without the start-up.
      startup: how long the start-up took, in seconds; None leaves it out.
    """
    per_second = f" ({count / seconds:,.0f} {unit}/s)" if seconds else ""
    before = "" if startup is None else f", after {startup:.1f} s of start-up"
    return f"{counted(count, unit)} in {seconds:.1f} s{per_second}{before}"


def size(count: float) -> str:
    """Returns a number of bytes as text for a person.

    >>> size(775_400_000), size(1_234)
    ('775 MB', '1.23 kB')
    """
    units = ["bytes", "kB", "MB", "GB", "TB"]
    # From 999.5 on, a number rounds to 1,000, so the next unit is used.
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:,.0f} {unit}" if count >= 99.95 or unit == "bytes" else f"{count:.3g} {unit}"


def _failed(error: MillraceError, *, as_json: bool) -> int:
    """Prints an error, with --json also as JSON, and returns its exit code."""
    print(f"error: {error}", file=sys.stderr)
    if as_json:
        print_result(_to_json({"error": str(error), "exit_code": error.exit_code}))
    return error.exit_code


def _to_json(data: dict[str, Any]) -> str:
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    return json.dumps(finite(data), indent=1, ensure_ascii=not is_unicode, allow_nan=False)


def finite(value: Any) -> Any:
    """Replaces whatever JSON lacks in a value, however deeply nested.

    NaN and infinity become None. In texts, bytes that are not UTF-8 are written as `\\xe9`.

    >>> finite({"loss": float("nan"), "steps": (1, 2)})
    {'loss': None, 'steps': [1, 2]}
    """
    match value:
        case dict():
            return {finite(name): finite(item) for name, item in value.items()}
        case list() | tuple():
            return [finite(item) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case str():
            return readable(value)
        case _:
            return value
