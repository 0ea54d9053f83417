"""Newer exports take over under load, bad ones are refused, and the version before can come back.

A server in a process of its own: what it prints, and that SIGTERM loses nothing that it has accepted.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import http.client
import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millrace.serve.server import LINGER, Server
from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import find_source
from tests.support.csv_datasets import NUMBERS
from tests.support.exports import Flaw, write_export
from tests.support.model_server import PATIENCE, Client, serving, started, trying_out
from tests.support.processes import until

pytestmark = pytest.mark.long

Asked = tuple[int, int, list[float], str]


def wait_for_more(outcomes: list[Asked]) -> None:
    """Waits until another request was answered."""
    before = len(outcomes)
    until(lambda: len(outcomes) > before)


@contextlib.contextmanager
def asking(server: Server, clients: int) -> Iterator[list[Asked]]:
    """Clients that ask all the time; yields of each request its status, rows, what was added, and its version."""
    outcomes: list[Asked] = []
    ends = threading.Event()

    def ask(seed: int) -> None:
        chosen = random.Random(seed)
        with Client(server) as client:
            while not ends.is_set():
                xs = [float(chosen.randrange(1000)) for _ in range(chosen.randrange(1, 40))]
                status, answer = client.predict({"instances": [{"x": x} for x in xs]})
                values = [row["value"] - x for row, x in zip(answer.get("predictions", ()), xs, strict=False)]
                outcomes.append((status, len(xs), values, client.headers.get("x-model-version", "")))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        ends.set()
        for thread in threads:
            thread.join(PATIENCE)


@contextlib.contextmanager
def first(folder: Path, **options: Any) -> Iterator[tuple[Server, Client]]:
    """A server of version 1, and its client."""
    write_export(folder, 1)
    with serving(folder, **options) as server, Client(server) as client:
        yield server, client


def answered_by(client: Client, path: str = "") -> float:
    """The version that answers, as its values tell: it adds its number."""
    return float(client.post(f"{client.model}{path}:predict", {"instances": [0]})[1]["predictions"][0]["value"])


def test_swaps_under_load_lose_and_mix_nothing(tmp_path):
    """Each answer's values tell which version computed them."""
    with first(tmp_path, check_secs=0) as (server, operator), asking(server, 8) as outcomes:
        for number in range(2, 32):
            write_export(tmp_path, number)
            shutil.rmtree(tmp_path / str(number - 1))  # what is loaded needs its folder no more
            status, answer = operator.post("/admin/reload", None)
            assert (status, answer["version"]) == (200, str(number))
            wait_for_more(outcomes)  # at least one request a version
        _, text = operator.get("/metrics")
        assert b"millrace_model_swaps 30.0" in text
        assert b"millrace_model_version 31.0" in text
    assert {status for status, *_ in outcomes} == {200}
    for _, rows, values, version in outcomes:
        assert values == [float(version)] * rows  # all rows of one version, and of the one that it names
    assert len({version for *_, version in outcomes}) > 25


def test_the_file_system_tells_of_a_newer_export(tmp_path):
    with first(tmp_path) as (server, client):
        write_export(tmp_path, 2)
        until(lambda: server.versions.current.version == "2")
        assert client.predict({"instances": [1]}) == (200, {"predictions": [{"error": "", "value": 3.0}]})
        assert answered_by(client, "/versions/2") == 2
        status, answer = client.post(f"{client.model}/versions/1:predict", {"instances": [1]})
        message = "Servable not found for request: version 1; version 2 is in service"
        assert (status, answer) == (404, {"error": message})


def test_an_export_that_is_copied_slowly_is_taken_when_it_is_whole(tmp_path):
    folder = tmp_path / "serving"
    folder.mkdir()
    write_export(folder, 1)
    made = write_export(tmp_path, 2)
    with serving(folder) as server:
        for path in sorted(made.rglob("*"), reverse=True):  # the graph first of all, the notes after it
            if path.is_file():
                copied = folder / "2" / path.relative_to(made)
                copied.parent.mkdir(parents=True, exist_ok=True)
                copied.write_bytes(path.read_bytes()[:-1])
                time.sleep(0.3)  # so that the halves are looked at
                shutil.copy(path, copied)
        until(lambda: server.versions.current.version == "2")
        assert server.versions.refused == {}


