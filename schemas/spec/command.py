"""`python -m schemas.spec [NAME]`: prints a schema that ships, to be copied, or lists all of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from schemas import command, storage
from schemas.spec import shipped

PROG = "python -m schemas.spec"

_EPILOG = """\
examples:
  %(prog)s
  %(prog)s titanic > my.yaml

`--schema NAME` reads a shipped schema without a copy.
Exit codes: 0 done, 1 failed, 2 invalid usage.
"""


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    p = command.Parser(
        prog=prog,
        description="Lists the schemas that ship with Millrace, or prints one of them, to start your own from.",
        epilog=_EPILOG,
    )
    p.add_argument(
        "name", nargs="?", choices=shipped.names(), metavar="NAME", help="the schema to print (default: list all)"
    )
    p.add_argument("--json", action="store_true", help=command.JSON_HELP)
    return p


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """The command line. Returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    name = parser(prog).parse_args(argv).name
    if name is not None:
        text = _text(name)
        return command.Report(text.rstrip("\n"), {"name": name, "text": text})
    about = {each: _text(each).splitlines()[0].lstrip("# ") for each in shipped.names()}
    width = max(map(len, about))
    return command.Report("\n".join(f"{each:{width}}  {line}" for each, line in about.items()), {"schemas": about})


def _text(name: str) -> str:
    return storage.read_bytes(shipped.path_of(name)).decode()
