"""What Prometheus reads: counts and times, never a value of a request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from trainer.request_store.store import RequestStore
from trainer.serving.batcher import Batcher
from trainer.serving.versions import Versions

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Metrics:
    """The metrics of one server, in a registry of their own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = registry = CollectorRegistry()
        self._requests = Counter(
            "millrace_requests", "Requests by kind and HTTP status", ["kind", "status"], registry=registry
        )
        self._by_labels: dict[tuple[str, int], Callable[[], None]] = {}
        self.rows = Counter("millrace_rows", "Rows that the model answered", registry=registry)
        self.row_errors = Counter("millrace_row_errors", "Rows that got an error of their own", registry=registry)
        seconds = "Seconds from a request's last byte to its answer"
        self._seconds = Histogram("millrace_request_seconds", seconds, buckets=_SECONDS, registry=registry)
        self._batch_rows = Histogram("millrace_batch_rows", "Rows in a batch", buckets=_ROWS, registry=registry)
        self._batch_seconds = Histogram(
            "millrace_batch_seconds", "Seconds that the model takes for a batch", buckets=_SECONDS, registry=registry
        )
        self._gauge = Gauge
        self.answered = 0

    def follow(
        self, batcher: Batcher, versions: Versions, connections: Collection[object], reading: Callable[[], float]
    ) -> None:
        """Adds what is read from the server when it is asked for."""
        Gauge, registry = self._gauge, self.registry  # noqa: N806 - a class
        gauges: dict[str, tuple[str, Callable[[], float]]] = {
            "millrace_queued_rows": ("Rows that wait for the model", lambda: batcher.queued_rows),
            "millrace_queued_bytes": ("Bytes that wait for the model", lambda: batcher.queued_bytes),
            "millrace_reading_bytes": ("Bytes of bodies that are being read or answered", reading),
            "millrace_connections": ("Open connections", lambda: len(connections)),
            "millrace_model_version": ("The version in service", lambda: float(versions.current.version)),
            "millrace_model_swaps": ("How often another version was put into service", lambda: versions.swaps),
            "millrace_model_refused": ("Versions that were refused", lambda: len(versions.refused)),
        }
        for name, (text, read) in gauges.items():
            Gauge(name, text, registry=registry).set_function(read)

    def follow_store(self, store: RequestStore) -> None:
        """Adds what a store of requests counts."""
        self.registry.register(_StoreCounts(store))

    def batch(self, rows: int, seconds: float) -> None:
        """Counts a batch."""
        self.rows.inc(rows)
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def request(self, kind: str, status: int, seconds: float) -> None:
        """Counts a request."""
        count = self._by_labels.get((kind, status))
        if count is None:
            count = self._by_labels[kind, status] = self._requests.labels(kind, str(status)).inc
        count()
        self._seconds.observe(seconds)
        self.answered += 1

    def text(self) -> bytes:
        """The metrics, as Prometheus reads them."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)


class _StoreCounts:
    """A collector of prometheus_client: reads the counts when it is asked for them."""

    def __init__(self, store: RequestStore) -> None:
        self._store = store

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily

        counts = self._store.counts
        yield CounterMetricFamily("millrace_stored_rows", "Rows that were stored", counts.rows)
        yield CounterMetricFamily("millrace_store_errors", "Rows that could not be stored", counts.failed)
        yield CounterMetricFamily("millrace_repeated_ids", "Rows whose id was stored already", counts.repeated)
