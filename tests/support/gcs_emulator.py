"""The parts of Google Cloud Storage that the project uses, on loopback, for the real client library."""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class Handler(BaseHTTPRequestHandler):
    """Objects by name in one bucket; each put makes a new generation, and may require the previous one."""

    objects: dict[str, tuple[bytes, int]]
    puts: Iterator[int]
    lock: threading.Lock
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent at once: if header and body are sent separately, a connection waits 40 ms
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Logs nothing."""

    def _answer(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def _json(self, value: object, status: int = 200) -> None:
        self._answer(status, json.dumps(value).encode())

    def _metadata(self, name: str) -> dict[str, str]:
        data, generation = self.objects[name]
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": "b",
            "size": str(len(data)),
            "generation": str(generation),
            "metageneration": "1",
        }

    def _name(self) -> str:
        return unquote(urlsplit(self.path).path.partition("/o/")[2])

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if not self._name():
            self._list(query)
            return
        wanted = query.get("generation")
        if self._name() not in self.objects or wanted not in (None, str(self.objects[self._name()][1])):
            self._json({"error": {"code": 404, "message": "No such object"}}, 404)
        elif query.get("alt") == "media":
            data = self.objects[self._name()][0]
            asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            first = int(asked[1]) if asked else 0
            last = min(int(asked[2]) if asked and asked[2] else len(data), len(data) - 1)
            if asked and first >= len(data):
                self._answer(416, b"", "text/plain")
            else:
                place = f"bytes {first}-{last}/{len(data)}"
                generation = str(self.objects[self._name()][1])
                headers = {"Content_Range": place, "X_Goog_Generation": generation}
                self._answer(206 if asked else 200, data[first : last + 1], "application/octet-stream", **headers)
        else:
            self._json(self._metadata(self._name()))

    def _list(self, query: dict[str, str]) -> None:
        prefix, glob = query.get("prefix", ""), query.get("matchGlob", "*")
        names = [n for n in sorted(self.objects) if n.startswith(prefix) and fnmatch.fnmatchcase(n, glob)]
        folders = set()
        if "delimiter" in query:
            folders = {prefix + n[len(prefix) :].partition("/")[0] + "/" for n in names if "/" in n[len(prefix) :]}
            names = [n for n in names if "/" not in n[len(prefix) :]]
        self._json({"items": [self._metadata(n) for n in names], "prefixes": sorted(folders)})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        boundary = re.search(r"boundary=[\"']?([^\"']+)", self.headers["Content-Type"])
        assert boundary
        _, metadata, media, _ = body.split(b"--" + boundary[1].encode())
        name = json.loads(metadata.partition(b"\r\n\r\n")[2])["name"]
        with self.lock:
            if self._refuses(name):
                return
            self.objects[name] = (media.partition(b"\r\n\r\n")[2][:-2], next(self.puts))
            self._json(self._metadata(name))

    def do_DELETE(self) -> None:
        with self.lock:
            if self._refuses(self._name()):
                return
            found = self.objects.pop(self._name(), None)
        self._answer(204 if found else 404, b"")

    def _refuses(self, name: str) -> bool:
        """Answers 412 and returns True if the request requires another generation; 0 means that there is no object."""
        wanted = parse_qs(urlsplit(self.path).query).get("ifGenerationMatch")
        _, generation = self.objects.get(name, (b"", 0))
        if wanted is None or int(wanted[0]) == generation:
            return False
        self._json({"error": {"code": 412, "message": "Precondition Failed"}}, 412)
        return True


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Starts an empty emulator; yields the value for STORAGE_EMULATOR_HOST."""
    handler = type("Handler", (Handler,), {"objects": {}, "puts": itertools.count(1), "lock": threading.Lock()})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
