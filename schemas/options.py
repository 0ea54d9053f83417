"""Declares options of commands as fields of a dataclass.

An option is declared once, as a field: its type, default, help, group, choices and check. The flag, `--help`, the
keyword of the Python API and what is recorded follow from it. `schemas.arguments` parses command lines.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from schemas.errors import UsageError

JSON_HELP = "print the result, or the error, as one JSON object on standard output, and nothing else there"
QUIET_HELP = "show no progress"
VERBOSE_HELP = "also show TensorFlow's own log"

Check = Callable[[str, Any], None]  # takes the flag and its value, which is not None; raises UsageError


@dataclasses.dataclass(frozen=True)
class Group:
    """A section of a command's help."""

    title: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Flag:
    """The details of an option, beside the type and the default of its field.

    Attributes:
      help: what `--help` says of it, with `%(default)s` for the default.
      group: the section of the help.
      name: the flag, where it is not `--` and the field's name.
      positional: its place says it, too: the value may be given without the flag.
      check: refuses values out of range, from the command line and from Python.
      variable: the environment variable that has the value if the flag is not given.
      metavar: what the help calls the value.
      choices: the values that there are, where the type does not say so.
    """

    help: str
    group: Group | None = None
    name: str = ""
    positional: bool = False
    check: Check | None = None
    variable: str = ""
    metavar: str | None = None
    choices: tuple[str, ...] | None = None


def option(text: str, default: Any = dataclasses.MISSING, **details: Any) -> Any:
    """Returns a field of a dataclass of options, which is a flag of its command, too.

    The flag's type follows from the field's: `int | None` takes an integer, `tuple[str, ...]` several words, a Literal
    one of its words, and a bool is a switch, with `--no_NAME` beside it where the default is True. A field without a
    default must be given. A `ClassVar[bool]` is a flag of the command alone, and no keyword of the Python API.

    Args:
      text: the flag's help.
      default: the value if the flag is not given.
      details: what else `Flag` has.
    """
    return dataclasses.field(default=default, metadata={"flag": Flag(text, **details)})


def json_flag(group: Group | None = None) -> Any:
    """Returns the flag --json, as a field `json: ClassVar[bool]` where the help does not show it last."""
    return option(JSON_HELP, False, group=group)


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
    """Returns a check that refuses smaller numbers, and NaN."""

    def check(flag: str, value: float) -> None:
        if not value >= low:
            raise UsageError(f"{flag} {value}: must be {low} or more")

    return check


def positive(flag: str, value: float) -> None:
    """Refuses 0, negative numbers, and NaN."""
    if not value > 0:
        raise UsageError(f"{flag} {value:g}: must be more than 0")


def positive_finite(flag: str, value: float) -> None:
    """Refuses 0, negative numbers, NaN, and infinity."""
    if not 0 < value < math.inf:
        raise UsageError(f"{flag} {value:g}: must be more than 0, and finite")


def fraction(flag: str, value: float) -> None:
    """Refuses numbers that are not from 0 to 1."""
    if not 0 <= value <= 1:
        raise UsageError(f"{flag} {value:g}: must be from 0 to 1")


def flag_of(field: dataclasses.Field[Any]) -> str:
    """Returns the flag that sets a field."""
    return field.metadata["flag"].name or f"--{field.name}"


def only(values: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Returns the values that are fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def typed(name: str, value: Any) -> Sequence[str]:
    """Returns a flag and its value as they are typed.

    >>> typed("hparams", ["depth=2", "width=8"]), typed("shift", -1)
    (('--hparams', 'depth=2', 'width=8'), ('--shift=-1',))
    """
    if value is True:
        return (f"--{name}",)
    if isinstance(value, list | tuple):
        return (f"--{name}", *map(str, value))
    text = str(value)
    return (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)
