"""Arrow columns as the dense tensors that tf.Transform's graphs take."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.tfxio.tensor_adapter import TensorAdapterConfig


def dense_config(schema: pa.Schema, widths: Mapping[str, int | None]) -> TensorAdapterConfig:
    """The configuration that converts batches to dense tensors.

    Args:
      schema: of the batches.
      widths: the columns that become tensors: `[rows, width]`, or `[rows]` where the width is None.
    """
    representations = {}
    for name, width in widths.items():
        representation = schema_pb2.TensorRepresentation()
        representation.dense_tensor.column_name = name
        representation.dense_tensor.shape.SetInParent()
        if width is not None:
            representation.dense_tensor.shape.dim.add().size = width
        representations[name] = representation
    return TensorAdapterConfig(schema, representations)
