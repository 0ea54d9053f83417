"""Coders for the batches that flow between steps."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import pyarrow as pa


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
