"""Declares options of commands as fields of a dataclass.

An option is declared once, as a field: with its type, default, help, group, choices and check. Four things follow from
this field: the flag, its line in `--help`, the keyword of the Python API, and the value that a run records.
`schemas.arguments` parses command lines into such dataclasses.
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

Check = Callable[[str, Any], None]  # takes the flag's name and value (not None); raises UsageError on a bad value


@dataclasses.dataclass(frozen=True)
class Group:
    """A section of a command's help."""

    title: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Flag:
    """The details of an option that its field's type and default do not say.

    Attributes:
      help: the text in `--help`, with `%(default)s` for the default.
      group: the section of the help; None: the general section.
      name: the flag; '' stands for `--` and the field's name.
      positional: whether the value may also be given by its position, without the flag.
      check: refuses values out of range, from the command line and from Python.
      variable: the environment variable that is read if the flag is not given; '' if there is no such variable.
      metavar: the word for the value in the help, such as DIR.
      choices: the allowed values, if the type does not list them.
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
    """Returns a field for a dataclass of options, which is also a flag of the command.

    The flag's type follows from the field's type: `int | None` takes an integer, `tuple[str, ...]` takes several words,
    a Literal takes one of its words, and a bool is a switch. If the default of a switch is True, there is a flag
    `--no_NAME` as well. A field without a default is a required flag. A `ClassVar[bool]` is a flag of the command
    alone, and no keyword of the Python API.

    Args:
      text: the flag's text in the help.
      default: the value if the flag is not given.
      details: further attributes of `Flag`, by name.
    """
    return dataclasses.field(default=default, metadata={"flag": Flag(text, **details)})


def json_flag(group: Group | None = None) -> Any:
    """Returns the flag --json as a field, to be declared as `json: ClassVar[bool]`.

    Every command has this flag anyway, in the last section of its help. Declaring it moves it to another place.
    """
    return option(JSON_HELP, False, group=group)


@dataclasses.dataclass(frozen=True)
class Options:
    """The base class of dataclasses of options. Checks each value, by the check of its option.

    Raises:
      UsageError: a value is out of its range.
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            flag, value = field.metadata.get("flag"), getattr(self, field.name)
            if flag is not None and flag.check is not None and value is not None:
                flag.check(flag_of(field), value)


def at_least(low: float) -> Check:
    """Returns a check that refuses numbers below `low`, and NaN."""

    def check(flag: str, value: float) -> None:
        # `not >=` instead of `<`, because every comparison with NaN is false.
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
    """Returns the name of the flag that sets a field, such as `--data_dir`."""
    return field.metadata["flag"].name or f"--{field.name}"


def only(values: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Returns those of the values whose names are fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}


def typed(name: str, value: Any) -> Sequence[str]:
    """Returns a flag and its value as they are typed on a command line.

    >>> typed("hparams", ["depth=2", "width=8"]), typed("shift", -1)
    (('--hparams', 'depth=2', 'width=8'), ('--shift=-1',))
    """
    if value is True:
        return (f"--{name}",)
    if isinstance(value, list | tuple):
        return (f"--{name}", *map(str, value))
    text = str(value)
    return (f"--{name}={text}",) if text.startswith("-") else (f"--{name}", text)
