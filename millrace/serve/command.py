"""Serves an exported model over HTTP: TensorFlow Serving's REST API, and JSON of plain rows.

    millrace serve --model_dir model/
    curl -s localhost:8501/predict -d '[{"depot": "Cork", "weight_kg": 2.5, "distance_km": 410, "service": null}]'

The newest export is served. A newer one takes over while the server runs, without a request lost, if it passes its
checks; a bad one is refused, and the log and the model's status say why. SIGTERM and Ctrl-C end the server when all
requests that it has accepted are answered; SIGHUP has it look for a newer export at once.

Needs the extra `serve`: pip install -c constraints.txt '.[serve]' in the checkout
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millrace.serve.options import ServeOptions
from schemas import command
from schemas.graphs.check import TRUST_HELP

if TYPE_CHECKING:
    from millrace.serve.server import Served, Server


PROG = "millrace serve"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    result = command.Parser(
        prog=prog,
        description=(__doc__ or "").replace(PROG, "%(prog)s"),
        epilog="Addresses, with NAME as the schema's name: POST /v1/models/NAME:predict, :classify, :regress, POST\n"
        "/predict; GET /v1/models/NAME, /v1/models/NAME/metadata, /healthz, /readyz, /metrics; POST /admin/roll_back,\n"
        "/admin/reload.\n\nExit codes: 0 stopped by a signal, with every request answered; 1 failed; 2 invalid usage.",
    )
    where = result.add_argument_group("what is served, and where")
    where.add_argument(
        "--model_dir",
        required=True,
        metavar="DIR",
        help="a model directory, an export, or a folder of exports whose names are numbers; on gs:// and s3://, too",
    )
    where.add_argument("--name", help="the model's name in addresses (default: the schema's)")
    where.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    where.add_argument("--port", type=int, default=8501, metavar="N", help="0: a free one (default: %(default)s)")
    who = result.add_argument_group("who may ask")
    who.add_argument(
        "--token_file",
        metavar="FILE",
        help="holds the token that requests must send, `Authorization: Bearer TOKEN`; several lines are several tokens "
        "(default: the environment variable MILLRACE_SERVE_TOKEN, if it is set)",
    )
    who.add_argument("--insecure", action="store_true", help="serve other machines without a token")
    who.add_argument(
        "--allowed_hosts",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names that requests may be sent to, besides localhost, this machine's and addresses of digits; * is all",
    )
    who.add_argument("--certificate", metavar="FILE", help="for TLS: the certificate, with its chain, as PEM")
    who.add_argument("--key", metavar="FILE", help="for TLS: its private key, as PEM")
    limits = result.add_argument_group("limits; what exceeds them is refused at once")
    for name, kind, default, text in LIMITS:
        limits.add_argument(f"--{name}", type=kind, default=default, metavar="N" if kind is int else "X", help=text)
    kept = result.add_argument_group("what is kept of requests")
    kept.add_argument(
        "--store",
        metavar="DIR",
        help="store each request's raw values with its prediction here, on disk before the answer leaves; "
        "`millrace label` joins labels to them",
    )
    kept.add_argument(
        "--store_async",
        action="store_true",
        help="answer before it is on disk: a kill loses the last answered requests",
    )
    kept.add_argument("--retain_days", type=float, metavar="X", help="remove stored requests that are older")
    result.add_argument("--trust", action="store_true", help=TRUST_HELP)
    result.add_argument("--json", action="store_true", help=command.JSON_HELP)
    result.add_argument("--verbose", action="store_true", help=command.VERBOSE_HELP)
    return result


LIMITS = (
    ("batch_rows", int, None, "rows in a batch (default: 1024, or 64 images)"),
    ("wait_ms", float, 0.0, "how long a free model waits for more rows (default: %(default)g)"),
    ("queue_rows", int, None, "rows that may wait (default: as many as take --queue_mb)"),
    ("queue_mb", int, 256, "megabytes that may wait (default: %(default)s)"),
    ("max_body_mb", float, 32.0, "megabytes of a request (default: %(default)g)"),
    ("max_rows", int, 10_000, "rows of a request (default: %(default)s)"),
    ("poll_secs", float, 30.0, "seconds between looks for newer exports in a bucket (default: %(default)g)"),
    (
        "check_secs",
        float,
        300.0,
        "seconds that a newer export may take in the process that tries it out; 0: it is not tried out (default: "
        "%(default)g)",
    ),
    ("check_mb", int, None, "megabytes that it may take there (default: three quarters of what is available)"),
    ("connections", int, 1000, "open connections (default: %(default)s)"),
    ("request_secs", float, 30.0, "seconds until a request has arrived (default: %(default)g)"),
    ("answer_secs", float, 30.0, "seconds until an answer is read, and that a request may wait (default: %(default)g)"),
    ("drain_secs", float, 30.0, "seconds that the last requests have after a signal (default: %(default)g)"),
)


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses and serves; returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    given = vars(parser(prog).parse_args(argv))
    given.pop("json")
    options = ServeOptions(**{**given, "allowed_hosts": tuple(given["allowed_hosts"])})
    from millrace.serve.server import Server

    with _logged():
        served = _serve(Server(options), options)
    text = f"answered {served.answered:,} requests"
    if served.given_up:
        text += f"; gave up {served.given_up:,} that took more than {options.drain_secs:g} s"
    data = {"answered": served.answered, "given_up": served.given_up}
    return command.Report(text, data, 1 if served.given_up else 0)


def _serve(server: Server, options: ServeOptions) -> Served:
    scheme = "http" if options.certificate is None else "https"
    host = f"[{options.host}]" if ":" in options.host else options.host

    def started() -> None:
        version = server.versions.current.version
        print(f"serving {server.name}, version {version}: {scheme}://{host}:{server.port}", file=sys.stderr, flush=True)

    return server.run(started=started)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """What the server logs goes to standard error, with the time. Other libraries log as in any command."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    own = logging.getLogger("trainer")
    own.addHandler(handler)
    try:
        yield
    finally:
        own.removeHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
