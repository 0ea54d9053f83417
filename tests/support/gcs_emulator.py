"""The parts of Google Cloud Storage that the project uses, on loopback, for the real client library."""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import itertools
import json
import re
import threading
from collections.abc import Iterator
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.loopback_service import JsonHandler, serving


@dataclasses.dataclass
class Bucket:
    """Objects by name: their bytes and generation; each put makes a new generation."""

    objects: dict[str, tuple[bytes, int]] = dataclasses.field(default_factory=dict)
    puts: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    endpoint: str = ""

    def close(self) -> None:
        """Nothing is running."""


class Handler(JsonHandler):
    """One connection of a client; a put or removal may require the generation that it replaces."""

    def _json(self, value: object, status: int = 200) -> None:
        self.send(status, json.dumps(value).encode())

    def _metadata(self, name: str) -> dict[str, str]:
        data, generation = self.service.objects[name]
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

    def do_GET(self) -> None:  # noqa: N802 - the base class calls it so
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if not self._name():
            self._list(query)
            return
        requested_generation = query.get("generation")
        if self._name() not in self.service.objects or requested_generation not in (
            None,
            str(self.service.objects[self._name()][1]),
        ):
            self._json({"error": {"code": 404, "message": "No such object"}}, 404)
        elif query.get("alt") == "media":
            data = self.service.objects[self._name()][0]
            byte_range = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            first = int(byte_range[1]) if byte_range else 0
            last = min(int(byte_range[2]) if byte_range and byte_range[2] else len(data), len(data) - 1)
            if byte_range and first >= len(data):
                self.send(416, b"", "text/plain")
            else:
                place = f"bytes {first}-{last}/{len(data)}"
                generation = str(self.service.objects[self._name()][1])
                headers = {"Content_Range": place, "X_Goog_Generation": generation}
                self.send(206 if byte_range else 200, data[first : last + 1], "application/octet-stream", **headers)
        else:
            self._json(self._metadata(self._name()))

    def _list(self, query: dict[str, str]) -> None:
        prefix, glob = query.get("prefix", ""), query.get("matchGlob", "*")
        names = [n for n in sorted(self.service.objects) if n.startswith(prefix) and fnmatch.fnmatchcase(n, glob)]
        folders = set()
        if "delimiter" in query:
            folders = {prefix + n[len(prefix) :].partition("/")[0] + "/" for n in names if "/" in n[len(prefix) :]}
            names = [n for n in names if "/" not in n[len(prefix) :]]
        self._json({"items": [self._metadata(n) for n in names], "prefixes": sorted(folders)})

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it so
        body = self.body()
        boundary = re.search(r"boundary=[\"']?([^\"']+)", self.headers["Content-Type"])
        assert boundary
        _, metadata, media, _ = body.split(b"--" + boundary[1].encode())
        name = json.loads(metadata.partition(b"\r\n\r\n")[2])["name"]
        with self.service.lock:
            if self._refuses(name):
                return
            self.service.objects[name] = (media.partition(b"\r\n\r\n")[2][:-2], next(self.service.puts))
            self._json(self._metadata(name))

    def do_DELETE(self) -> None:  # noqa: N802 - the base class calls it so
        with self.service.lock:
            if self._refuses(self._name()):
                return
            removed_object = self.service.objects.pop(self._name(), None)
        self.send(204 if removed_object else 404, b"")

    def _refuses(self, name: str) -> bool:
        """Answers 412 and returns True if the request requires another generation; 0 means that there is no object."""
        required_generation = parse_qs(urlsplit(self.path).query).get("ifGenerationMatch")
        _, generation = self.service.objects.get(name, (b"", 0))
        if required_generation is None or int(required_generation[0]) == generation:
            return False
        self._json({"error": {"code": 412, "message": "Precondition Failed"}}, 412)
        return True


@contextlib.contextmanager
def running() -> Iterator[str]:
    """Starts an empty emulator; yields the value for STORAGE_EMULATOR_HOST."""
    bucket = Bucket()
    with serving(bucket, Handler):
        yield bucket.endpoint.replace("localhost", "127.0.0.1")
