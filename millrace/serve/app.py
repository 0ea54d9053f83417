"""The application. Predictions are answered here, without a framework, which would take as long as all else that is
done for a row; everything else is in `millrace.serve.pages`.

What Prometheus reads: counts and times, never a value of a request.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping, Sequence
from typing import Any, Literal

from millrace.serve.batcher import Answer, Ask, Batcher
from millrace.serve.bodies import answer_of, parse
from millrace.serve.connections import Guard, Headers
from millrace.serve.model import Refused, bad_request, refuse_images
from millrace.serve.requests import count_rows, label_rows, plain_rows, predict_rows
from millrace.serve.versions import Versions
from millrace.store.rows import Outputs
from millrace.store.store import RequestStore
from schemas.spec.images import ImageSchema

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "millrace_requests", "Requests by kind and HTTP status", ["kind", "status"], registry=registry
        )
        self._by_labels: dict[tuple[str, int], Callable[[], None]] = {}
        self.rows = Counter("millrace_rows", "Rows that the model answered", registry=registry)
        self.row_errors = Counter("millrace_row_errors", "Rows that got an error of their own", registry=registry)
        seconds = "Seconds from a request's last byte to its answer"
        self._seconds = Histogram("millrace_request_seconds", seconds, buckets=_SECONDS, registry=registry)
        self._batch_rows = Histogram("millrace_batch_rows", "Rows in a batch", buckets=_ROWS, registry=registry)
        self._batch_seconds = Histogram(
            "millrace_batch_seconds", "Seconds that the model takes for a batch", buckets=_SECONDS, registry=registry
        )
        self._gauge = Gauge
        self.answered = 0

    def follow(
        self, batcher: Batcher, versions: Versions, connections: Collection[object], reading: Callable[[], float]
    ) -> None:
        """Adds what is read from the server when it is asked for."""
        Gauge, registry = self._gauge, self.registry  # noqa: N806 - a class
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "millrace_queued_rows": ("Rows that wait for the model", lambda: batcher.queued_rows),
            "millrace_queued_bytes": ("Bytes that wait for the model", lambda: batcher.queued_bytes),
            "millrace_reading_bytes": ("Bytes of bodies that are being read or answered", reading),
            "millrace_connections": ("Open connections", lambda: len(connections)),
            "millrace_model_version": ("The version in service", lambda: float(versions.current.version)),
            "millrace_model_swaps": ("How often another version was put into service", lambda: versions.swaps),
            "millrace_model_refused": ("Versions that were refused", lambda: len(versions.refused)),
        }
        for name, (text, read) in gauges.items():
            Gauge(name, text, registry=registry).set_function(read)

    def follow_store(self, store: RequestStore) -> None:
        """Adds what a store of requests counts."""
        self.registry.register(_StoreCounts(store))

    def batch(self, rows: int, seconds: float) -> None:
        """Counts a batch."""
        self.rows.inc(rows)
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def request(self, kind: str, status: int, seconds: float) -> None:
        """Counts a request."""
        count = self._by_labels.get((kind, status))
        if count is None:
            count = self._by_labels[kind, status] = self._requests.labels(kind, str(status)).inc
        count()
        self._seconds.observe(seconds)
        self.answered += 1

    def text(self) -> bytes:
        """The metrics, as Prometheus reads them."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


