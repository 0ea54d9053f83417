"""Parses command lines with Cyclopts: turns dataclasses of options into flags, and explains mistakes."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import cyclopts
from cyclopts import App, CycloptsError, MissingArgumentError, Token, UnknownOptionError

from schemas.errors import UsageError, did_you_mean
from schemas.options import JSON_HELP, Group, flag_of, option
from schemas.streams import print_result

_PATHS = frozenset({"DIR", "FILE", "JSONL", "PATTERN"})  # metavars of paths, which a shell completes
_NUMBERS = {int: "a whole number", float: "a number"}
_LINE_END = re.compile(r"(?<=\S)\n(?=\S)")


@dataclasses.dataclass(frozen=True)
class _Common:
    """The flags that every command has."""

    json: bool = option(JSON_HELP, False)


def new_app(prog: str, description: str, usage: str = "") -> App:
    """Returns a command without flags.

    Args:
      prog: the command as it is typed; replaces `%(prog)s` in the other two texts.
      description: the beginning of the help. Its paragraphs are wrapped to the width of the terminal.
      usage: the usage line; '' lets Cyclopts make one.
    """
    about, usage = (text.replace("%(prog)s", prog).strip() for text in (description, usage))
    app = App(
        name=prog,
        help=_LINE_END.sub(" ", about),
        usage=f"Usage: {usage}\n" if usage else None,
        help_format="plaintext",
        version_flags=(),
    )
    app["--help"].show = False
    return app


def add_flags(app: App, result: Callable[[dict[str, Any]], Any], parts: Sequence[Any]) -> None:
    """Gives a command the flag --json, and a flag for each option in some dataclasses.

    Args:
      app: the command.
      result: receives the values of a parsed command line, by field name. `parse` returns what `result` returns.
      parts: the dataclasses of options. If several have a field of the same name, the first one describes the flag.
        Only fields of the first dataclass can be required.
    """
    sections: dict[Group | None, cyclopts.Group] = {None: cyclopts.Group("options", sort_key=1_000)}
    parameters: dict[str, inspect.Parameter] = {}
    for part in (*parts, _Common):
        kinds = get_type_hints(part)
        for name, field in part.__dataclass_fields__.items():
            if "flag" not in field.metadata or name in parameters:
                continue
            group = field.metadata["flag"].group
            if group not in sections:
                sections[group] = cyclopts.Group(group.title, help=group.text, sort_key=len(sections))
            parameters[name] = _parameter(field, kinds[name], sections[group], may_be_required=part is parts[0])

    def collect(**values: Any) -> Any:
        return result(values)

    # Python wants positional parameters first. Among parameters of a kind, required ones come first in the help.
    in_order = sorted(parameters.values(), key=lambda p: (p.kind, p.default is not inspect.Parameter.empty))
    # Cyclopts makes a flag of each parameter in a function's signature. PEP 362 lets us set the signature.
    collect.__signature__ = inspect.Signature(in_order)  # type: ignore[attr-defined]
    app.default(collect)


def _parameter(
    field: dataclasses.Field[Any], kind: Any, section: cyclopts.Group, *, may_be_required: bool
) -> inspect.Parameter:
    """Returns an option's field as a parameter of a function, from which Cyclopts makes a flag."""
    flag, default = field.metadata["flag"], field.default
    if get_origin(kind) is ClassVar:
        (kind,) = get_args(kind)
    number = next((number for number in _NUMBERS if number is kind or number in get_args(kind)), None)
    text = flag.help.replace("%(default)s", str(default))
    text = text.replace("%(default)g", f"{default:g}") if "%(default)g" in text else text
    several, metavar = get_origin(kind) is tuple, flag.metavar or ("N" if number is int else "X" if number else None)
    converter = number and _converter(number)
    if flag.metavar in _PATHS:  # Cyclopts gets the type `Path`, which shells complete; our converter returns text
        kind, converter = (tuple[Path, ...], _texts) if several else (Path | None, _text)
    details = cyclopts.Parameter(
        name=None if flag.positional and not flag.name else flag_of(field),
        negative=f"--no_{field.name}" if default is True else (),
        help=text,
        group=section,
        metavar=metavar and f"{metavar}..." if several else metavar,
        choices=flag.choices,
        consume_multiple=1 if several else None,
        allow_repeating=True,  # the last value counts, so a user can repeat a command with a flag added at its end
        converter=converter,
        env_var=flag.variable if os.environ.get(flag.variable) else None,
        show_env_var=False,
        show_default=False,
    )
    required = default is dataclasses.MISSING and may_be_required
    if default is dataclasses.MISSING and not required:
        kind, default = kind | None, None
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD if flag.name else inspect.Parameter.POSITIONAL_ONLY
    return inspect.Parameter(
        field.name,
        by_place if flag.positional else inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else default,
        annotation=Annotated[kind, details],
    )