OTHER = NUMBERS.replace("name: x,", "name: z,")


@pytest.mark.parametrize(
    ("flaw", "spoil", "message"),
    [
        (Flaw(off=0.5), None, "answers its warm-up requests otherwise than the trained model did: record 0, 'value'"),
        (Flaw(writes=True), None, "holds the op WriteFile"),
        (Flaw(extra_output=True), None, "its outputs are ['error: string ()', 'more: float32 ()'"),
        (Flaw(schema=OTHER), None, "its columns are [RawColumn(name='z'"),
        (None, "saved_model.pb", "was changed"),
        (None, "assets.extra/tf_serving_warmup_requests", "was changed"),
        (
            None,
            "assets.extra/millrace.json",
            "Expected the notes of an export of format version 1; export the model again",
        ),
    ],
)
def test_a_bad_export_is_refused_and_the_old_one_goes_on(tmp_path, caplog, flaw, spoil, message):
    with first(tmp_path, check_secs=0) as (server, client):
        aside = tmp_path / "aside"
        aside.mkdir()
        made = write_export(aside, 2, flaw)
        if spoil:
            (made / spoil).write_bytes((made / spoil).read_bytes()[:-7])
        made.rename(tmp_path / "2")
        until(lambda: "2" in server.versions.refused)
        assert answered_by(client) == 1
        assert client.headers["x-model-version"] == "1"
        (refused, served) = client.get(client.model)[1]["model_version_status"]
        assert (refused["version"], refused["state"], served["state"]) == ("2", "END", "AVAILABLE")
        assert message in refused["status"]["error_message"]
        assert b"millrace_model_refused 1.0" in client.get("/metrics")[1]
        assert "version 2 is not served" in caplog.text
        shutil.rmtree(tmp_path / "2")  # a good one in its place
        write_export(tmp_path, 2)
        until(lambda: server.versions.current.version == "2")


@pytest.mark.parametrize(
    ("flaw", "limits", "message"),
    [
        (Flaw(endless=True), {"check_secs": 20}, "took more than 20 s (--check_secs)"),
        (Flaw(grows=True), {"check_mb": 1500}, "took more than 1,500 MB (--check_mb)"),
    ],
)
def test_an_export_without_end_harms_nobody(tmp_path, caplog, flaw, limits, message):
    with first(tmp_path, **limits) as (server, client):
        write_export(tmp_path, 2, flaw)
        until(lambda: trying_out(tmp_path))
        tried = 0
        while "2" not in server.versions.refused:
            assert client.predict({"instances": [1]}) == (200, {"predictions": [{"error": "", "value": 2.0}]})
            tried += bool(trying_out(tmp_path))  # it was tried out while this was answered
        assert tried
        assert trying_out(tmp_path) == []
        assert b"millrace_model_refused 1.0" in client.get("/metrics")[1]
        assert message in client.get(client.model)[1]["model_version_status"][0]["status"]["error_message"]
        assert "version 2 is not served" in caplog.text


def test_an_export_that_crashes_harms_nobody(tmp_path):
    with first(tmp_path) as (server, client):
        write_export(tmp_path, 2, Flaw(endless=True))
        until(lambda: trying_out(tmp_path))
        os.kill(trying_out(tmp_path)[0], signal.SIGSEGV)
        until(lambda: "2" in server.versions.refused)
        assert "ended the process that tried it out, by SIGSEGV" in server.versions.refused["2"].reason
        assert answered_by(client) == 1


def test_the_newest_that_is_good_takes_over(tmp_path):
    with first(tmp_path, poll_secs=1000, check_secs=0) as (server, client):
        aside = tmp_path / "aside"
        aside.mkdir()
        for number, flaw in ((2, None), (3, None), (4, Flaw(off=1))):
            write_export(aside, number, flaw)
        for number in (4, 3, 2):
            (aside / str(number)).rename(tmp_path / str(number))
        assert client.post("/admin/reload", None)[1]["version"] == "3"
        assert sorted(server.versions.refused) == ["4"]