class _StoreCounts:
    """A collector of prometheus_client: reads the counts when it is asked for them."""

    def __init__(self, store: RequestStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        counts = self._store.counts
        yield CounterMetricFamily("millrace_stored_rows", "Rows that were stored", counts.rows)
        yield CounterMetricFamily("millrace_store_errors", "Rows that could not be stored", counts.failed)
        yield CounterMetricFamily("millrace_repeated_ids", "Rows whose id was stored already", counts.repeated)


log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Kind = Literal["predict", "classify", "regress", "plain"]
Target = tuple[Kind, str, str | None]  # what an address asks for, of which model, and of which version
Answered = tuple[bytes, list[tuple[bytes, bytes]]]  # an answer's body, and headers

PLAIN = "/predict"
_JSON = (b"content-type", b"application/json")
_REQUEST_ID = re.compile(rb"[!-~]{1,128}")
_ADDRESS = re.compile(
    r"/v1/models/(?P<name>[^/:]+)(?:/(?:versions/(?P<version>[0-9]{1,20})|labels/(?P<label>\w{1,32})))?"
    r":(?P<kind>predict|classify|regress)"
)


@dataclasses.dataclass
class State:
    """What the application and its pages share.

    Attributes:
      name: the model's, in addresses.
      stopping: no more requests are taken on a connection than the one that is there.
      most_bytes: of a body.
      most_rows: in a request.
      most_reading: bytes that have arrived of all bodies that are being read or answered at a time.
      reading: how many these are now.
    """

    name: str
    versions: Versions
    batcher: Batcher
    metrics: Metrics
    guard: Guard
    most_bytes: int
    most_rows: int
    most_reading: int
    stopping: bool = False
    reading: int = 0


class Application:
    """An ASGI application. `pages`: answers everything but predictions."""

    def __init__(self, state: State, pages: App) -> None:
        self._state = state
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, path, headers = self._state, scope["path"], dict(scope["headers"])
        target = self._target(path)
        body = Body(state, headers, receive)

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start" and (body.unread or state.stopping):
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        if target is None and not body.chunked:
            await self._pages(scope, receive, answer)
            return
        begun = time.monotonic()
        status = 200
        extra: list[tuple[bytes, bytes]] = []
        try:
            data, extra = await self._predict(target, scope["method"], headers, body)
        except Refused as refused:
            status, data, extra = refused.status, error_body(str(refused)), _extra(refused)
        except RecursionError:  # where a value is taken apart; the parser of bodies takes a thousand levels
            status, data = 400, error_body("the body is nested too deeply")
        except Exception as error:  # a fault of this server: the log tells its kind, and no value of the request
            log.error("a request failed: %s in %s", type(error).__name__, _place(error))
            status, data = 500, error_body("the server failed; its log says why")
        lines = [_JSON, (b"content-length", b"%d" % len(data)), *extra]
        await answer({"type": "http.response.start", "status": status, "headers": lines})
        await send({"type": "http.response.body", "body": data})
        state.metrics.request(target[0] if target else "other", status, time.monotonic() - begun)

    def _target(self, path: str) -> Target | None:
        """What an address asks for, of which model, and of which version."""
        if path == PLAIN:
            return "plain", self._state.name, None
        found = _ADDRESS.fullmatch(path)
        if found is None:
            return None
        kind: Any = found["kind"]
        return kind, found["name"], found["version"] or found["label"]

    async def _predict(self, target: Target | None, method: str, headers: Headers, body: Body) -> Answered:
        state = self._state
        if target is None or body.chunked:
            raise Refused(411, "Transfer-Encoding: not taken; send the body with its length, as Content-Length")
        kind, name, version = target
        state.guard.check_host(headers)
        state.guard.check_token(headers)
        if method != "POST":
            raise Refused(405, f"{method}: predictions are asked for by POST, with rows as JSON in the body")
        if name != state.name:
            raise Refused(
                404, f"Servable not found for request: Latest({name[:100]}); the model served here is {state.name}"
            )
        given = headers.get(b"x-request-id", b"")
        if given and not _REQUEST_ID.fullmatch(given):
            raise bad_request("X-Request-Id: expected 1 to 128 visible ASCII characters")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(415, "Content-Encoding: compressed bodies are not taken")
        try:
            return await self._answered(kind, version, parse(await body.read()), given)
        finally:
            body.free()

    async def _answered(self, kind: Kind, version: str | None, body: Any, given: bytes) -> Answered:
        state = self._state
        loaded = state.versions.named(version)
        if loaded is None:
            raise Refused(404, f"Servable not found for request: Specific({state.name}, {version})")
        interface = loaded.interface
        if (count := count_rows(body)) > state.most_rows:
            raise Refused(413, f"{count:,} rows; at most {state.most_rows:,} are taken in a request")
        match kind:
            case "predict":
                rows = predict_rows(body, interface)
            case "plain":
                rows = plain_rows(body, interface)
            case _:
                rows = label_rows(body, interface, kind)
        name, ids, own = _ids(given, body, rows.count)
        del body  # what waits is counted as arrays
        images = interface.schema if isinstance(interface.schema, ImageSchema) else None
        costs = None
        if images is not None:
            refused, costs = refuse_images(rows.arrays, images)
            rows = dataclasses.replace(rows, errors={**refused, **rows.errors})
        answer = await state.batcher.submit(Ask(rows, ids, version, own, costs))
        _check_version(version, answer, ids)
        _count_errors(answer.outputs, state.metrics)
        data = answer_of(rows, answer, classes=interface.classes, ids=ids)
        versions = ", ".join(dict.fromkeys(filter(None, answer.versions)))
        return data, [(b"x-model-version", versions.encode()), (b"x-request-id", name.encode())]


def _check_version(asked: str | None, answer: Answer, ids: Sequence[str]) -> None:
    """Refuses a request of one version, by its number, whose ids another one has answered before."""
    if asked != answer.loaded.version:
        return
    for row_id, version in zip(ids, answer.versions, strict=True):
        if version not in (asked, ""):
            raise Refused(
                409,
                f"the id {row_id!r} was answered by version {version} before, and the request asks for version "
                f"{asked}; ask for {version}, or for none, or give another id",
            )


def _count_errors(outputs: Outputs, metrics: Metrics) -> None:
    count = sum(map(bool, outputs["error"].tolist())) if "error" in outputs else 0
    if count:
        metrics.row_errors.inc(count)


def _ids(given: bytes, body: Any, rows: int) -> tuple[str, list[str], bool]:
    """The request's id, those of its rows, and whether the client gave them, in the header or the body.

    Raises:
      Refused: an id is not a short text, there are not as many as rows, or one is there twice.
    """
    name = given.decode() if given else None
    ids = None
    if type(body) is dict:
        name = body.get("id", name)
        ids = body.get("ids")
    if name is not None and not _is_id(name):
        raise bad_request('"id": expected 1 to 128 visible ASCII characters')
    own = name is not None or ids is not None
    name = name or secrets.token_hex(12)
    if ids is None:
        return name, [name] if rows == 1 else [f"{name}/{i}" for i in range(rows)], own
    if type(ids) is not list or len(ids) != rows or not all(map(_is_id, ids)) or len(set(ids)) != rows:
        raise bad_request(f'"ids": expected {rows} different ids, one a row, each 1 to 128 visible ASCII characters')
    return name, ids, own


def _is_id(value: Any) -> bool:
    return type(value) is str and value.isascii() and _REQUEST_ID.fullmatch(value.encode()) is not None


class Body:
    """The body of a request, which takes of the server's bytes for bodies what has arrived of it.

    Attributes:
      chunked: it has no length: what comes with and behind its chunks has no limit, so it is not read.
      unread: whether it has not been read to its end. The connection ends with the answer then.
    """

    __slots__ = ("_length", "_receive", "_state", "_taken", "chunked", "unread")

    def __init__(self, state: State, headers: Headers, receive: Receive) -> None:
        self._state = state
        self._receive = receive
        self._length = int(headers.get(b"content-length", b"0"))
        self._taken = 0
        self.chunked = b"transfer-encoding" in headers
        self.unread = self.chunked or self._length > 0

    async def read(self) -> bytes:
        """The body.

        Raises:
          Refused: it is too large, too much of other bodies waits, or the client has left.
        """
        state = self._state
        if self._length > state.most_bytes:
            raise Refused(413, f"the body has {self._length:,} bytes; at most {state.most_bytes:,} are taken")
        parts: list[bytes] = []
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the client left before the end of its request")
            part = message.get("body", b"")
            if state.reading + len(part) > state.most_reading and state.reading:
                raise Refused(429, "too many bytes of requests are waiting; send it again later", retry_after=1)
            self._taken += len(part)
            state.reading += len(part)
            parts.append(part)
            if not message.get("more_body", False):
                self.unread = False
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def free(self) -> None:
        """Gives back what it takes."""
        self._state.reading -= self._taken
        self._taken = 0


def _extra(refused: Refused) -> list[tuple[bytes, bytes]]:
    after = [] if refused.retry_after is None else [(b"retry-after", b"%d" % refused.retry_after)]
    if refused.status == 401:
        after.append((b"www-authenticate", b"Bearer"))
    if refused.status == 405:
        after.append((b"allow", b"POST"))
    return after


def _place(error: Exception) -> str:
    """Where an error was raised, without what it says: that may hold values of a request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def error_body(message: str) -> bytes:
    """The body of an error, as TensorFlow Serving has it."""
    import orjson

    return orjson.dumps({"error": message.encode("utf-8", "replace").decode()})
