"""The schemas that ship, by name, so that `--schema covertype` works wherever the package is installed."""

from __future__ import annotations

import difflib
import os

from schemas import storage
from schemas.errors import UsageError

SUFFIX = ".yaml"
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def names() -> tuple[str, ...]:
    """The schemas that ship, sorted."""
    return tuple(sorted(name.removesuffix(SUFFIX) for name in os.listdir(FOLDER) if name.endswith(SUFFIX)))


def path_of(name: str) -> str:
    """The file of a shipped schema."""
    return os.path.join(FOLDER, name + SUFFIX)


def find(schema: str) -> str:
    """The file that `--schema` means: the file of this path if there is one, else the shipped schema of this name.

    Args:
      schema: a path, local or gs://, or the name of a shipped schema. A folder of the same name is in nobody's way.

    Raises:
      UsageError: there is neither; the message lists the schemas that ship.
    """
    if schema in names() and not os.path.isfile(schema):
        return path_of(schema)
    if not storage.exists(schema):
        near = difflib.get_close_matches(os.path.basename(schema).removesuffix(SUFFIX), names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        known = ", ".join(names())
        raise UsageError(f"{schema}: no such schema file{hint}\nGive a file, or a schema that ships: {known}.")
    return schema
