"""Serves an exported model over HTTP: TensorFlow Serving's REST API, and JSON of plain rows.

    millrace serve --model_dir model/
    curl -s localhost:8501/predict -d '[{"depot": "Cork", "weight_kg": 2.5, "distance_km": 410, "service": null}]'

The newest export is served. A newer one takes over while the server runs, without a request lost, if it passes its
checks; a bad one is refused, and the log and the model's status say why. SIGTERM and Ctrl-C end the server when all
requests that it has accepted are answered; SIGHUP has it look for a newer export at once.

Needs the extra `serve`: pip install -c constraints.txt '.[serve]' in the checkout
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import logging
import sys
from collections.abc import Iterator

from millrace.serve.options import ServeOptions
from schemas import command
from schemas.errors import UsageError, counted
from schemas.source_distribution import how_to_install

PROG = "millrace serve"
_PACKAGES = ("httptools", "orjson", "prometheus_client", "starlette", "uvicorn", "uvloop")


def _run(options: ServeOptions, prog: str) -> command.Report:
    if missing := [name for name in _PACKAGES if importlib.util.find_spec(name) is None]:
        raise UsageError(f"serving needs {', '.join(missing)}: {how_to_install('serve')}")
    from millrace.serve.server import Server

    host = f"[{options.host}]" if ":" in options.host else options.host
    with _logged():
        server = Server(options)
        at = f"http://{host}:{server.port}"
        served = server.run(
            started=lambda: print(
                f"serving {server.name}, version {server.versions.current.version}: {at}", file=sys.stderr, flush=True
            )
        )
    text = f"answered {counted(served.answered, 'requests')}"
    if served.given_up:
        text += f"; gave up {served.given_up:,} that took more than {options.drain_secs:g} s"
    return command.Report(text, dataclasses.asdict(served), 1 if served.given_up else 0)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Writes what the server logs to standard error, with the time. Other libraries log as in any command."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    own = logging.getLogger("millrace")
    own.addHandler(handler)
    try:
        yield
    finally:
        own.removeHandler(handler)


COMMAND = command.Command(
    prog=PROG,
    options=ServeOptions,
    work=_run,
    description=__doc__ or "",
    epilog="Addresses, with NAME as the schema's name: POST /v1/models/NAME:predict, POST /predict;\n"
    "GET /v1/models/NAME, /v1/models/NAME/metadata, /healthz, /readyz, /metrics; POST /admin/reload.\n\n"
    "Exit codes: 0 stopped by a signal, with every request answered; 1 failed; 2 invalid usage.",
)
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
