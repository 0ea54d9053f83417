"""What workers in other processes tell of themselves, how many bundles work at once, and how batches travel."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.metrics import Metrics

from beam_jobs.core import progress
from schemas import storage
from schemas.concurrency import usable_cores
from schemas.dataset import layout

# The bundles of a worker process take turns, as many at once as it has cores. A runner may hand a process more of them:
# Prism up to eight, and more often so the longer the input. Each holds a batch of rows and what becomes of it, or the
# records of a shard, so memory would grow with their number, and no core would do more. A turn is held while an element
# is worked on, never while one is waited for: so nobody who has one waits for another.
TURN = threading.Semaphore(usable_cores())

NAMESPACE = "millrace"
BEGUN = "worker-begun-"  # how the names of the files begin
_PHASES = ("analyzing", "transforming", "ingesting", "predicting", "writing")  # in the order of a job


class Meter:
    """The Beam counters of one phase. They count what the current bundle does; a runner adds them up."""

    def __init__(self, phase: str) -> None:
        self._counters = {name: Metrics.counter(NAMESPACE, f"{phase}/{name}") for name in ("read", "done", "rejected")}

    def add(self, **amounts: int) -> None:
        """Adds to counters by name; call it in the thread that processes the bundle."""
        for name, amount in amounts.items():
            self._counters[name].inc(amount)


def as_progress(counters: Mapping[str, int], *, total: int) -> progress.Counters:
    """Returns the latest phase that has begun.

    Args:
      counters: the sums of the counters by name, such as `transforming/read`.
      total: how much there is to read, as `done` is counted.
    """
    for phase in reversed(_PHASES):
        read, done, rejected = (counters.get(f"{phase}/{name}", 0) for name in ("read", "done", "rejected"))
        if read or done or rejected:
            return progress.Counters(phase=phase, total=total, read=read, done=done, rejected=rejected)
    return progress.Counters(phase="waiting for workers", total=total)


def report_begun(staging: str) -> None:
    """Leaves a sign of life of this process in the run's staging folder, unless it is the launcher."""
    if not progress.JOB.launched_here:
        _report_once(staging)


@functools.lru_cache(maxsize=16)
def _report_once(staging: str) -> None:
    storage.write_bytes(layout.join(staging, f"{BEGUN}{uuid.uuid4().hex}"), b"")


def has_begun(staging: str) -> bool:
    """Returns whether a worker has begun to read the input."""
    return any(name.startswith(BEGUN) for name in storage.listdir(staging))


class BatchCoder(beam.coders.Coder):
    """Writes a batch as Arrow does, and tells its size without doing so.

    Beam's workers ask for elements' sizes now and then, between fused steps too; its own coders answer by encoding the
    element, which costs a batch of thousands of rows each time.
    """

    def encode(self, value: Any) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return bytes(sink.getvalue())

    def decode(self, encoded: bytes) -> Any:
        return pa.ipc.open_stream(encoded).read_next_batch()

    def estimate_size(self, value: Any) -> int:
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        return False


beam.coders.registry.register_coder(pa.RecordBatch, BatchCoder)


class PickleCoder(beam.coders.Coder):
    """Pickles values, as Beam does without a coder, and tells the size of arrays and tensors without doing so."""

    def __init__(self) -> None:
        self._pickling = beam.coders.FastPrimitivesCoder()

    def encode(self, value: Any) -> bytes:
        return bytes(self._pickling.encode(value))

    def decode(self, encoded: bytes) -> Any:
        return self._pickling.decode(encoded)

    def estimate_size(self, value: Any) -> int:
        if isinstance(value, np.ndarray | pa.Array):
            return int(value.nbytes)
        if isinstance(value, tuple):  # of the arrays of a sparse tensor
            return sum(map(self.estimate_size, value))
        elements = getattr(getattr(value, "shape", None), "num_elements", lambda: None)()
        return len(self.encode(value)) if elements is None else elements * value.dtype.size

    def is_deterministic(self) -> bool:
        return False

    @classmethod
    def from_type_hint(cls, typehint: Any, registry: Any) -> PickleCoder:
        """Beam asks this about each type that has no coder. Only Arrow's arrays and what graphs return get this one.

        Raises:
          ValueError: the type is another.
        """
        if not {pa.Array, np.ndarray}.intersection(getattr(typehint, "union_types", (typehint,))):
            raise ValueError(f"{typehint}: is neither an array nor a union with arrays")
        return cls()


beam.coders.registry.register_fallback_coder(PickleCoder)
