"""A server from its start to its end: it loads a model, listens, and answers what it has accepted before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
import uvloop
from starlette.applications import Starlette

from millrace.serve.app import Application, read_tokens
from millrace.serve.batcher import Batcher
from millrace.serve.metrics import Metrics, Readings
from millrace.serve.model import ServedVersion
from millrace.serve.options import ServeOptions
from millrace.serve.versions import Versions
from millrace.store.writer import RequestStore
from schemas import storage
from schemas.dataset.layout import SCHEMA_YAML
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import EXTRA, find_source
from trainer.start import start_tensorflow

LINGER = 1.0  # seconds that open connections have for one more request, whose answer tells the client to leave
IDLE = 75  # seconds between the requests of a connection


@dataclasses.dataclass(frozen=True)
class Served:
    """What a server did: requests that it answered, and those that it gave up when it was stopped."""

    answered: int
    given_up: int


class Server:
    """A server in this process. `run` serves until `stop`, which any thread may call, or a signal.

    Args:
      options: what is served, and where.

    Attributes:
      versions: the version in service, and those that were refused.
      name: the model's name in addresses.
      port: where it listens.
      application: what it answers, once it runs.

    Raises:
      UsageError: there is no model, or the options do not fit together.
      MillraceError: no export can be served, or the port is taken.
    """

    application: Application

    def __init__(self, options: ServeOptions) -> None:
        self._options = options
        self._tokens = read_tokens(options.token_file)
        self._socket = _bound(options)  # before a model is loaded in vain
        try:
            options.check_reachable(has_token=bool(self._tokens))
            source = find_source(options.model_dir)
            start_tensorflow(verbose=options.verbose)
            self.versions = Versions(source, options, self._retire)
            self._store = _store(options, self.versions.current)
        except BaseException:
            self._socket.close()
            raise
        self.name = options.name or self.versions.current.interface.schema.name
        self.port: int = self._socket.getsockname()[1]
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._stopping = asyncio.Event()

    def run(self, *, started: Callable[[], None] = lambda: None) -> Served:
        """Serves until it is stopped. `started` is called once requests are answered."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            return runner.run(self._run(started))

    def stop(self) -> None:
        """Has `run` end, when everything that was accepted is answered."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._stopping.set)

    async def _run(self, started: Callable[[], None]) -> Served:
        versions, loop = self.versions, asyncio.get_running_loop()
        metrics = Metrics(self._readings())
        batcher = Batcher(versions, self._options, self._store, metrics)
        self.application = Application(
            self.name, self._tokens, self._options, versions=versions, batcher=batcher, metrics=metrics
        )
        uvicorn_server = _Uvicorn(_config(self.application.asgi(), self._options))
        self._on_signals()
        watching = loop.create_task(versions.watch())
        serving = loop.create_task(uvicorn_server.serve(sockets=[self._socket]))
        try:
            while not uvicorn_server.started and not serving.done():
                await asyncio.sleep(0.01)
            if not serving.done():
                started()
                await self._stopping.wait()
                await self._drain(uvicorn_server)
            await serving
        finally:
            watching.cancel()
            given_up = len(uvicorn_server.server_state.tasks)
            await batcher.close()
            if self._store is not None:
                await loop.run_in_executor(None, self._store.close)
            versions.current.model.close()
        return Served(metrics.answered, given_up)

    def _readings(self) -> Readings:
        versions, store = self.versions, self._store
        readings: dict[str, tuple[str, Callable[[], float]]] = {
            "millrace_queued_rows": ("Rows that wait for the model", lambda: self.application.batcher.queued_rows),
            "millrace_queued_bytes": ("Bytes that wait for the model", lambda: self.application.batcher.queued_bytes),
            "millrace_reading_bytes": ("Bytes of bodies that are being read", lambda: self.application.reading),
            "millrace_model_version": ("The version in service", lambda: float(versions.current.version)),
            "millrace_model_swaps": ("How often another version was put into service", lambda: versions.swaps),
            "millrace_model_refused": ("Versions that were refused", lambda: len(versions.refused)),
        }
        if store is not None:
            readings |= {
                "millrace_stored_rows_total": ("Rows that were stored", lambda: store.counts.rows),
                "millrace_store_errors_total": ("Rows that could not be stored", lambda: store.counts.failed),
                "millrace_repeated_ids_total": ("Rows whose id was stored already", lambda: store.counts.repeated),
            }
        return readings

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(RuntimeError, ValueError):  # not in the main thread
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._stopping.set)
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(self.versions.refresh()))

    async def _drain(self, uvicorn_server: uvicorn.Server) -> None:
        """Takes no more connections, and lets clients of those that are open hear that they must leave."""
        self.application.stopping = True
        self.versions.stop()
        for listener in uvicorn_server.servers:
            listener.close()
        loop = asyncio.get_running_loop()
        until = loop.time() + LINGER
        while uvicorn_server.server_state.connections and loop.time() < until:
            await asyncio.sleep(0.02)
        uvicorn_server.should_exit = True

    def _retire(self, loaded: ServedVersion) -> None:
        self.application.batcher.after_batches(loaded.model.close)  # nothing is retired before there is a loop


class _Uvicorn(uvicorn.Server):
    """A server whose signals are handled by `Server`."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _config(app: Starlette, options: ServeOptions) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=options.connections,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=max(1, int(options.drain_secs)),
    )


def _store(options: ServeOptions, loaded: ServedVersion) -> RequestStore | None:
    """Opens the store of requests, if the options name one."""
    if options.store is None:
        return None
    return RequestStore(
        options.store,
        loaded.interface.schema,
        schema_yaml=storage.read_bytes(storage.join(loaded.folder, EXTRA, SCHEMA_YAML)),
        retain_days=options.retain_days,
    )


def _bound(options: ServeOptions) -> socket.socket:
    """Binds a socket to the address; it does not listen yet.

    Raises:
      UsageError: it is no address of this machine.
      MillraceError: the port is taken.
    """
    bound = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((options.host, options.port))
        return bound
    except (socket.gaierror, UnicodeError) as error:  # a label that is empty, or too long
        bound.close()
        why = error.strerror if isinstance(error, OSError) else "is no name of a host"
        raise UsageError(f"--host {options.host}: {why}") from None
    except OSError as error:
        bound.close()
        what = "stop what listens there, or give another port"
        raise MillraceError(f"--host {options.host} --port {options.port}: {error.strerror}; {what}") from None
