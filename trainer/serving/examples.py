"""Serialized `tf.Example`s as the columns that they hold, by the rules of `tf.io.parse_example`.

They are read here, before requests are batched, so that one that is broken fails its own request and no other's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from schemas.spec.forms import RawColumn
from trainer.serving.errors import bad_request
from trainer.serving.interface import EXAMPLES, Interface
from trainer.serving.values import strings

_KINDS = {"float32": "float_list", "string": "bytes_list"}


def example_columns(values: Sequence[Any], interface: Interface) -> dict[str, np.ndarray]:
    """The columns of examples; what an example leaves out is missing.

    Args:
      values: as JSON has them, each {"b64": ...}.
      interface: its inputs.

    Raises:
      Refused: one is not an example, or holds another kind or number of values than an input takes.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.example.example_pb2 import Example

    def place(row: int) -> str:
        return f"{EXAMPLES}[{row}]"

    rows = []
    for i, data in enumerate(strings(values, RawColumn("examples", "string"), place).tolist()):
        try:
            rows.append(Example.FromString(data).features.feature)
        except DecodeError:
            raise bad_request(f"{place(i)}: found bytes that are not a serialized tf.Example") from None
    return {column.name: _column(rows, column, place) for column in interface.columns}


def _column(rows: Sequence[Any], column: RawColumn, place: Any) -> np.ndarray:
    text = column.dtype == "string"
    size = column.width or 1
    found: Any = np.full((len(rows), size), b"" if text else np.nan, object if text else np.float32)
    kind = _KINDS[column.dtype]
    for i, features in enumerate(rows):
        if column.name not in features:
            continue
        feature = features[column.name]
        given = feature.WhichOneof("kind")
        if given is None:
            continue
        if given != kind:
            raise bad_request(f"{place(i)}, {column.name!r}: found a {given}; expected a {kind}")
        held = getattr(feature, kind).value
        if len(held) != size:
            raise bad_request(f"{place(i)}, {column.name!r}: found {len(held)} values; expected {size}")
        found[i] = held
    return found if column.width is not None else found[:, 0]