def test_memory_of_old_versions_is_released(tmp_path):
    def resident() -> int:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what is freed, of as many arenas as there are threads, is not resident
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) >> 10

    big = Flaw(big=4 << 20)  # 16 MB in the graph
    write_export(tmp_path, 1, big)
    with serving(tmp_path, check_secs=0) as server, Client(server) as client:
        sizes = []
        for number in range(2, 15):
            write_export(tmp_path, number, big)
            shutil.rmtree(tmp_path / str(number - 1))
            assert client.post("/admin/reload", None)[1]["version"] == str(number)
            assert client.predict({"instances": [1]})[0] == 200
            sizes.append(resident())
        assert len(server.versions.refused) == 0
    assert sizes[-1] - sizes[4] < 80, sizes  # of 8 x 16 MB, and more, if they were kept


class TestWhatIsServed:
    def test_a_model_directory(self, tmp_path):
        best = tmp_path / "export" / "best"
        best.mkdir(parents=True)
        write_export(best, 7)
        (best / "temp-1").mkdir()
        (best / "best.json").write_text("{}")
        assert find_source(str(tmp_path)).versions() == ["7"]
        assert find_source(str(best / "7")).versions() == ["7"]
        shutil.copytree(best / "7", tmp_path / "named")
        assert find_source(str(tmp_path / "named")).versions() == ["1"]

    def test_a_folder_named_by_other_digits_is_no_version(self, tmp_path):
        write_export(tmp_path, 2)
        (tmp_path / "aside").mkdir()
        write_export(tmp_path / "aside", 3).rename(tmp_path / "\u0663")  # ARABIC-INDIC DIGIT THREE
        with serving(tmp_path) as server, Client(server) as client:
            assert answered_by(client) == 2
            assert client.headers["x-model-version"] == "2"
            assert client.post("/admin/reload", None)[1]["version"] == "2"
        with serving(tmp_path / "\u0663") as server, Client(server) as client:
            assert answered_by(client) == 3
            assert client.headers["x-model-version"] == "1"  # as where a name is no number
        shutil.rmtree(tmp_path / "2")
        with pytest.raises(UsageError, match="holds no export"), serving(tmp_path):
            pass

    def test_the_newest_that_is_good(self, tmp_path):
        write_export(tmp_path, 9)
        write_export(tmp_path, 10)
        write_export(tmp_path, 11, Flaw(off=1))
        write_export(tmp_path, 12, Flaw(endless=True))
        (tmp_path / "13").mkdir()
        with serving(tmp_path, check_secs=20) as server:
            assert server.versions.current.version == "10"
            assert sorted(server.versions.refused) == ["11", "12", "13"]

    @pytest.mark.parametrize(
        ("prepare", "error", "message"),
        [
            (lambda folder: None, UsageError, "holds no export"),
            (lambda folder: folder.rmdir(), UsageError, "no such folder"),
            (lambda folder: (folder / "1").mkdir(), MillraceError, "no export in it can be served:\n"),
            (lambda folder: write_export(folder, 1, Flaw(writes=True)), MillraceError, "holds the op WriteFile"),
            (lambda folder: (folder / "saved_model.pb").touch(), MillraceError, "not exported by millrace train"),
        ],
    )
    def test_nothing_that_can_be(self, tmp_path, prepare, error, message):
        folder = tmp_path / "served"
        folder.mkdir()
        prepare(folder)
        with pytest.raises(error, match=r"(?s).*") as raised, serving(folder):
            pass
        assert message in str(raised.value)

    def test_an_export_without_warm_up_requests(self, tmp_path):
        made = write_export(tmp_path, 1)
        extra = made / "assets.extra"
        (extra / "tf_serving_warmup_requests").unlink()
        notes = json.loads((extra / "millrace.json").read_text())
        del notes["files"]["assets.extra/tf_serving_warmup_requests"]
        (extra / "millrace.json").write_text(json.dumps(notes))
        with serving(tmp_path) as server:
            assert server.versions.current.compared == 0


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
        answered_at = time.monotonic()
        while True:
            sent_at = time.monotonic()
            try:
                connection.request("POST", "/v1/models/numbers:predict", json.dumps({"instances": rows}))
                response = connection.getresponse()
                values = {row["value"] for row in json.loads(response.read())["predictions"]}
                assert (response.status, values) == (200, {seed + 1.0})
                answered.append(seed)
                answered_at = time.monotonic()
                if response.getheader("connection") == "close":
                    return  # the server asks to leave: nothing is sent after that
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:
                if not stopped.is_set() or sent_at - answered_at < LINGER / 2:  # else the server waited for it in vain
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
