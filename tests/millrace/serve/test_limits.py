"""Clients that send too much, too slowly or too often, and clients that do not read."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial

import pytest

from millrace.serve.requests import count_rows
from millrace.serve.server import Server
from millrace.store.rows import Outputs, ServedBatch
from schemas.errors import MillraceError
from tests.support import hostile_clients
from tests.support.exports import write_export
from tests.support.hostile_clients import converse, read_all, statuses
from tests.support.model_server import PATIENCE, Client, serving
from tests.support.processes import until


class Gate:
    """Holds the model of a server until it is opened."""

    def __init__(self, server: Server) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        model = server.versions.current.model
        self._predict = model.predict
        model.predict = self.predict  # type: ignore[method-assign]

    def predict(self, inputs, **settings):
        self.entered.set()
        assert self.open.wait(PATIENCE)
        return self._predict(inputs, **settings)


@contextlib.contextmanager
def held(server: Server, requests: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Makes requests at once, the first of which holds the model until the block's end; they are answered then."""
    gate = Gate(server)
    threads = [threading.Thread(target=request) for request in requests]
    threads[0].start()
    assert gate.entered.wait(PATIENCE)
    for thread in threads[1:]:
        thread.start()
    yield
    gate.open.set()
    for thread in threads:
        thread.join(PATIENCE)


def ask(server: Server, answers: list[tuple], body: object) -> None:
    """Asks on a connection of its own; adds the status, the answer, and when to come again."""
    with Client(server) as client:
        answers.append((*client.predict(body), client.headers.get("retry-after")))


def counted(answers: list[tuple]) -> list[tuple]:
    """The answers with the number of their predictions."""
    return [(status, len(answer.get("predictions", ())), after) for status, answer, after in answers]


