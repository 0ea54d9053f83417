"""A server from its start to its end: it loads a model, listens, and answers what it has accepted before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Any

from millrace.serve.app import Application, Metrics, State
from millrace.serve.batcher import Batcher, RequestSink
from millrace.serve.connections import Guard, end_late_connections, protocol_with, read_tokens
from millrace.serve.model import Loaded
from millrace.serve.options import ServeOptions
from millrace.serve.pages import make_pages
from millrace.serve.versions import Versions, Watcher
from millrace.store.store import RequestStore
from schemas import storage
from schemas.dataset.layout import SCHEMA_YAML
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import EXTRA, find_source
from trainer.start import start_tensorflow

LINGER = 1.0  # seconds that open connections have for one more request, whose answer tells the client to leave
IDLE = 75  # seconds between the requests of a connection
_PACKAGES = ("httptools", "orjson", "prometheus_client", "starlette", "uvicorn", "uvloop", "watchfiles")


@dataclasses.dataclass(frozen=True)
class Served:
    """What a server did: requests that it answered, and those that it gave up when it was stopped."""

    answered: int
    given_up: int


class Server:
    """A server in this process. `run` serves until `stop`, which any thread may call, or a signal.

    Args:
      options: what is served, and where.
      sink: takes what was answered, before the answers leave; closed at the end.

    Attributes:
      versions: of the model.
      name: the model's, in addresses.
      port: where it listens.
      state: what its application shares, once it runs.

    Raises:
      UsageError: there is no model, or the options do not fit together, or packages are missing.
      MillraceError: no export can be served, or the port is taken.
    """

    state: State

    def __init__(self, options: ServeOptions, *, sink: RequestSink | None = None) -> None:
        _check_packages()
        self._options = options
        tokens = read_tokens(options.token_file)
        address = _address(options)  # one that is none needs no token
        options.check_reachable(has_token=bool(tokens))
        self._guard = Guard(tokens, options.allowed_hosts)
        _check_tls(options)
        source = find_source(options.model_dir)
        self._socket = _bound(options, address)  # before a model is loaded in vain
        try:
            start_tensorflow(verbose=options.verbose)
            self.versions = Versions(
                source,
                trust=options.trust,
                check_secs=options.check_secs,
                check_mb=options.check_mb,
                retire=self._retire,
            )
            self._sink = sink or _store(options, self.versions.current)
        except BaseException:
            self._socket.close()
            raise
        self.name = options.name or self.versions.current.interface.schema.name
        self.port: int = self._socket.getsockname()[1]
        self._server: Any = None
        self._stop = threading.Event()

    def run(self, *, started: Callable[[], None] = lambda: None) -> Served:
        """Serves. `started`: called once requests are answered."""
        import uvloop

        return uvloop.run(self._run(started))

    def stop(self) -> None:
        """Has `run` end, when everything that was accepted is answered."""
        self._stop.set()
        if self._server is not None:
            self._server.should_exit = True

    async def _run(self, started: Callable[[], None]) -> Served:
        options, versions = self._options, self.versions
        interface = versions.current.interface
        metrics = Metrics()
        batcher = Batcher(
            versions.named,
            interface,
            options.batches(images=interface.images),
            sink=self._sink,
            watch=metrics.batch,
        )
        state = self.state = State(
            self.name,
            versions,
            batcher,
            metrics,
            self._guard,
            most_bytes=int(options.max_body_mb * 2**20),
            most_rows=options.max_rows,
            most_reading=options.queue_mb << 20,
        )
        watcher = Watcher(versions, poll_secs=options.poll_secs)
        app = Application(state, make_pages(state, watcher))
        server = self._server = _uvicorn_server(app, options, state)
        server.should_exit = self._stop.is_set()
        metrics.follow(batcher, versions, server.server_state.connections, lambda: state.reading)
        if isinstance(self._sink, RequestStore):
            metrics.follow_store(self._sink)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread
            loop.add_signal_handler(signal.SIGHUP, lambda: loop.create_task(watcher.refresh()))
        watching = [
            loop.create_task(watcher.run()),
            loop.create_task(end_late_connections(server.server_state.connections)),
            loop.create_task(_when_started(server, started)),
        ]
        try:
            await server.serve(sockets=[self._socket])
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            given_up = len(server.server_state.tasks)
            await batcher.close()
            if self._sink is not None:
                await loop.run_in_executor(None, self._sink.close)
            versions.close()
        return Served(metrics.answered, given_up)

    def _retire(self, loaded: Loaded) -> None:
        self.state.batcher.after_batches(loaded.close)  # nothing is retired before there is a loop


def _store(options: ServeOptions, loaded: Loaded) -> RequestSink | None:
    """The store of requests that the options ask for."""
    if options.store is None:
        return None
    schema_yaml = storage.read_bytes(storage.join(loaded.folder, EXTRA, SCHEMA_YAML))
    interface = loaded.interface
    return RequestStore(
        options.store,
        interface.schema,
        classes=interface.classes,
        schema_yaml=schema_yaml,
        asynchronous=options.store_async,
        retain_days=options.retain_days,
    )


def _check_packages() -> None:
    """Checks that what a server needs is installed.

    Raises:
      UsageError: it is not.
    """
    import importlib.util

    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        from schemas.source_distribution import how_to_install

        raise UsageError(f"serving needs {', '.join(missing)}: {how_to_install('serve')}")


async def _when_started(server: Any, started: Callable[[], None]) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    started()


def _uvicorn_server(app: Any, options: ServeOptions, state: State) -> Any:
    import uvicorn

    class Draining(uvicorn.Server):
        """Ends by answering what was accepted, on connections that stay until then."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.handle_exit, number, None)
            yield
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            state.stopping = True
            state.versions.stop()
            for server in self.servers:
                server.close()
            loop = asyncio.get_running_loop()
            until = loop.time() + LINGER
            while self.server_state.connections and loop.time() < until and not self.force_exit:
                await asyncio.sleep(0.02)
            for connection in list(self.server_state.connections):
                connection.end_if_idle()  # type: ignore[union-attr] # our own protocol's
            await super().shutdown(sockets)

    tls = {} if options.certificate is None else {"ssl_certfile": options.certificate, "ssl_keyfile": options.key}
    config = uvicorn.Config(
        app,
        http=protocol_with(
            connections=options.connections, request_secs=options.request_secs, answer_secs=options.answer_secs
        ),
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=max(1, int(options.drain_secs)),
        **tls,  # type: ignore[arg-type]
    )
    return Draining(config)


def _check_tls(options: ServeOptions) -> None:
    if options.certificate is not None and options.key is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--certificate {options.certificate}, --key {options.key}: {error}") from None


def _address(options: ServeOptions) -> Any:
    """The address, as `socket.getaddrinfo` has it."""
    try:
        return socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError) as error:  # a label that is empty, or too long
        why = error.strerror if isinstance(error, OSError) else "is no name of a host"
        raise UsageError(f"--host {options.host}: {why}") from None


def _bound(options: ServeOptions, found: Any) -> socket.socket:
    """A socket at the address."""
    family, kind, protocol, _, address = found
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise MillraceError(
            f"--host {options.host} --port {options.port}: {error.strerror}; stop what listens there, or give another "
            "port"
        ) from None
    return bound
