"""Finds the schemas that ship with the package, by name, and lists or prints them: `python -m schemas.spec [NAME]`.

So `--schema covertype` works without a schema file, and a user can begin with a copy of a shipped schema.
"""

from __future__ import annotations

import dataclasses
import os

from schemas import command, storage
from schemas.errors import UsageError, did_you_mean
from schemas.options import Options, option

SUFFIX = ".yaml"
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def names() -> tuple[str, ...]:
    """Returns the names of the schemas that ship, sorted."""
    return tuple(sorted(name.removesuffix(SUFFIX) for name in os.listdir(FOLDER) if name.endswith(SUFFIX)))


def path_of(name: str) -> str:
    """Returns the path of a shipped schema's file."""
    return os.path.join(FOLDER, name + SUFFIX)


def find(schema: str) -> str:
    """Returns the file of the schema that a user gave: a file of this path, or else the shipped schema of this name.

    Args:
      schema: a path, local or gs://, or the name of a shipped schema. A folder of this name is ignored.

    Raises:
      UsageError: there is no such file and no such shipped schema. The message lists the schemas that ship.
    """
    if schema in names() and not os.path.isfile(schema):
        return path_of(schema)
    if not storage.exists(schema):
        hint = did_you_mean(os.path.basename(schema).removesuffix(SUFFIX), names())
        schema_names = ", ".join(names())
        raise UsageError(f"{schema}: no such schema file{hint}\nGive a file, or a schema that ships: {schema_names}.")
    return schema


PROG = "python -m schemas.spec"

_EPILOG = """\
examples:
  %(prog)s
  %(prog)s titanic > my.yaml

`--schema NAME` reads a shipped schema without a copy.
Exit codes: 0 done, 1 failed, 2 invalid usage.
"""


@dataclasses.dataclass(frozen=True)
class SchemaOptions(Options):
    """The options of `python -m schemas.spec`."""

    name: str | None = option(
        "the schema to print (default: list all)", None, positional=True, choices=names(), metavar="NAME"
    )


def _run(options: SchemaOptions, prog: str) -> command.Report:
    name = options.name
    if name is not None:
        text = _text(name)
        return command.Report(text.rstrip("\n"), {"name": name, "text": text}, only_printed=True)
    about = {schema_name: _text(schema_name).splitlines()[0].lstrip("# ") for schema_name in names()}
    width = max(map(len, about))
    return command.Report(
        "\n".join(f"{schema_name:{width}}  {line}" for schema_name, line in about.items()),
        {"schemas": about},
        only_printed=True,
    )


def _text(name: str) -> str:
    return storage.read_bytes(path_of(name)).decode()


COMMAND = command.Command(
    prog=PROG,
    options=SchemaOptions,
    work=_run,
    description="Lists the schemas that ship with Millrace, or prints one of them, to start your own from.",
    epilog=_EPILOG,
)
app, main = COMMAND.app, COMMAND.main