@contextlib.contextmanager
def connected(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as connection:
        yield connection


def head(server: Server, *lines: str) -> bytes:
    return hostile_clients.head(f"/v1/models/{server.name}:predict", *lines)


def test_a_full_queue_refuses_at_once_and_loses_nothing(export):
    with serving(export, queue_rows=10) as server:
        answers: list[tuple] = []
        with held(server, [partial(ask, server, answers, {"instances": [1] * rows}) for rows in (1, *[5] * 20)]):
            until(lambda: len(answers) >= 18)  # all but the batch that is held, and the two that wait
            assert set(counted(answers)) == {(429, 0, "1")}
            with Client(server) as client:
                assert b"millrace_queued_rows 10.0" in client.get("/metrics")[1]
                assert client.get("/healthz")[0] == 200
        assert sorted(counted(answers))[:3] == [(200, 1, None), (200, 5, None), (200, 5, None)]
        assert len(answers) == 21


def test_a_request_that_waited_too_long_is_refused(export):
    with serving(export, answer_secs=1.0) as server:
        answers: list[tuple] = []
        with held(server, [partial(ask, server, answers, {"instances": [1]})] * 2):
            until(lambda: server.state.batcher.queued_rows == 1)
            time.sleep(1.5)
        (first, *_), late = sorted(answers, key=lambda answer: answer[0])
        assert (first, late) == (200, (503, {"error": "the server is too busy; send it again later"}, "1"))


def test_64_clients_of_512_rows_are_answered_at_the_default_limits(export):
    with serving(export) as server:
        answers: list[tuple] = []
        batcher = server.state.batcher
        bodies = [{"instances": list(range(first, first + 512))} for first in range(65)]
        with held(server, [partial(ask, server, answers, body) for body in bodies]):
            until(lambda: batcher.queued_rows >= 64 * 512 or bool(answers))  # no answer is possible but a refusal
    assert {status for status, *_ in answers} == {200}
    values = sorted([row["value"] for row in answer["predictions"]] for _, answer, _ in answers)
    assert values == [list(range(first + 1, first + 513)) for first in range(65)]


@pytest.mark.parametrize("limit", ["arrays", "ids"])
def test_what_waits_is_bounded_in_bytes(export, limit):
    """Rows of few bytes take as many with their ids; bodies are counted, too, for as long as they are not answered."""
    rows, ids = (20_000, False) if limit == "arrays" else (5_000, True)
    with serving(export, queue_mb=4, max_rows=20_000, answer_secs=PATIENCE) as server:
        answers: list[tuple] = []
        batcher = server.state.batcher

        def body(number: int) -> dict[str, list]:
            count = rows if number else 1
            given = {"ids": [f"{number}-{i}" for i in range(count)]} if ids else {}
            return {"instances": [1] * count, **given}

        sizes: set[int] = set()

        def settled() -> bool:
            sizes.add(batcher.queued_bytes)
            return len(answers) + batcher.queued_rows // rows == 39

        with held(server, [partial(ask, server, answers, body(number)) for number in range(40)]):
            until(settled)
            assert max(sizes) <= 4 << 20
            assert set(counted(answers)) == {(429, 0, "1")}
            refused = len(answers)
        assert sorted(counted(answers)) == [
            (200, 1, None),
            *[(200, rows, None)] * (39 - refused),
            *[(429, 0, "1")] * refused,
        ]
        assert 0 < refused < 39


@pytest.mark.parametrize(("late", "timely"), [("/versions/1", "/versions/2"), ("", "/versions/1"), ("/versions/1", "")])
def test_a_request_that_is_refused_as_late_does_not_choose_the_version_of_others(tmp_path, late, timely):
    write_export(tmp_path, 1)
    with serving(tmp_path, answer_secs=1.0) as server, Client(server) as operator:
        write_export(tmp_path, 2)
        assert operator.post("/admin/reload", None)[1]["version"] == "2"
        gate = Gate(server)
        batcher = server.state.batcher
        answers: dict[str, tuple] = {}

        def ask(name: str, version: str) -> threading.Thread:
            def answered() -> None:
                with Client(server) as client:
                    status, answer = client.post(f"{client.model}{version}:predict", {"instances": [1]})
                    answers[name] = status, answer, client.headers.get("x-model-version")

            thread = threading.Thread(target=answered)
            thread.start()
            return thread

        while answers.get("timely", (503,))[0] == 503:  # on a slow machine it may be late itself
            gate.open.clear()
            gate.entered.clear()
            threads = [ask("held", "")]
            assert gate.entered.wait(PATIENCE)
            threads.append(ask("late", late))
            until(lambda: batcher.queued_rows == 1)
            time.sleep(1.2)
            threads.append(ask("timely", timely))
            until(lambda: batcher.queued_rows == 2)
            gate.open.set()
            for thread in threads:
                thread.join(PATIENCE)
            assert answers["late"][0] == 503
    number = timely[-1:] or "2"
    assert answers["timely"] == (200, {"predictions": [{"error": "", "value": 1.0 + int(number)}]}, number)


def test_a_repeated_id_names_the_version_that_answered_it(tmp_path):
    exports, stored = tmp_path / "exports", tmp_path / "store"
    exports.mkdir()
    write_export(exports, 1)
    with serving(exports, store=str(stored)) as server, Client(server) as client:

        def plain(**body) -> tuple:
            status, answer = client.post("/predict", {"rows": [{"x": 1}] * len(body.get("ids", "1")), **body})
            rows = [(row["value"], row.get("model_version")) for row in answer["predictions"]]
            return status, rows, answer["model_version"], client.headers["x-model-version"]

        assert plain(id="a") == (200, [(2.0, None)], "1", "1")
        write_export(exports, 2)
        assert client.post("/admin/reload", None)[1]["version"] == "2"
        assert plain(id="b") == (200, [(3.0, None)], "2", "2")
        assert plain(id="a") == (200, [(2.0, None)], "1", "1")
        assert plain(ids=["a", "c", "b"]) == (200, [(2.0, "1"), (3.0, None), (3.0, None)], "2", "1, 2")
        body = {"instances": [1], "id": "a"}
        for path, status, version in (
            ("/labels/stable", 200, "1"),
            ("/versions/1", 200, "1"),
            ("/versions/2", 409, None),
        ):
            assert client.post(f"{client.model}{path}:predict", body)[0] == status
            assert client.headers.get("x-model-version") == version
        assert client.post(f"{client.model}/versions/2:predict", body)[1] == {
            "error": "the id 'a' was answered by version 1 before, and the request asks for version 2; ask for 1, or "
            "for none, or give another id"
        }


@pytest.fixture(scope="module")
def server(export):
    """A server of small limits."""
    with serving(export, max_body_mb=1, max_rows=100, connections=20) as server:
        yield server


@pytest.fixture(scope="module")
def impatient(export):
    """A server that waits for no client longer than a second."""
    with serving(export, request_secs=1.0, answer_secs=1.0) as server:
        yield server


class TestTooMuch:
    def test_a_body_of_100_megabytes_is_refused_before_it_is_read(self, server):
        with connected(server) as connection:
            connection.sendall(head(server, f"Content-Length: {100 << 20}") + b"x")
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"104,857,600 bytes; at most 1,048,576 are taken" in answer

    @pytest.mark.parametrize("name", ["instances", "inputs"])
    def test_rows(self, server, name):
        with Client(server) as client:
            status, answer = client.predict({name: [1] * 101})
            assert (status, answer["error"]) == (413, "101 rows; at most 100 are taken in a request")

    @pytest.mark.parametrize("rows", ["x", {"rows": "x"}, {"instances": "x"}, {"inputs": {"a": "x", "b": [1]}}])
    def test_rows_are_counted_before_any_is_read(self, rows):
        """Three million empty ones took two minutes and 14 GB until they were refused."""
        body = json.loads(json.dumps(rows).replace('"x"', "[{}, {}, {}]"))
        assert count_rows(body) == 3

    def test_compressed_bodies_are_not_taken(self, server):
        with Client(server) as client:
            assert client.predict(b"\x1f\x8b", Content_Encoding="gzip")[0] == 415

    @pytest.mark.parametrize("start", [b"", b"POST /v1/models/numbers:pre", b"whole head"])
    def test_a_request_that_arrives_too_slowly(self, impatient, start):
        if start == b"whole head":
            start = head(impatient, "Content-Length: 20") + b'{"inst'
        with connected(impatient) as connection:
            connection.sendall(start)
            answer = read_all(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"took more than 1 s to arrive" in answer

    def test_an_empty_line_after_an_answer_holds_no_connection(self, impatient):
        with connected(impatient) as connection:
            connection.sendall(hostile_clients.whole(f"/v1/models/{impatient.name}:predict", GOOD))
            assert statuses(connection.recv(1 << 16)) == (200,)
            connection.sendall(b"\r\n")
            assert statuses(read_all(connection)) == (408,)

    def test_a_client_that_never_reads_its_answers(self, impatient):
        body = json.dumps([{"x": 1}] * 100).encode()
        request = (
            head(impatient, f"Content-Length: {len(body)}").replace(b"/v1/models/numbers:predict", b"/predict") + body
        )
        with socket.socket() as connection, Client(impatient) as other:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", impatient.port))
            with contextlib.suppress(ConnectionError):  # where less fits into the buffers of the system
                connection.sendall(request * 900)
            until(lambda: b"millrace_connections 1.0" in other.get("/metrics")[1])  # the server has ended it

    def test_a_client_that_sends_thousands_of_requests_ahead(self, impatient):
        body = b'{"instances":[1]}'
        with connected(impatient) as connection, contextlib.suppress(ConnectionError):
            while True:
                connection.sendall((head(impatient, f"Content-Length: {len(body)}") + body) * 1000)

    def test_too_many_connections(self, server):
        with contextlib.ExitStack() as opened:
            for _ in range(30):
                opened.enter_context(connected(server))
            with connected(server) as connection:
                assert read_all(connection).startswith(b"HTTP/1.1 503")

        def answers() -> bool:
            with contextlib.suppress(OSError), Client(server) as client:
                return bool(client.predict({"instances": [1]})[0] == 200)
            return False

        until(answers)

    def test_pipelined_requests_are_answered_in_order(self, server):
        with connected(server) as connection:
            bodies = [json.dumps({"instances": [i]}).encode() for i in range(50)]
            last = "Connection: close"
            for i, body in enumerate(bodies):
                more = [last] if i == len(bodies) - 1 else []
                connection.sendall(head(server, f"Content-Length: {len(body)}", *more) + body)
            answer = read_all(connection)
        values = [float(value) for value in re.findall(rb'"value":([0-9.]+)', answer)]
        assert values == [i + 1 for i in range(50)]


GOOD = b'{"instances":[1]}'
TOKEN = "t" * 24


def nothing_is_left(server: Server) -> None:
    """An honest client is answered, and the server holds nothing of others."""
    counts = ("connections 1.0", "reading_bytes 0.0", "queued_rows 0.0", "queued_bytes 0.0")
    with Client(server) as client:
        until(lambda: all(f"millrace_{count}\n".encode() in client.get("/metrics")[1] for count in counts))
        assert client.predict(GOOD)[1] == {"predictions": [{"error": "", "value": 2.0}]}


class TestHostileBytes:
    @pytest.mark.parametrize("name", hostile_clients.CLIENTS)
    def test_each_is_answered_once_and_its_connection_ends(self, default, name):
        hostile = hostile_clients.CLIENTS[name]
        answer, sent = converse(default.port, hostile.sends(f"/v1/models/{default.name}:predict", GOOD))
        assert statuses(answer) in hostile.answers
        assert b"connection: close" in answer
        assert sent < hostile_clients.MOST
        nothing_is_left(default)

    def test_what_follows_a_refused_request_is_not_read(self, default):
        """Whatever was before it is answered."""
        good = hostile_clients.whole(f"/v1/models/{default.name}:predict", GOOD)
        answered = default.state.metrics.answered
        answer, _ = converse(
            default.port, [good * 3 + head(default, "Transfer-Encoding: chunked") + b"0\r\n\r\n" + good]
        )
        assert statuses(answer) == (200, 200, 200, 411)
        assert default.state.metrics.answered == answered + 4
        nothing_is_left(default)

    @pytest.mark.parametrize(
        ("lines", "body", "found"),
        [
            ([f"Content-Length: {len(GOOD)}"], GOOD, (100, 200)),
            ([f"Content-Length: {100 << 20}"], b"", (413,)),
            (["Content-Length: 9", "Content-Encoding: gzip"], b"", (415,)),
            (["Content-Length: 9", "Origin: http://evil.example"], b"", (403,)),
        ],
    )
    def test_100_continue_is_said_only_where_the_body_is_read(self, default, lines, body, found):
        with connected(default) as connection:
            connection.sendall(head(default, "Expect: 100-continue", "Connection: close", *lines))
            answer = connection.recv(1 << 16)
            assert statuses(answer) == found[:1]
            connection.sendall(body)
            assert statuses(answer + read_all(connection)) == found
        nothing_is_left(default)


PAGES = [
    *[("GET", path, 200) for path in ("/healthz", "/readyz", "/metrics", "/v1/models/numbers")],
    ("GET", "/v1/models/numbers/metadata", 200),
    ("GET", "/v1/models/others", 404),
    ("GET", "/nothing", 404),
    ("POST", "/metrics", 405),
    ("GET", "/predict", 405),
    ("PUT", "/v1/models/numbers:predict", 405),
    ("GET", "/admin/roll_back", 405),
    ("POST", "/admin/roll_back", 409),
    ("POST", "/admin/reload", 200),
    ("POST", "/v1/models/others:predict", 404),
]
ENDS = [
    *[(*page, "Content-Length: 1000") for page in PAGES],
    *[(method, path, 411, "Transfer-Encoding: chunked") for method, path, _ in PAGES],
    ("GET", "/metrics", 421, "Host: evil.example\r\nContent-Length: 9"),
    ("POST", "/admin/reload", 421, "Host: evil.example\r\nContent-Length: 9"),
]


@pytest.mark.parametrize(("method", "path", "status", "line"), ENDS)
def test_an_answer_that_comes_before_the_body_ends_the_connection(default, method, path, status, line):
    """What follows would be read as another request."""
    lines = [] if line.startswith("Host") else ["Host: localhost"]
    request = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, line, "", "5"]).encode()
    with connected(default) as connection:
        connection.sendall(request)
        answer = read_all(connection)
    assert statuses(answer) == (status,)
    assert answer.count(b"connection: close") == 1
    nothing_is_left(default)


