"""Random rows and hostile clients to served models: what the job rejects they do not answer, nor change others."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import http.client
import itertools
import json
import math
import random
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.support.hostile_clients import CLIENTS, PATIENCE, converse, head, statuses
from tests.support.model_server import started
from tests.support.processes import end_group
from tools.attack.answers import WAYS, answered, asked, differ, judge_row, text
from tools.attack.drawn_csv import INVALID, STRINGS, Item, Plan, tidy_row
from tools.attack.ground import Failed
from tools.attack.oracle_rows import HUGE, Judge
from tools.attack.rounds import Round

BATCHES, ROWS = 12, 24
NUMBERS = (math.nan, math.inf, -math.inf, -1.0, -5.0, -0.99999999, 0.0, -0.0, 1e-45, 1e20, 3.4e38, 16777217.0)
VECTORS = ([0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [2.0, 0.0, 0.0], [1.0, math.nan, 0.0], [1.0, 0.0, -1.0])


@dataclasses.dataclass(frozen=True)
class Row:
    """What is sent, by input, and the inputs that are wrong; `unsure`: it may be answered or not."""

    sent: dict[str, Any]
    wrong: frozenset[str]
    unsure: bool


def served_items(plan: Plan) -> list[Item]:
    """What a request holds."""
    return [f for f in plan.features if f["kind"] not in ("weight", "ignore", "cross")]


def draw_row(draw: random.Random, judge: Judge, number: int, *, odd: bool) -> Row:
    """A row as a client sends it; with one odd value or two where it is to be odd."""
    plan = judge.plan
    cells = tidy_row(draw, plan, number)
    items = served_items(plan)
    hurt = draw.sample(items, draw.choice([1, 1, 2])) if odd else []
    sent: dict[str, Any] = {}
    wrong: set[str] = set()
    unsure = False
    for item in items:
        name, columns = item["name"], plan.reads[item["name"]]
        if item["kind"] in ("numeric", "one_hot"):
            values = [float(cells[c]) for c in columns]
            if item in hurt:
                values = odd_numbers(draw, item, values)
            bad, doubt = judge_numbers(item, values)
            sent[name] = values if "columns" in item else values[0]
        else:
            cell = cells[columns[0]].encode()
            if item in hurt:
                cell = draw.choice([*(s.encode() for s in STRINGS), *INVALID])
            _, why, may = judge.item(item, [cell], columns, latin=False)
            bad, doubt = bool(why), bool(may)
            sent[name] = text(cell)
        if bad:
            wrong.add(name)
        unsure = unsure or doubt
    return Row(sent, frozenset(wrong), unsure and not wrong)


def odd_numbers(draw: random.Random, item: Item, values: list[float]) -> list[float]:
    """One of the numbers changed, or a group of columns that is no one-hot."""
    if item["kind"] == "one_hot":
        return draw.choice(VECTORS)
    place = draw.randrange(len(values))
    return [draw.choice(NUMBERS) if i == place else v for i, v in enumerate(values)]


def judge_numbers(item: Item, values: list[float]) -> tuple[bool, bool]:
    """Whether the job would reject these numbers, written in a file; and whether it may."""
    if any(math.isinf(v) for v in values):
        return True, False
    if item["kind"] == "one_hot":
        return sorted(values) != [0.0, 0.0, 1.0], False
    absent = any(math.isnan(v) for v in values)
    if absent and "missing" not in item:
        return True, False
    if item["transform"] == "log" and any(v <= -0.99999999 for v in values):
        return True, False
    return False, any(abs(v) > HUGE for v in values)


def play(now: Round) -> None:
    """Batches of good rows, and the same ones with odd rows among them."""
    draw = now.draw
    plan, saved_model = now.ground("linear", "dnn").served
    judge = Judge(plan)
    batches: list[list[Row]] = []
    for number in range(BATCHES):
        good = [draw_row(draw, judge, number * ROWS + i, odd=False) for i in range(ROWS)]
        odd = [
            draw_row(draw, judge, number * ROWS + i, odd=True) if draw.random() < 0.6 else g for i, g in enumerate(good)
        ]
        batches += [good, odd]
    inputs = [{n: [row.sent[n] for row in batch] for n in batch[0].sent} for batch in batches]
    requests = [{"signature": "serving_default", "inputs": sent} for sent in inputs]
    (answer,) = now.run(asked(now.folder, saved_model, draw.choice(WAYS), requests))
    if answer.status:
        now.found.add("a request fails as a whole", answer.output[-1500:])
        return
    answers = answered(now.folder)
    for good, odd, before, after in zip(batches[::2], batches[1::2], answers[::2], answers[1::2], strict=True):
        for i, row in enumerate(odd):
            if not row.unsure:
                sent = {name: row.sent[name] for name in sorted(row.wrong)} or row.sent
                judge_row(after, i, row.wrong, str(sent)[:300], now.found)
            if row is good[i] and differ(before, i, after, i):
                now.found.add("a neighbour's bits change", str(row.sent)[:300])
        now.count("rows", len(good) + len(odd))
        now.count("rows that the job would reject", sum(bool(row.wrong) for row in odd))


CONVERSATIONS, AT_ONCE = 200, 6
LEFT = ("connections 1.0", "reading_bytes 0.0", "queued_rows 0.0", "queued_bytes 0.0")
MORE = 256 << 20  # bytes that a server may take more after a round; what a flood left would be far more
PATHS = ("/predict", "/healthz", "/metrics", "/nothing", "/admin/roll_back", "/v1/models/drawn:predict")
LINES = ("Content-Length: 7", "Content-Length: 70000", "Expect: 100-continue", "Transfer-Encoding: chunked", "X: \xff")


def play_clients(now: Round) -> None:
    """Conversations of hostile clients, and of clients that leave, beside an honest one."""
    plan, saved_model = now.ground("linear").served
    body = json.dumps([_row(now.draw, plan, number) for number in range(3)]).encode()
    log = now.folder / "log"
    process, port = started(log, "--model_dir", str(saved_model), "--json")
    try:
        _talk(now, port, body, process.pid)
        process.send_signal(signal.SIGTERM)
        if process.wait(PATIENCE):
            now.found.add("the server's end", f"exit code {process.returncode}")
    except (OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
        now.found.add("an honest client is not answered", repr(error))
    finally:
        end_group(process)
        if process.stdout:
            process.stdout.close()
    if "Traceback" in log.read_text():
        now.found.add("a traceback", log.read_text()[-1500:])


def _row(draw: random.Random, plan: Plan, number: int) -> dict[str, Any]:
    """A good row, as a client that knows the features sends it."""
    cells = tidy_row(draw, plan, number)
    return {
        item["name"]: [float(cells[c]) for c in plan.reads[item["name"]]] if "columns" in item else cells[item["name"]]
        for item in served_items(plan)
    }


def _talk(now: Round, port: int, body: bytes, server: int) -> None:
    """Notes what is wrong with the answers, or with what they leave behind."""
    expected = _ask(port, "POST", "/predict", body)
    if expected[0] != 200 or b'"error"' in expected[1]:
        raise Failed(f"a good request is answered with {expected}")
    before = _resident(server)
    honest = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        talks = [pool.submit(_hostile(random.Random(now.draw.random()), port, body)) for _ in range(CONVERSATIONS)]
        while not all(talk.done() for talk in talks):
            if (answer := _ask(port, "POST", "/predict", body)) != expected:
                now.found.add("an honest client's answer changes", f"{answer} after {expected}")
            honest += 1
    for talk in talks:
        if detail := talk.result():
            now.found.add("a hostile client's answer", detail)
    for _ in range(600):  # for connections whose clients have left
        left = [count for count in LEFT if f"millrace_{count}\n".encode() not in _ask(port, "GET", "/metrics")[1]]
        if not left:
            break
    if left:
        now.found.add("something is left behind", f"other than {left}")
    if (more := _resident(server) - before) > MORE:
        now.found.add("memory is left behind", f"{more >> 20} MB more after {CONVERSATIONS} conversations")
    now.count("hostile conversations", CONVERSATIONS)
    now.count("honest requests meanwhile", honest)


def _hostile(draw: random.Random, port: int, body: bytes) -> Callable[[], str]:
    """A conversation, which returns what is wrong with its answers."""
    name = draw.choice(list(CLIENTS))
    pieces = CLIENTS[name].sends("/predict", body)
    if draw.random() < 0.5:
        return lambda: _leave(port, _damaged(draw, pieces))

    def talk() -> str:
        answer, _ = converse(port, pieces)
        return "" if statuses(answer) in CLIENTS[name].answers else f"{name}: {answer[:500]!r}"

    return talk


def _damaged(draw: random.Random, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Some of the bytes, or of drawn ones, with some of them changed, in drawn pieces."""
    data = bytearray(b"".join(itertools.islice(pieces, 200)))
    if draw.random() < 0.5:
        data = bytearray(head(draw.choice(PATHS), *draw.sample(LINES, draw.randrange(4))) + bytes(data))
    for _ in range(draw.choice((0, 1, 5))):
        data[draw.randrange(len(data))] = draw.randrange(256)
    del data[draw.randrange(len(data)) :]
    while data:
        size = draw.choice((1, 7, 1000, 1 << 16))
        yield bytes(data[:size])
        del data[:size]


def _leave(port: int, pieces: Iterator[bytes]) -> str:
    """Sends, and leaves without having read."""
    try:
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
            for piece in itertools.islice(pieces, 2000):
                connection.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the server has ended it
    return ""


def _ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body, {"X-Request-Id": "honest"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def _resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
