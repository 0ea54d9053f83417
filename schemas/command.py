"""What every command shares: options as fields of a dataclass, the parser made of them, and how results are printed.

An option is said once, as a field: its type, default, help, group, choices and check. The flag, `--help`, the keyword
of the Python API and what is recorded follow from it. Results and errors are printed for people, or (`--json`) for
programs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import os
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from schemas.errors import MillraceError, UsageError, did_you_mean, readable, telling, untold
from schemas.interrupts import how_ended
from schemas.outage import left_by_ctrl_c
from schemas.scratch import own_temporary_folder

JSON_HELP = "print the result, or the error, as one JSON object on standard output, and nothing else there"
QUIET_HELP = "show no progress"
VERBOSE_HELP = "also show TensorFlow's own log"


_REQUIRED = re.compile(r"(?:the following arguments are required:|one of the arguments) (--\w+(?:, --\w+)*)")
_VALUE = re.compile(r"argument (.*): invalid (int|float) value: '(.*)'")
_KINDS = {"int": "a whole number", "float": "a number"}
_CHOICE = re.compile(r"invalid choice: '?(.*?)'? \(choose from (.*)\)")


class Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, so that `run` prints every error alike. Takes no abbreviated flags.

    The lines of a description and of an epilog are printed as they are.

    Args:
      instead: what to give instead of a flag that there is not, by the flag's name without dashes.
      **settings: those of argparse.
    """

    def __init__(self, *, instead: Mapping[str, str] | None = None, **settings: Any) -> None:
        as_written = argparse.RawDescriptionHelpFormatter
        super().__init__(**{"allow_abbrev": False, "formatter_class": as_written, **settings})
        self._instead = instead or {}
        self._words: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        # A flag that is misspelt, or left out before its value, may well be the one that is missing.
        missing = _REQUIRED.match(message)
        told = next(self._misspelt(), "") or (self._stray(missing[1].split(", ")) if missing else "")
        message = _VALUE.sub(lambda found: f"{found[1]} {found[3]}: must be {_KINDS[found[2]]}", message)
        choice = _CHOICE.search(message)
        near = did_you_mean(choice[1], choice[2].replace("'", "").split(", "), cutoff=0.75) if choice else ""
        raise UsageError(f"{told or message + near}\nSee {self.prog} --help.")

    def _stray(self, flags: Sequence[str]) -> str:
        """Words that belong to no flag, where these flags are missing; nothing without such words."""
        held: list[Any] = [*self._actions, *self._mutually_exclusive_groups]
        for each in held:
            each.required = False
        words = list(itertools.takewhile(lambda word: word[:1] != "-", super().parse_known_args(self._words)[1]))
        meant = "did you mean " + " ".join(itertools.chain(*zip(flags, words, strict=False))) + "?"
        hint = meant if len(words) == len(flags) else f"required: {', '.join(flags)}"
        return f"{words[0]}: belongs to no flag; {hint}" if words else ""

    def _misspelt(self) -> Iterator[str]:
        known = self._option_string_actions  # private: argparse has no list of a parser's flags
        words = list(itertools.takewhile(lambda word: word != "--", self._words))
        for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
            flag, _, value = word.partition("=")
            if flag.startswith("--") and flag not in known:
                hint = meant(flag, known)
                instead = self._instead.get(flag[2:].replace("-", "_"))
                if instead is not None:
                    hint = f"; did you mean {instead}={value or following}?"
                if hint:
                    yield f"{flag}: unknown option{hint}"


class _OfSeveral(Parser):
    """The parser of a command of several, which answers for its flags itself."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def meant(flag: str, known: Iterable[str]) -> str:
    """`; did you mean --FLAG?` of a flag that is nearly one of those that are known, or begins one; else nothing."""
    asked = f"--{flag[2:].replace('-', '_')}"
    longer = min((name for name in known if len(asked) > 4 and name.startswith(asked)), key=len, default=None)
    return f"; did you mean {longer}?" if longer else did_you_mean(asked, known, cutoff=0.83)


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


Given = TypeVar("Given")
Check = Callable[[str, Any], None]  # given the flag and its value, which is not None; raises UsageError


@dataclasses.dataclass(frozen=True)
class Group:
    """A section of a command's help."""

    title: str = ""
    text: str | None = None