@pytest.mark.parametrize(("method", "path", "status"), PAGES)
def test_a_connection_lasts_where_there_is_no_body(default, method, path, status):
    with Client(default) as client:
        connections = set()
        for _ in range(2):
            assert client.ask(method, path)[0] == status
            assert "connection" not in client.headers
            connections.add(client.connection.sock)
        assert len(connections) == 1


def test_without_the_token_no_body_is_read(export, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with serving(export, token_file=str(tmp_path / "token")) as server:
        for method, path in (("POST", "/predict"), ("GET", "/metrics"), ("POST", "/admin/reload")):
            with connected(server) as connection:
                connection.sendall(hostile_clients.head(path, "Content-Length: 9", method=method) + b"[")
                answer = read_all(connection)
            assert statuses(answer) == (401,)
            assert b"connection: close" in answer
        assert server.state.reading == 0


def test_what_is_announced_takes_nothing_from_others(default):
    """Bodies that were said to come held the room for all bodies, without a byte of them."""
    with contextlib.ExitStack() as opened:
        for _ in range(30):
            connection = opened.enter_context(connected(default))
            connection.sendall(head(default, f"Content-Length: {32 << 20}") + b"[" * 1000)
        with Client(default) as client:
            until(lambda: b"millrace_reading_bytes 30000.0\n" in client.get("/metrics")[1])
            assert client.predict(GOOD)[0] == 200
    nothing_is_left(default)


def test_what_has_arrived_is_bounded(export):
    with serving(export, queue_mb=1, max_body_mb=2) as server:
        with connected(server) as first, connected(server) as second, Client(server) as client:
            first.sendall(head(server, f"Content-Length: {1 << 20}") + b" " * 900_000)
            until(lambda: b"millrace_reading_bytes 900000.0\n" in client.get("/metrics")[1])
            second.sendall(head(server, "Content-Length: 300000") + b" " * 200_000)
            answer = read_all(second)
            assert statuses(answer) == (429,)
            assert b"connection: close" in answer
            assert client.predict(GOOD)[0] == 200  # there is room for small ones
        nothing_is_left(server)


def test_a_refused_client_that_stays_is_left(server):
    with connected(server) as connection:
        connection.sendall(head(server, "Transfer-Encoding: chunked"))
        assert statuses(read_all(connection)) == (411,)
        nothing_is_left(server)  # it has not closed its side


def test_many_tiny_requests_leave_nothing_behind(default, client):
    for _ in range(2000):
        assert client.predict(GOOD)[0] == 200
    batcher = default.state.batcher
    assert (default.state.reading, batcher.queued_rows, batcher.queued_bytes) == (0, 0, 0)


class Failing:
    """A sink that takes nothing."""

    closed = False

    def submit(self, batch: ServedBatch) -> Future[Outputs]:
        done: Future[Outputs] = Future()
        done.set_exception(MillraceError("the disk is full"))
        return done

    def close(self) -> None:
        self.closed = True


def test_what_the_sink_does_not_take_is_not_answered(export):
    sink = Failing()
    with serving(export, sink=sink) as server, Client(server) as client:
        assert client.predict({"instances": [1]}) == (503, {"error": "the disk is full"})
    assert sink.closed


class Keeping:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[ServedBatch] = []

    def submit(self, batch: ServedBatch) -> Future[Outputs]:
        self.batches.append(batch)
        done: Future[Outputs] = Future()
        done.set_result(batch.outputs)
        return done

    def close(self) -> None:
        pass


def test_what_the_sink_is_given(export):
    sink = Keeping()
    before = time.time()
    with serving(export, sink=sink) as server, Client(server) as client:
        client.predict({"instances": [1, 2], "id": "a"})
        client.predict({"instances": [3]}, X_Request_Id="b")
        client.predict({"instances": [4, 5], "ids": ["c", "d"]})
        client.post("/predict", [{"x": "6"}, {"x": "no number"}, {"x": None}])
    ids = [each for batch in sink.batches for each in batch.ids]
    assert ids[:5] == ["a/0", "a/1", "b", "c", "d"]
    assert [each.rpartition("/")[2] for each in ids[5:]] == ["0", "1", "2"]
    columns = [x for batch in sink.batches for x in batch.columns["x"].tolist()]
    assert columns[:6] == [1, 2, 3, 4, 5, 6]
    said = b"x: not_a_number (found 'no number', expected a decimal number)"
    assert sink.batches[-1].outputs["error"].tolist() == [b"", said, b"x: missing_value"]
    assert sink.batches[-1].sent == {1: b'{"x":"no number"}'}
    for batch in sink.batches:
        assert batch.version == "1"
        assert all(before <= received <= batch.answered <= time.time() for received in batch.received)
        assert {len(values) for values in batch.outputs.values()} == {len(batch.ids)} == {len(batch.received)}


def test_a_request_that_the_model_fails_on_fails_alone(export):
    """The requests that were batched with it are answered."""
    with serving(export) as server:
        loaded = server.versions.current
        run = loaded.model.predict

        def failing(inputs, **settings):
            if -666 in inputs["x"]:
                raise ValueError("secret -666")
            return run(inputs, **settings)

        loaded.model.predict = failing  # type: ignore[method-assign]
        answers: dict[int, list[tuple]] = {x: [] for x in (1, 2, -666, 3)}
        with held(server, [partial(ask, server, answers[x], {"instances": [x]}) for x in answers]):
            until(lambda: server.state.batcher.queued_rows >= 3)
    assert answers.pop(-666) == [(500, {"error": "the model failed: ValueError"}, None)]
    assert [found[0][1]["predictions"][0]["value"] for found in answers.values()] == [2, 3, 4]