def _text(kind: Any, tokens: Sequence[Token]) -> str:
    return tokens[-1].value


def _texts(kind: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.value for token in tokens)


def _converter(number: type[int] | type[float]) -> Callable[[Any, Sequence[Token]], Any]:
    """Returns a function that reads a number as Python does; Cyclopts would round 1.5 to a whole number."""

    def convert(kind: Any, tokens: Sequence[Token]) -> float:
        try:
            return number(tokens[0].value)
        except ValueError:
            raise ValueError(f"{tokens[0].value} is not {_NUMBERS[number]}") from None

    return convert


def parse(
    app: App,
    argv: Sequence[str],
    *,
    epilog: str = "",
    instead: Mapping[str, str] | None = None,
    passes_on: bool = False,
) -> tuple[Any, list[str]]:
    """Parses a command line. If a flag is given twice, the last value counts.

    Args:
      app: the command.
      argv: the arguments of the command line.
      epilog: a text that is printed unchanged at the end of the help.
      instead: replacements for flags that do not exist: by the flag's name
        without dashes, what to give instead.
      passes_on: whether unknown arguments are returned instead of refused.

    Returns:
      The result of the `result` function of `add_flags`, and the unknown arguments.

    Raises:
      UsageError: an argument is missing, unknown or of the wrong type.
      SystemExit: the help or the version was printed. The exit code is 0, or 2 if there are no arguments.
    """
    prog = app.name[0]
    words: list[str] = []
    for word in argv:
        if word == "-" and words and words[-1].startswith("-"):
            words[-1] += "=-"  # `-` means standard output, but Cyclopts would take it for a flag
        else:
            words.append(word)
    try:
        command, bound, rest, _ = app.parse_known_args(words)
    except CycloptsError as error:
        error.verbose = False
        raise UsageError(f"{_problem(error, words, instead)}\nSee {prog} --help.") from None
    result = command(**bound.arguments)
    if result is None:
        if command.__name__ == App.help_print.__name__:
            print_result(f"\n{epilog.replace('%(prog)s', prog).rstrip()}")
        raise SystemExit(0 if argv else 2)
    if rest and not passes_on:
        _, apps, _ = app.parse_commands(words)
        raise UsageError(f"{unexpected(rest[0], _flags(apps[-1]), instead)}\nSee {prog} --help.")
    return result, rest


def _problem(error: CycloptsError, words: Sequence[str], instead: Mapping[str, str] | None) -> str:
    """Returns the message about the mistake in a command line.

    If a required flag is missing and there is an unknown flag, the unknown one is probably a misspelling, and is
    reported.
    """
    app = error.app
    if app and isinstance(error, UnknownOptionError):
        return unexpected(error.token.keyword or error.token.value, _flags(app), instead)
    if not isinstance(error, MissingArgumentError) or error.keyword or not (app and error.argument):
        return str(error)  # such as a flag without its value
    unused = error.unused_tokens or []
    if misspelt := next((word for word in unused if word.startswith("-")), None):
        return unexpected(misspelt, _flags(app), instead)
    # Cyclopts reports only the first missing flag. Name all required flags that were not typed.
    typed = {word.partition("=")[0].replace("-", "_") for word in words}
    required = [argument.name for argument in app.assemble_argument_collection() if argument.required]
    missing = [name for name in required[required.index(error.argument.name) :] if name.replace("-", "_") not in typed]
    return f"required: {', '.join(missing)}" + (f"; unexpected argument: {unused[0]}" if unused else "")


def unexpected(
    word: str, flags: Iterable[str], instead: Mapping[str, str] | None = None, *, cutoff: float = 0.7
) -> str:
    """Returns the message about an argument that belongs to no flag, or about an unknown flag.

    Args:
      word: the argument.
      flags: the flags of the command, with dashes.
      instead: what to give instead of some unknown flags, by the flag's name without dashes.
      cutoff: how similar a flag must be to be suggested, from 0 to 1.
    """
    if not word.startswith("-"):
        return f"{word}: unexpected argument; quote a name with spaces, and give no value to a switch"
    flag = word.partition("=")[0]
    name = flag.lstrip("-").replace("-", "_")
    replacement = (instead or {}).get(name)
    hint = f"; did you mean {replacement}?" if replacement else did_you_mean(f"--{name}", flags, cutoff=cutoff)
    return f"{flag}: unknown option{hint}"


def _flags(app: App) -> list[str]:
    """Returns the names of a command's flags."""
    return [name for argument in app.assemble_argument_collection() for name in argument.names]
