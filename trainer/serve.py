"""Serves an exported model over HTTP.

python -m trainer.serve --export model/export/best/1700000000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from schemas import command
from trainer.serving.options import ServeOptions

PROG = "python -m trainer.serve"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    result = command.Parser(prog=prog, description=(__doc__ or "").replace(PROG, "%(prog)s"))
    result.add_argument("--export", required=True, metavar="DIR", help="the exported model")
    result.add_argument("--name", default="model", help="the model's name in addresses (default: %(default)s)")
    result.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    result.add_argument("--port", type=int, default=8501, help="the port (default: %(default)s)")
    result.add_argument("--verbose", action="store_true", help=command.VERBOSE_HELP)
    return result


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses and serves; returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    given = parser(prog).parse_args(argv)
    options = ServeOptions(export_dir=given.export, name=given.name, host=given.host, port=given.port)
    from trainer.serving.server import serve
    from trainer.verbosity import start_tensorflow

    start_tensorflow(verbose=given.verbose)
    serve(options, started=lambda port: print(f"listening on {options.host}:{port}", flush=True))
    return command.Report("", {})


if __name__ == "__main__":
    sys.exit(main())