class Flag(NamedTuple):
    """What a field of options has beside its type and its default; `option` describes it."""

    help: str
    group: Group | None
    name: str
    check: Check | None
    order: int
    excludes: str
    variable: str
    settings: dict[str, Any]


def option(
    help: str,  # noqa: A002 - as in argparse
    default: Any = dataclasses.MISSING,
    *,
    group: Group | None = None,
    name: str = "",
    check: Check | None = None,
    order: int = 0,
    excludes: str = "",
    variable: str = "",
    **settings: Any,
) -> Any:
    """A field of a dataclass of options, which is a flag of its command, too.

    The flag's type follows from the field's: `int | None` takes an integer, `tuple[str, ...]` several words, a Literal
    one of its words, and a bool is a switch: `--NAME`, or `--no_NAME` where the default is True. A field without a
    default must be given. A `ClassVar[bool]` is a flag of the command alone, and no keyword of the Python API.

    Args:
      help: what `--help` says of it, with `%(default)s` for the default.
      default: the value if the flag is not given.
      group: the section of the help; None: that of the command's part.
      name: the flag, where it is not `--` and the field's name; without dashes, an argument by its place.
      check: refuses values out of range, from the command line and from Python.
      order: where in its group the help shows it: after those of a lower number.
      excludes: flags with the same word here exclude each other; with a `!` at its end, one of them must be given.
      variable: the environment variable that has the value if the flag is not given.
      **settings: what else argparse's `add_argument` takes, such as `metavar`.
    """
    flag = Flag(help, group, name, check, order, excludes, variable, settings)
    return dataclasses.field(default=default, metadata={"flag": flag})


def shared(default: Any = dataclasses.MISSING) -> Any:
    """A field that the same flag sets as in another part of the command, which says what it is."""
    return dataclasses.field(default=default, metadata={"shared": True})


def json_flag(**settings: Any) -> Any:
    """The flag --json, as a field `json: ClassVar[bool]` where the help does not show it last."""
    return option(JSON_HELP, False, **{"group": Group(), **settings})


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of a command.

    Raises:
      UsageError: a value is out of its range.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            flag, value = field.metadata.get("flag"), getattr(self, field.name)
            if flag is not None and flag.check is not None and value is not None:
                flag.check(flag_of(field), value)


def at_least(low: float) -> Check:
    """A check that refuses smaller numbers, and NaN."""

    def check(flag: str, value: float) -> None:
        if not value >= low:
            raise UsageError(f"{flag} {value}: must be {low} or more")

    return check


def positive(flag: str, value: float) -> None:
    """A check that refuses 0, what is below it, and NaN."""
    if not value > 0:
        raise UsageError(f"{flag} {value:g}: must be more than 0")


def positive_finite(flag: str, value: float) -> None:
    """The same, and refuses infinity."""
    if not 0 < value < math.inf:
        raise UsageError(f"{flag} {value:g}: must be more than 0, and finite")


def fraction(flag: str, value: float) -> None:
    """A check that refuses what is no share."""
    if not 0 <= value <= 1:
        raise UsageError(f"{flag} {value:g}: must be from 0 to 1")


class Part(NamedTuple):
    """Options that a command takes: those of a dataclass but some, in a group of their own where they name none."""

    options: type[Any]
    group: Group = Group()
    without: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Shown:
    """A flag, as the parser is given it."""

    field: dataclasses.Field[Any]
    flag: Flag
    kind: Any
    group: Group

    def add_to(self, group: Any, *, required: bool) -> None:
        """Adds it to a parser's group. A flag that is not given is left out of what is parsed."""
        default, flag = self.field.default, self.flag
        settings = {**_of_type(self.kind, default), **flag.settings, "default": argparse.SUPPRESS}
        held = os.environ.get(flag.variable, "") if flag.variable else ""
        if held:
            required, settings["default"] = False, held.rstrip("/")
        text = flag.help.replace("%(default)s", str(default))
        settings["help"] = text.replace("%(default)g", f"{default:g}") if "%(default)g" in text else text
        name = flag_of(self.field)
        if name.startswith("-"):
            group.add_argument(name, dest=self.field.name, required=required, **settings)
            return
        if settings.get("nargs") == "?":
            settings["default"] = default  # argparse compares a text with the choices
        group.add_argument(self.field.name, **settings)


