"""Parses the bodies of requests, and writes those of answers, as JSON.

Read: bounded in depth, and NaN for a missing number. Written: in the shapes of TensorFlow Serving's REST API, and for
plain rows.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from millrace.serve.batcher import Answer
from millrace.serve.model import RefusedRequest, bad_request
from millrace.serve.requests import RequestRows
from schemas.exports.model import CLASS, ERROR, KEY, PROBABILITIES, VALUE
from schemas.spec.naming import note_of_undeclared

# What Python's json reads, and orjson does not: numbers as TensorFlow Serving takes them, and half of a surrogate pair,
# which fails its row alone.
_UNUSUAL = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")
_NO_VALUE = re.compile(rb"[:,\[]\s*-?(nan|NaN|None|NA|undefined)\s*[,}\]]")


def parse(body: bytes) -> Any:
    """Parses a body.

    Args:
      body: UTF-8. NaN, Infinity and -Infinity are numbers, as Python's json writes them.

    Raises:
      RefusedRequest: it is not JSON.
    """
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if not _UNUSUAL.search(body):
            raise _no_json(body, str(error)) from None
    try:
        return json.loads(body.decode())
    except RecursionError:
        raise bad_request("the body is not JSON that is read here: it is nested too deeply") from None
    except ValueError as error:
        raise _no_json(body, str(error)) from None


def _no_json(body: bytes, problem: str) -> RefusedRequest:
    hint = ""
    if body.startswith(b"--") or "utf-8" in problem.lower():  # a form's parts, or a file
        hint = '; send JSON in UTF-8, and in it an image, or other bytes, as {"b64": "<base64>"}'
    elif "control character" in problem:
        hint = r"; write a line break in a string as \n (base64 has none here: `base64 -w0`)"
    elif _NO_VALUE.search(body):
        hint = "; write a missing value as null"
    return bad_request(f"the body is not JSON: {problem}{hint}")


def error_body(message: str) -> bytes:
    """Writes the body of an error, in TensorFlow Serving's form."""
    return orjson.dumps({"error": message.encode("utf-8", "replace").decode()})


def answer_body(rows: RequestRows, answer: Answer, ids: Sequence[str]) -> bytes:
    """Writes the body of an answer.

    Args:
      rows: what was asked.
      answer: the outputs of these rows.
      ids: of the request's rows.
    """
    note = {"note": note_of_undeclared(rows.ignored)} if rows.ignored else {}
    if rows.form == "plain":
        return orjson.dumps({**_plain(rows, answer, ids), **note}, option=orjson.OPT_SERIALIZE_NUMPY)
    outputs = answer.outputs
    finite = all(np.isfinite(values).all() for values in outputs.values() if values.dtype.kind == "f")
    columns = {name: _values(name, values) if finite else _spelled(name, values) for name, values in outputs.items()}
    body: dict[str, Any] = {"outputs": columns, **note}
    if rows.form == "rows":
        names = tuple(columns)
        predictions = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        body = {"predictions": predictions, **note}
    if finite:
        return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _plain(rows: RequestRows, answer: Answer, ids: Sequence[str]) -> dict[str, Any]:
    """For each row its prediction, or its error. Numbers that JSON has no word for are null."""
    outputs, interface = answer.outputs, answer.loaded.interface
    fields = {name: _values(name, outputs[name]) for name in (KEY, CLASS, VALUE) if name in outputs}
    if interface.classes:
        probabilities = outputs[PROBABILITIES]
        fields[PROBABILITIES] = [dict(zip(interface.classes, row, strict=True)) for row in map(list, probabilities)]
    errors = outputs[ERROR].tolist() if ERROR in outputs else [b""] * rows.count
    versions = set(answer.versions) - {""}
    version = versions.pop() if len(versions) == 1 else answer.loaded.version
    predictions: list[dict[str, Any]] = []
    for i, values in enumerate(zip(*fields.values(), strict=True)):
        row = dict(zip(fields, values, strict=True))
        if errors[i]:
            error = errors[i].decode("utf-8", "replace")
            row = {KEY: row[KEY]} if KEY in row and i not in rows.errors else {}
            row[ERROR] = error + interface.hints.get(error, "")
        if answer.versions[i] not in (version, ""):  # no version answered an id of another request
            row["model_version"] = answer.versions[i]
        predictions.append({"id": ids[i], **row})
    return {"predictions": predictions, "model_version": version}


def _values(name: str, values: np.ndarray) -> Any:
    """Returns an output for orjson, by row. It writes numbers with the digits of their own precision."""
    if values.dtype == object:
        return _texts(name, values.tolist())
    return list(values)


def _spelled(name: str, values: np.ndarray) -> Any:
    """Returns an output for Python's own JSON, which writes NaN and Infinity, as TensorFlow Serving does."""
    if values.dtype.kind != "f":
        return _values(name, values) if values.dtype == object else values.tolist()
    return np.array([float(str(value)) for value in values.ravel()]).reshape(values.shape).tolist()


def _texts(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_texts(name, part) for part in value]
    if not name.endswith("_bytes"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(value).decode()}
