"""A server that stores requests, killed under load: every answered id is in the store, once."""

from __future__ import annotations

import collections
import http.client
import json
import os
import random
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from tests.support.processes import free_port, running
from tests.support.stored_requests import stored_rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
MODEL = "numbers"


def command(export: Path, store: Path, port: int, *flags: str) -> list[str]:
    argv = ["--model_dir", str(export), "--port", str(port), "--store", str(store), *flags]
    return [sys.executable, "-m", "millrace", "serve", *argv]


def ask(port: int, name: str | None, x: float, rows: int = 1) -> tuple[int, dict]:
    """Sends a request; its status and answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {} if name is None else {"X-Request-Id": name}
    try:
        body = json.dumps({"instances": [{"x": x}] * rows})
        connection.request("POST", f"/v1/models/{MODEL}:predict", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def stored(folder: Path) -> collections.Counter[str]:
    return collections.Counter(row["id"] for row in stored_rows(folder))


def test_every_answered_id_is_stored_once_through_kills(export, tmp_path):
    """Clients send a request again, with its id, until it is answered."""
    chance, port, done = random.Random(1), free_port(), threading.Event()
    answered: list[str] = []

    def client(number: int) -> None:
        for i in range(100_000):
            name, rows = f"{number}-{i}", 1 + i % 3
            while not done.is_set():
                try:
                    status, _ = ask(port, name, 20 + i % 40, rows)
                except (OSError, http.client.HTTPException, ValueError):
                    time.sleep(0.02)
                    continue
                if status == 200:
                    answered.extend([name] if rows == 1 else [f"{name}/{k}" for k in range(rows)])
                    break
            if done.is_set():
                return

    clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
    for thread in clients:
        thread.start()
    try:
        for _ in range(3):
            before = len(answered)
            argv = command(export, tmp_path / "store", port)
            with running(argv, port=port, log=tmp_path / "log", cwd=ROOT) as server:
                while len(answered) < before + 20:
                    assert server.poll() is None
                    time.sleep(0.01)
                time.sleep(chance.random() * 0.5)
                os.kill(server.pid, signal.SIGKILL)
    finally:
        done.set()
        for thread in clients:
            thread.join()
    counts = stored(tmp_path / "store")
    assert set(answered) - set(counts) == set()
    assert [name for name, count in counts.items() if count > 1] == []


def test_repeats_full_disks_and_the_end(export, tmp_path):
    port = free_port()
    argv = command(export, tmp_path / "store", port, "--retain_days", "30")
    limited = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)); "
    limited += "runpy.run_module('millrace.serve.command', run_name='__main__', alter_sys=True)"
    argv = [sys.executable, "-c", limited, *argv[4:]]
    with running(argv, port=port, log=tmp_path / "log", cwd=ROOT) as server:
        first, again = ask(port, "a", 33), ask(port, "a", 33)
        assert (first[0], again[0]) == (200, 200)
        assert again[1]["predictions"][0]["value"] == first[1]["predictions"][0]["value"] == 34
        assert "is the id of another request" in ask(port, "a", 34)[1]["predictions"][0]["error"]
        assert ask(port, None, 33)[0] == 200
        status, refused = ask(port, "large", 33, rows=5000)  # of more bytes than a file may have
        assert status == 503
        assert "; the requests were not stored" in refused["error"]
        assert ask(port, "b", 33)[0] == 200
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            metrics = page.read().decode().splitlines()
        counts = ("millrace_stored_rows_total 3.0", "millrace_store_errors_total 5000.0")
        assert {*counts, "millrace_repeated_ids_total 2.0"} <= set(metrics)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(60) == 0
    row_counts = stored(tmp_path / "store")
    assert {"a": 1, "b": 1}.items() <= row_counts.items()
    assert len(row_counts) == 3  # one id was made by the server
    assert not any(name.startswith("large") for name in row_counts)