def flag_of(field: dataclasses.Field[Any]) -> str:
    """The flag that sets a field."""
    named: str = field.metadata["flag"].name
    return named or (f"--no_{field.name}" if field.default is True else f"--{field.name}")


def _of_type(kind: Any, default: Any) -> dict[str, Any]:
    """What argparse is told of a field's type."""
    origin, held = get_origin(kind), get_args(kind)
    if origin is ClassVar or origin is Union or origin is types.UnionType:
        return _of_type(held[0], default)
    if origin is tuple:
        return {"nargs": "+", "action": "extend", **_of_type(held[0], None)}
    if origin is Literal:
        return {"choices": held}
    if kind is bool:
        return {"action": "store_false" if default is True else "store_true"}
    if kind is int:
        return {"type": int, "metavar": "N"}
    return {"type": float} if kind is float else {}


def add_flags(
    parser: argparse.ArgumentParser,
    parts: Sequence[type[Any] | Part],
    *,
    groups: Sequence[Group] = (),
    required_by: type[Any] | None = None,
) -> None:
    """Adds the flags of dataclasses of options, and --json. A flag that several have is said by the first one.

    Args:
      parser: their command's.
      parts: the dataclasses.
      groups: those that are not shown in the order in which the fields name them.
      required_by: the dataclass whose fields without default must be given; None: those of each.
    """
    shown: dict[str, _Shown] = {}
    for part in (part if isinstance(part, Part) else Part(part) for part in parts):
        kinds = get_type_hints(part.options)
        for name, field in part.options.__dataclass_fields__.items():
            flag = field.metadata.get("flag")
            if flag is not None and name not in part.without and name not in shown:
                shown[name] = _Shown(field, flag, kinds[name], flag.group or part.group)
    places: dict[Any, Any] = {Group(): parser}
    for group in (*groups, *(each.group for each in shown.values())):
        if group not in places:
            places[group] = parser.add_argument_group(group.title, group.text)
    must = {} if required_by is None else required_by.__dataclass_fields__
    for name, each in sorted(shown.items(), key=lambda item: item[1].flag.order):
        field = each.field if required_by is None else must.get(name)
        place, others = places[each.group], each.flag.excludes
        if others and others not in places:
            places[others] = place.add_mutually_exclusive_group(required=others.endswith("!"))
        each.add_to(places.get(others, place), required=field is not None and field.default is dataclasses.MISSING)
    if "json" not in shown:
        parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help=JSON_HELP)


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, by name, as a frozen dataclass takes them."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in vars(arguments).items()}


