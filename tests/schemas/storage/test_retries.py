"""A bucket that answers nothing but 503: requests are repeated for a bounded time, and not while a command ends."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from schemas import retries, storage
from schemas.dataset import command
from schemas.errors import MillraceError
from schemas.storage import folders, gcs
from tests.support.loopback_service import forget
from tests.support.processes import until

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

SHOW = "import sys; from schemas.dataset import command; sys.exit(command.main(['show', sys.argv[1]]))"


GCS_403 = b'{"error": {"code": 403, "message": "x does not have it"}}'


class Busy(ThreadingHTTPServer):
    """Answers every request with 503, or another status."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.lock = threading.Lock()
        self.requests, self.status, self.body = 0, 503, b""


class Refusing(BaseHTTPRequestHandler):
    """One connection of a client."""

    server: Busy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Logs nothing."""

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        # Google's client asks for the bucket in a thread of its own, which any other answer would keep for two minutes.
        asks_for_bucket = self.path.startswith("/storage/v1/b/b?")
        if not asks_for_bucket:
            with self.server.lock:
                self.server.requests += 1
        self.send_response(403 if asks_for_bucket else self.server.status)
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(self.server.body)

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = _refuse  # noqa: N815 - the base class calls them so


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Busy]:
    """The server of the bucket `gs://b`."""
    with Busy() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        settings = {
            "STORAGE_EMULATOR_HOST": address,
            "GOOGLE_CLOUD_PROJECT": "none",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        forget(gcs.client)
        yield server
        server.shutdown()
        forget(gcs.client)
        gc.collect()  # their connections, which they leave to the garbage collector


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 2.0)


PATH, SERVICE = "gs://b/a", "Google Cloud Storage"


class TestRetries:
    """Of Google's client."""

    def test_what_fails_for_good_is_one_line(self, busy, impatient) -> None:
        with pytest.raises(MillraceError, match=f"{SERVICE} did not do it within 2 s of retries; the last failure: st"):
            storage.read_bytes(PATH)
        assert busy.requests > 2

    def test_a_command_says_what_it_waits_for(self, busy, impatient, monkeypatch, capsys) -> None:
        monkeypatch.setattr(retries, "NOTE_SECONDS", 0.5)
        assert command.main(["show", PATH]) == 1
        first, *_, last = capsys.readouterr().err.splitlines()
        assert f"{SERVICE} has failed for " in first
        assert "(status 503); asking again, for up to 2 s" in first
        assert last.startswith(f"error: {PATH}")

    def test_ctrl_c_ends_a_command_that_asks_again(self, busy) -> None:
        with subprocess.Popen([sys.executable, "-c", SHOW, PATH], stderr=subprocess.PIPE, text=True) as process:
            until(lambda: busy.requests >= 2, "it asks again")
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=300)
        assert process.returncode == 130
        assert printed.splitlines()[-1] == "error: interrupted"
        assert busy.requests <= 6

    def test_while_a_command_cleans_up_nothing_is_repeated(self, busy) -> None:
        for _ in range(3):
            with retries.ending(), pytest.raises(MillraceError, match=rf"{PATH}: {SERVICE} did not do it: status 503"):
                storage.read_bytes(PATH)
        assert busy.requests == 3


@pytest.mark.parametrize("step", ["upload", "write", "read", "delete", "list"])
def test_a_permission_that_lacks_is_one_line(busy, tmp_path, step) -> None:
    busy.status, busy.body = 403, GCS_403
    (tmp_path / "large").write_bytes(bytes(9 << 20))
    steps = {
        "upload": lambda: folders.upload(str(tmp_path / "large"), PATH),
        "write": lambda: storage.write_bytes(PATH, b"a"),
        "read": lambda: storage.read_bytes(PATH),
        "delete": lambda: storage.delete(PATH),
        "list": lambda: storage.listdir(PATH),
    }
    needed = dict(zip(steps, ["create", "create", "get", "delete", "list"], strict=True))
    with pytest.raises(MillraceError) as raised:
        steps[step]()
    message = str(raised.value)
    assert message.startswith(f"{PATH}: permission denied (storage.objects.{needed[step]}): ")
    assert "The account needs the role roles/storage.objectUser on the bucket" in message
    assert "\n" not in message
    assert "{" not in message
    assert len(message) < 300
