"""A server in a process of its own: what it prints, and that SIGTERM loses nothing that it has accepted."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.model_server import PATIENCE, until
from tests.support.small_exports import write_export

pytestmark = pytest.mark.long

ROOT = Path(__file__).parent.parent.parent.parent


def start(*argv: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        [sys.executable, "-m", "trainer.serve", "--port", "0", *argv],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.fullmatch(r"serving numbers, version 1: http://127\.0\.0\.1:(\d+)\n", line):
            return process, int(found[1])
    raise AssertionError(process.wait())


@pytest.mark.slow
def test_what_is_accepted_is_answered_before_the_end(tmp_path):
    """Each client counts a request as accepted once it is sent on a connection that had been answered before."""
    write_export(tmp_path, 1)
    process, port = start("--model_dir", str(tmp_path), "--json")
    answered: list[int] = []
    lost: list[str] = []
    stopped = threading.Event()

    def ask(seed: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        rows = [float(seed)] * (1 + seed * 37 % 300)
        while True:
            try:
                connection.request("POST", "/v1/models/numbers:predict", json.dumps({"instances": rows}))
                response = connection.getresponse()
                values = {row["value"] for row in json.loads(response.read())["predictions"]}
                assert (response.status, values) == (200, {seed + 1.0})
                answered.append(seed)
                if response.getheader("connection") == "close":
                    return  # the server asks to leave: nothing is sent after that
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:
                lost.append(f"{type(error).__name__} {stopped.is_set()}")
                return

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(24)]
    for thread in threads:
        thread.start()
    until(lambda: len(answered) >= 500)
    stopped.set()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE)
    for thread in threads:
        thread.join(PATIENCE)
    assert lost == []
    assert process.returncode == 0
    assert json.loads(out) == {"answered": len(answered), "given_up": 0}
