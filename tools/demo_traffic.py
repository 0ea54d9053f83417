"""Clients of a model server: rows sent one by one, day and night, and what came of each request."""

from __future__ import annotations

import dataclasses
import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

CLIENTS = 4
NIGHT_SECONDS = 0.05  # between two requests of a client at night; by day there is no pause

Row = dict[str, Any]


@dataclasses.dataclass
class Counts:
    """What became of requests.

    Attributes:
      sent: how many there were.
      failed: how many were not answered with a prediction, and what the first few got instead.
      versions: how many each version of the model has answered.
    """

    sent: int = 0
    failed: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)
    versions: dict[str, int] = dataclasses.field(default_factory=dict)


class Traffic:
    """Clients in threads, each with a connection that stays open. Use as a context: at its end they stop.

    Args:
      port: the server's, on loopback.
    """

    def __init__(self, port: int) -> None:
        self.counts = Counts()
        self._port = port
        self._lock = threading.Lock()
        self._rows: Iterator[tuple[str, Row]] = iter(())
        self._answers: dict[str, str] = {}
        self._left = 0
        self._night: Iterator[tuple[str, Row]] = iter(())
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(CLIENTS)]

    def __enter__(self) -> Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def day(self, name: str, rows: Sequence[Row]) -> dict[str, str]:
        """Sends each row once, and waits for the answers. At night, until the next day, rows like them are sent.

        Args:
          name: begins the rows' ids.
          rows: raw values by name.

        Returns:
          The predicted class by id; rows whose request has failed are left out.
        """
        with self._lock:
            self._answers = {}
            self._left = len(rows)
            self._night = ((f"{name}-night-{i}", row) for i, row in enumerate(itertools.cycle(rows)))
            self._rows = iter([(f"{name}-{i}", row) for i, row in enumerate(rows)])
        while True:
            with self._lock:
                if not self._left:
                    return self._answers
            time.sleep(0.05)

    def _client(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._stop.is_set():
            with self._lock:
                by_day = next(self._rows, None)
                asked = by_day or next(self._night, None)
            if asked is None:
                time.sleep(NIGHT_SECONDS)
                continue
            predicted, version, fault = _ask(connection, *asked)
            with self._lock:
                self.counts.sent += 1
                self.counts.versions[version] = self.counts.versions.get(version, 0) + 1
                if fault:
                    self.counts.failed += 1
                    self.counts.faults = [*self.counts.faults, fault][:5]
                if by_day is not None:
                    self._left -= 1
                    if not fault:
                        self._answers[asked[0]] = predicted
            if by_day is None:
                time.sleep(NIGHT_SECONDS)


def _ask(connection: http.client.HTTPConnection, name: str, row: Row) -> tuple[str, str, str]:
    """Sends a row. Returns the class that is predicted, the version that answered, and what went wrong, if it did."""
    try:
        connection.request("POST", "/predict", json.dumps([row]), {"X-Request-Id": name})
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        return "", "", f"{name}: {type(error).__name__}: {error}"
    if answer.status != 200:
        return "", "", f"{name}: {answer.status}: {body[:200].decode(errors='replace')}"
    found = json.loads(body)
    (prediction,) = found["predictions"]
    return prediction.get("class", ""), str(found["model_version"]), prediction.get("error", "")
