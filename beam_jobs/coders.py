"""Coders for the batches that flow between steps."""

from __future__ import annotations

import pickle
from typing import Any

import apache_beam as beam
import pyarrow as pa


class BatchCoder(beam.coders.Coder):
    """Pickles a batch, and tells its size without doing so.

    Beam's workers ask for elements' sizes now and then, between fused steps too; its own coders answer by encoding the
    element, which costs a batch of thousands of rows each time.
    """

    def encode(self, value: Any) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Any:
        return pickle.loads(encoded)  # noqa: S301 - between this job's own workers, as Beam's coders do; never from a file

    def estimate_size(self, value: Any) -> int:
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        return False


beam.coders.registry.register_coder(pa.RecordBatch, BatchCoder)
