"""Starts a server: loads the export, listens, answers until a signal, and then answers what it has accepted."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from trainer.serving.app import Application
from trainer.serving.batcher import Batcher
from trainer.serving.loaded import Loaded, load
from trainer.serving.options import ServeOptions
from trainer.serving.sink import RequestSink


def serve(options: ServeOptions, *, sink: RequestSink | None = None, started: Callable[[int], None] = print) -> None:
    """Serves until SIGTERM or SIGINT.

    Args:
      options: what is served, and where.
      sink: takes what was answered, before the answers leave.
      started: called with the port, once it listens.
    """
    import uvloop

    loaded = load(options.export_dir, os.path.basename(options.export_dir.rstrip("/")), trust=options.trust)
    uvloop.run(_serve(options, loaded, sink, started))


async def _serve(
    options: ServeOptions, loaded: Loaded, sink: RequestSink | None, started: Callable[[int], None]
) -> None:
    import uvicorn

    batcher = Batcher(lambda: loaded, loaded.interface, options.batches, sink)
    app = Application(options.name, lambda: loaded, batcher, max_bytes=options.max_bytes)
    config = uvicorn.Config(app, http="httptools", lifespan="off", access_log=False, log_level="warning", ws="none")
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind((options.host, options.port))
    started(listening.getsockname()[1])
    server = uvicorn.Server(config)
    await server.serve(sockets=[listening])
    await batcher.close()
    if sink is not None:
        await asyncio.get_running_loop().run_in_executor(None, sink.close)