def only(values: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """The values that are fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Generic[Given]):
    """A command: its options, what it does with them, and what its help says about the whole.

    Attributes:
      prog: as it is typed where nothing else is said.
      options: the dataclass of its options.
      work: does what they ask for, given them and the command as it is typed.
      description: the beginning of the help, often the module's docstring; from a line `Exit codes: ` on, its end.
      epilog: the end of the help.
      usage: the usage, where argparse's own would not do.
      parts: whose flags it takes; none: those of `options`.
      groups: sections of the help that are not shown in the order in which fields name them.
      json_takes_file: it also has `--json FILE`, which leaves standard output to the text.
      summary: of a command of several, the line that lists it.
      instead: see `Parser`.
    """

    prog: str
    options: type[Given]
    work: Callable[[Given, str], Report]
    description: str
    epilog: str = ""
    usage: str | None = None
    parts: Sequence[type[Any] | Part] = ()
    groups: Sequence[Group] = ()
    json_takes_file: bool = False
    summary: str = ""
    instead: Mapping[str, str] | None = None

    def parser(self, prog: str = "") -> argparse.ArgumentParser:
        """The command line's parser."""
        about, _, codes = self.description.replace(self.prog, "%(prog)s").partition("\n\nExit codes: ")
        epilog = self.epilog or (f"Exit codes: {codes}" if codes else None)
        parser = Parser(
            prog=prog or self.prog, usage=self.usage, description=about, epilog=epilog, instead=self.instead
        )
        add_flags(parser, self.parts or (self.options,), groups=self.groups)
        return parser

    def parse(self, argv: Sequence[str], prog: str = "") -> Given:
        """The options that a command line asks for.

        Raises:
          UsageError: a flag is missing, unknown or out of its range.
          SystemExit: --help (0).
        """
        return self.options(**only(given(self.parser(prog).parse_args(argv)), self.options))

    def main(self, argv: Sequence[str] | None = None, *, prog: str = "") -> int:
        """Parses, works, reports. Returns the exit code."""

        def work(argv: Sequence[str], prog: str) -> Report:
            return self.work(self.parse(argv, prog), prog)

        return run(work, argv, prog=prog or self.prog, json_takes_file=self.json_takes_file)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commands:
    """Several commands under one name, such as `millrace job status`.

    Attributes:
      prog: as they are typed where nothing else is said.
      description: the beginning of the help.
      epilog: its end.
      commands: each by the `prog` of its own, a word after the common name.
      called: what the usage calls that word.
    """

    prog: str
    description: str
    epilog: str
    commands: Sequence[Command[Any]]
    called: str = "COMMAND"

    def parser(self, prog: str = "") -> argparse.ArgumentParser:
        """The command line's parser."""
        result = Parser(prog=prog or self.prog, description=self.description, epilog=self.epilog)
        known = result.add_subparsers(dest="command", required=True, metavar=self.called, parser_class=_OfSeveral)
        for each in self.commands:
            own = known.add_parser(
                each.prog, help=each.summary, description=each.description, usage=each.usage, instead=each.instead
            )
            add_flags(own, (each.options,), groups=each.groups)
        return result

    def work(self, argv: Sequence[str], prog: str, **more: Any) -> Report:
        """Parses, and does what is asked for. `more`: options that are no flags."""
        values = given(self.parser(prog).parse_args(argv))
        name = values.pop("command")
        chosen = next(each for each in self.commands if each.prog == name)
        return chosen.work(chosen.options(**only(values, chosen.options), **more), prog)

    def main(self, argv: Sequence[str] | None = None, *, prog: str = "") -> int:
        """Parses, works, reports. Returns the exit code."""
        return run(self.work, argv, prog=prog or self.prog)


@contextlib.contextmanager
def when_interrupted(what: str = "") -> Iterator[None]:
    """In the `with` block, Ctrl-C or SIGTERM ends the command with what happened to its work: `interrupted; WHAT`.

    Raises:
      Interrupted: it came.
    """
    try:
        yield
    except KeyboardInterrupt as error:
        how, code = how_ended(error)
        raise Interrupted(f"{how}; {what}" if what else how, code) from None


def typed(name: str, value: Any) -> Sequence[str]:
    """A flag and its value as they are typed."""
    if value is True:
        return (f"--{name}",)
    if isinstance(value, list | tuple):
        return (f"--{name}", *map(str, value))
    text = str(value)
    return (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)


def duration(seconds: float) -> str:
    """Seconds as a person says them: `48 s`, `3 min 20 s`, `5 h 12 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def rate(count: int, unit: str, seconds: float, *, startup: float | None = None) -> str:
    """What was done in how long: `100 rows in 0.4 s (250 rows/s), after 3.1 s of start-up`."""
    each = f" ({count / seconds:,.0f} {unit}/s)" if seconds else ""
    before = "" if startup is None else f", after {startup:.1f} s of start-up"
    return f"{count:,} {unit} in {seconds:.1f} s{each}{before}"


def size(count: float) -> str:
    """Bytes as a person reads them: `775 MB`."""
    units = ["bytes", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count /= 1000
        units.pop(0)
    unit = units[0]
    return f"{count:,.0f} {unit}" if count >= 99.95 or unit == "bytes" else f"{count:.3g} {unit}"


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
