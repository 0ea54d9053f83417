"""A server in a process of its own: what it prints, and that SIGTERM loses nothing that it has accepted."""

from __future__ import annotations

import http.client
import json
import signal
import threading

import pytest

from tests.support.exports import Flaw, write_export
from tests.support.model_server import PATIENCE, started, trying_out
from tests.support.processes import until

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_what_is_accepted_is_answered_before_the_end(tmp_path):
    """Each client counts a request as accepted once it is sent on a connection that had been answered before."""
    write_export(tmp_path, 1)
    process, port = started(tmp_path / "log", "--model_dir", str(tmp_path), "--json")
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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_server_does_not_wait_for_an_export_without_end(tmp_path, number):
    """Nor does the process that tries it out outlive the server."""
    write_export(tmp_path, 1)
    process, _ = started(tmp_path / "log", "--model_dir", str(tmp_path), "--json", "--check_secs", "1000000")
    write_export(tmp_path, 2, Flaw(endless=True))
    until(lambda: trying_out(tmp_path))
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE)
    until(lambda: not trying_out(tmp_path))
    if number != signal.SIGKILL:
        assert (process.returncode, json.loads(out)) == (0, {"answered": 0, "given_up": 0})
        assert "not served" not in (tmp_path / "log").read_text()
