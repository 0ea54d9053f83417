"""A model's outputs as JSON, in the shapes of TensorFlow Serving's REST API."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

ERROR, KEY = "error", "key"


def predict_answer(outputs: Mapping[str, np.ndarray], *, columnar: bool) -> bytes:
    """The answer to a predict request: by row (`predictions`) or by column (`outputs`).

    Numbers that JSON has no word for are NaN, Infinity and -Infinity, as TensorFlow Serving writes them.
    """
    import orjson

    finite = not _any_error(outputs)
    columns = {name: _values(name, values, views=finite and not columnar) for name, values in outputs.items()}
    answer: Any
    if columnar:
        answer = {"outputs": columns}
    else:
        names = tuple(columns)
        answer = {"predictions": [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]}
    if finite:
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"), default=np.ndarray.tolist).encode()


def _any_error(outputs: Mapping[str, np.ndarray]) -> bool:
    """Whether a row has no prediction, or an output is not a finite number."""
    errors = outputs.get(ERROR)
    if errors is not None and any(errors.tolist()):
        return True
    return not all(np.isfinite(values).all() for values in outputs.values() if values.dtype.kind == "f")


def _values(name: str, values: np.ndarray, *, views: bool) -> Any:
    """An output as what JSON is made of, one value a row."""
    if values.dtype == object:
        return [_text(name, value) for value in values.tolist()] if values.ndim == 1 else _texts(name, values.tolist())
    if values.ndim == 1:
        return values.tolist() if values.dtype.kind != "f" or not views else _short(values)
    return list(values) if views else np.ascontiguousarray(values)


def _short(values: np.ndarray) -> Sequence[Any]:
    """Numbers that are written with the digits of a float32."""
    return list(values)


def _texts(name: str, values: Iterable[Any]) -> list[Any]:
    return [_texts(name, value) if isinstance(value, list) else _text(name, value) for value in values]


def _text(name: str, value: bytes) -> Any:
    if not name.endswith("_bytes"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(value).decode()}
