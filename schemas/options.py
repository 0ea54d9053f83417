"""Options of commands, as fields of a dataclass, and the parser that is made of them.

An option is said once, as a field: its type, default, help, group, choices and check. The flag, `--help`, the keyword
of the Python API and what is recorded follow from it.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import os
import re
import sys
import types
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Union, get_args, get_origin, get_type_hints

from schemas.errors import UsageError, did_you_mean

JSON_HELP = "print the result, or the error, as one JSON object on standard output, and nothing else there"
QUIET_HELP = "show no progress"
VERBOSE_HELP = "also show TensorFlow's own log"
STRAY = "belongs to no flag; quote a name with spaces"
_REQUIRED = re.compile(r"(?:the following arguments are required:|one of the arguments) (--\w+(?:,? --\w+)*)")
_VALUE = re.compile(r"argument (.*): invalid (int|float) value: '(.*)'")
_KINDS = {"int": "a whole number", "float": "a number"}
_USUAL = {"lr": "learning_rate", "o": "output", "steps": "max_steps", "target": "label"}  # elsewhere: here
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
        self._unknown: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._words, self._unknown = sys.argv[1:] if args is None else list(args), ()
        found, self._unknown = super().parse_known_args(args, namespace)
        return found, self._unknown

    def error(self, message: str) -> NoReturn:
        # A flag that is misspelt, or left out before its value, may well be the one that is missing.
        missing = _REQUIRED.match(message)
        told = next(self._misspelt(), "") or (self._stray(missing) if missing else self._beside())
        message = _VALUE.sub(lambda found: f"{found[1]} {found[3]}: must be {_KINDS[found[2]]}", message)
        choice = _CHOICE.search(message)
        near = did_you_mean(choice[1], choice[2].replace("'", "").split(", "), cutoff=0.75) if choice else ""
        raise UsageError(f"{told or message + near}\nSee {self.prog} --help.")

    def _stray(self, missing: re.Match[str]) -> str:
        """Words that belong to no flag, where flags are missing; nothing without such words."""
        flags, one = re.split(",? ", missing[1]), missing[0].startswith("one of")
        required, flags = f"required: {(' or ' if one else ', ').join(flags)}", flags[:1] if one else flags
        held: list[Any] = [*self._actions, *self._mutually_exclusive_groups]
        for each in held:
            each.required = False
        words = list(itertools.takewhile(lambda word: word[:1] != "-", super().parse_known_args(self._words)[1]))
        meant = "did you mean " + " ".join(itertools.chain(*zip(flags, words, strict=False))) + "?"
        hint = meant if len(words) == len(flags) else required
        return f"{words[0]}: belongs to no flag; {hint}" if words else ""

    def _beside(self) -> str:
        """A word that belongs to no flag, where none is missing; nothing without such a word."""
        word = next(iter(self._unknown), "-")
        if word.startswith("-"):
            return ""
        before = dict(zip(self._words[1:], self._words, strict=False)).get(word, "")
        flag = self._option_string_actions.get(before)
        switch = flag is not None and flag.nargs == 0
        return f"{word}: belongs to no flag; {before} takes no value" if switch else f"{word}: {STRAY}"

    def _misspelt(self) -> Iterator[str]:
        known = self._option_string_actions  # private: argparse has no list of a parser's flags
        words = list(itertools.takewhile(lambda word: word != "--", self._words))
        for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
            flag, _, value = word.partition("=")
            if flag.startswith("-") and flag not in known:
                hint = meant(flag, known)
                instead = self._instead.get(_asked(flag, self._instead))
                if instead is not None:
                    given = value or ("" if following.startswith("-") else following)
                    hint = f"; did you mean {instead}{f'={given}' if given else ''}?"
                if hint:
                    yield f"{flag}: unknown option{hint}"


class OfSeveral(Parser):
    """The parser of a command of several, which answers for its flags itself."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown


def _asked(flag: str, known: Container[str]) -> str:
    """The name that a flag asks for, with one dash or two; a known one instead of one that is usual elsewhere."""
    name = flag.lstrip("-").replace("-", "_")
    here = _USUAL.get(name, name)
    return here if here in known else name


def meant(flag: str, known: Collection[str]) -> str:
    """`; did you mean --FLAG?` of a flag that is nearly one of those that are known, or begins one; else nothing."""
    asked = f"--{_asked(flag, [name.lstrip('-') for name in known])}"
    longer = min((name for name in known if len(asked) > 4 and name.startswith(asked)), key=len, default=None)
    return f"; did you mean {longer}?" if longer else did_you_mean(asked, known, cutoff=0.83)


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


def typed(name: str, value: Any) -> Sequence[str]:
    """A flag and its value as they are typed."""
    if value is True:
        return (f"--{name}",)
    if isinstance(value, list | tuple):
        return (f"--{name}", *map(str, value))
    text = str(value)
    return (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)
