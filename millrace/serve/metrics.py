"""The metrics of a server, for Prometheus: counts and times, never a value of a request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
Readings = Mapping[str, tuple[str, Callable[[], float]]]  # by name: what it is, and its value now


class Metrics:
    """The metrics of one server, in a registry of their own.

    Args:
      readings: what is read when Prometheus asks for it; counters have names that end in `_total`.
    """

    def __init__(self, readings: Readings) -> None:
        self._registry = registry = CollectorRegistry()
        registry.register(_Collector(readings))
        text = "Requests by kind and HTTP status"
        self._requests = Counter("millrace_requests", text, ["kind", "status"], registry=registry)
        self._children: dict[tuple[str, int], Counter] = {}
        self._rows = Counter("millrace_rows", "Rows that the model answered", registry=registry)
        self.row_errors = Counter("millrace_row_errors", "Rows that got an error of their own", registry=registry)
        text = "Seconds from a request's head to its answer"
        self._seconds = Histogram("millrace_request_seconds", text, buckets=_SECONDS, registry=registry)
        self._batch_rows = Histogram("millrace_batch_rows", "Rows in a batch", buckets=_ROWS, registry=registry)
        text = "Seconds that the model takes for a batch"
        self._batch_seconds = Histogram("millrace_batch_seconds", text, buckets=_SECONDS, registry=registry)
        self.answered = 0

    def count_batch(self, rows: int, seconds: float) -> None:
        """Counts a batch."""
        self._rows.inc(rows)
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def count_request(self, kind: str, status: int, seconds: float) -> None:
        """Counts a request."""
        child = self._children.get((kind, status))
        if child is None:  # to look it up takes longer than to count
            child = self._children[kind, status] = self._requests.labels(kind, str(status))
        child.inc()
        self._seconds.observe(seconds)
        self.answered += 1

    def text(self) -> bytes:
        """Writes the metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _Collector:
    """A collector of prometheus_client."""

    def __init__(self, readings: Readings) -> None:
        self._readings = readings

    def collect(self) -> Iterator[Any]:
        for name, (text, value) in self._readings.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(name, text, value())
