"""Clients that send too much, too slowly or too often, and clients that do not read."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pytest

from millrace.serve.server import Server
from tests.support import hostile_clients
from tests.support.exports import write_export
from tests.support.hostile_clients import read_all, statuses
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
    try:
        yield
    finally:
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


def test_64_clients_of_512_rows_are_answered_at_the_default_limits(export):
    with serving(export) as server:
        answers: list[tuple] = []
        batcher = server.application.batcher
        bodies = [{"instances": list(range(first, first + 512))} for first in range(65)]
        with held(server, [partial(ask, server, answers, body) for body in bodies]):
            until(lambda: batcher.queued_rows >= 64 * 512 or bool(answers))  # no answer is possible but a refusal
    assert {status for status, *_ in answers} == {200}
    values = sorted([row["value"] for row in answer["predictions"]] for _, answer, _ in answers)
    assert values == [list(range(first + 1, first + 513)) for first in range(65)]


@pytest.mark.parametrize("rows", [20_000, 1])
def test_what_waits_is_bounded_in_bytes_and_refused_at_once(export, rows):
    """Rows of few bytes take as many with their ids. What is refused loses nothing of what waits."""
    with serving(export, queue_mb=4, max_rows=20_000, answer_secs=PATIENCE) as server:
        answers: list[tuple] = []
        batcher = server.application.batcher
        ids = {} if rows > 1 else {"ids": ["x" * 128]}
        bodies = [{"instances": [1], **ids}, *[{"instances": [1] * rows, **ids}] * 40]
        with held(server, [partial(ask, server, answers, body) for body in bodies]):
            until(lambda: len(answers) + batcher.queued_rows // rows == 40)
            assert batcher.queued_bytes <= 4 << 20
            assert set(counted(answers)) <= {(429, 0, "1")}
            assert (len(answers) > 0) == (rows > 1)
            with Client(server) as client:
                assert client.get("/healthz")[0] == 200
            refused = len(answers)
        assert sorted(counted(answers)) == sorted(
            [(200, 1, None), *[(200, rows, None)] * (40 - refused), *[(429, 0, "1")] * refused]
        )


def test_requests_that_are_dropped_from_the_queue_change_nothing_for_those_around_them(tmp_path):
    """One that is late, one whose client is gone, and one of a version that is not in service any more."""
    write_export(tmp_path, 1)
    with serving(tmp_path, answer_secs=PATIENCE, check_secs=0) as server, Client(server) as operator:
        batcher = server.application.batcher
        answers: dict[str, tuple] = {}

        def answered(name: str, version: str = "") -> None:
            with Client(server) as client:
                status, answer = client.post(f"{client.model}{version}:predict", {"instances": [1]})
                answers[name] = status, answer, client.headers.get("x-model-version"), client.headers.get("retry-after")

        def waits(rows: int) -> bool:
            return batcher.queued_rows == rows

        requests = {"first": "", "late": "", "gone": "", "old": "/versions/1", "last": ""}
        threads = [threading.Thread(target=answered, args=request) for request in requests.items()]
        with held(server, [partial(answered, "running")]):
            for waiting, thread in enumerate(threads, start=1):
                thread.start()
                until(partial(waits, waiting))
            batcher._waiting[1].arrived -= 2 * PATIENCE
            server._loop.call_soon_threadsafe(batcher._waiting[2].future.cancel)
            write_export(tmp_path, 2)
            assert operator.post("/admin/reload", None)[1]["version"] == "2"
        for thread in threads:
            thread.join(PATIENCE)
        metrics = operator.get("/metrics")[1]
    assert answers["running"] == (200, {"predictions": [{"error": "", "value": 2.0}]}, "1", None)
    assert answers["late"] == (503, {"error": "the server is too busy; send it again later"}, None, "1")
    assert answers["old"][:2] == (404, {"error": "Servable not found for request: version 1; version 2 is in service"})
    assert answers["first"] == answers["last"] == (200, {"predictions": [{"error": "", "value": 3.0}]}, "2", None)
    assert b"millrace_batch_rows_count 2.0\nmillrace_batch_rows_sum 3.0\n" in metrics  # the first and the last are one


def test_a_repeated_id_names_the_version_that_answered_it(tmp_path):
    exports, stored = tmp_path / "exports", tmp_path / "store"
    exports.mkdir()
    write_export(exports, 1)
    with serving(exports, store=str(stored), check_secs=0) as server, Client(server) as client:

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
        assert client.post(f"{client.model}/versions/1:predict", body)[0] == 404
        assert client.post(f"{client.model}/versions/2:predict", body)[1] == {
            "error": "the id 'a' was answered by version 1 before, and the request asks for version 2; ask for no "
            "version, or give another id"
        }


@pytest.fixture(scope="module")
def server(export):
    """A server of small limits."""
    with serving(export, max_body_mb=1, max_rows=100, connections=20) as server:
        yield server


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (f"Content-Length: {100 << 20}", 413),
        ("Content-Length: 9\r\nContent-Encoding: gzip", 415),
        ("Transfer-Encoding: chunked", 411),
    ],
)
def test_a_body_that_is_not_taken_is_refused_before_it_is_read(server, line, status):
    with connected(server) as connection:
        connection.sendall(head(server, line) + b"5")
        assert statuses(connection.recv(1 << 16)) == (status,)


@pytest.mark.parametrize("name", ["instances", "inputs"])
def test_too_many_rows(server, name):
    with Client(server) as client:
        status, answer = client.predict({name: [1] * 101})
        assert (status, answer["error"]) == (413, "101 rows; at most 100 are taken in a request")


def test_too_many_connections(server):
    with contextlib.ExitStack() as opened:
        for _ in range(30):
            opened.enter_context(connected(server))
        with Client(server) as client:
            assert client.predict({"instances": [1]})[0] == 503

    def answers() -> bool:
        with Client(server) as client:
            return bool(client.predict({"instances": [1]})[0] == 200)

    until(answers)


def test_pipelined_requests_are_answered_in_order(server):
    bodies = [json.dumps({"instances": [i]}).encode() for i in range(50)]
    with connected(server) as connection:
        connection.sendall(b"".join(head(server, f"Content-Length: {len(body)}") + body for body in bodies[:-1]))
        connection.sendall(head(server, f"Content-Length: {len(bodies[-1])}", "Connection: close") + bodies[-1])
        answer = read_all(connection)
    assert [float(value) for value in re.findall(rb'"value":([0-9.]+)', answer)] == [i + 1 for i in range(50)]


def test_bodies_that_have_not_ended_hold_up_nobody_and_are_bounded(export):
    with serving(export, queue_mb=1, max_body_mb=2) as server:
        with connected(server) as first, connected(server) as second, Client(server) as client:
            first.sendall(head(server, f"Content-Length: {1 << 20}") + b" " * 900_000)
            until(lambda: b"millrace_reading_bytes 900000.0\n" in client.get("/metrics")[1])
            second.sendall(head(server, "Content-Length: 300000") + b" " * 200_000)
            assert statuses(second.recv(1 << 16)) == (429,)
            assert client.predict({"instances": [1]})[0] == 200  # there is room for small ones
        with Client(server) as client:
            until(lambda: b"millrace_reading_bytes 0.0\n" in client.get("/metrics")[1])


def test_a_body_larger_than_the_queue_is_taken_if_no_other_waits(export):
    body = b'{"instances": [1]}'
    with serving(export, queue_mb=1, max_body_mb=3) as server, connected(server) as connection:
        connection.sendall(head(server, f"Content-Length: {2 << 20}", "Connection: close") + body.ljust(2 << 20))
        assert statuses(read_all(connection)) == (200,)


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
            until(lambda: server.application.batcher.queued_rows >= 3)
    assert answers.pop(-666) == [(500, {"error": "the model failed: ValueError"}, None)]
    assert [outcomes[0][1]["predictions"][0]["value"] for outcomes in answers.values()] == [2, 3, 4]
