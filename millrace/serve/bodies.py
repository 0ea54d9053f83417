"""The bodies of requests and of answers, as JSON.

Read: strictly, bounded in depth, no key twice, and NaN for a missing number. Written: in the shapes of TensorFlow
Serving's REST API, and for plain rows.
"""

from __future__ import annotations

import base64
import collections
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from millrace.serve.batcher import Answer
from millrace.serve.model import Refused, bad_request
from millrace.serve.requests import Rows
from millrace.store.rows import Outputs
from schemas.exports.model import CLASS, ERROR, KEY, PROBABILITIES, VALUE
from schemas.spec.naming import note_of_undeclared

# What Python's json reads, and orjson does not: numbers as TensorFlow Serving takes them, and half of a surrogate pair,
# which fails its row alone.
_UNUSUAL = re.compile(rb"NaN|Infinity|\\u[dD][89a-fA-F]")
_NO_VALUE = re.compile(rb"[:,\[]\s*-?(nan|NaN|None|NA|undefined)\s*[,}\]]")
_COLON, _ESCAPED = ":", b"\\u003"  # which is, with a digit more, a colon, too


def parse(body: bytes) -> Any:
    """The value that a body holds.

    Args:
      body: UTF-8. NaN, Infinity and -Infinity are numbers, as Python's json writes them.

    Raises:
      Refused: it is not JSON, or an object has a key twice, of which one would be lost.
    """
    import orjson

    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if _UNUSUAL.search(body):
            return _carefully(body)
        raise _no_json(body, error) from None
    # Each key in the text is followed by a colon. Where there are no more colons than keys in the value, none is lost.
    colons = body.count(b":")
    try:
        if colons != _keys_of_rows(value) and (_ESCAPED in body or colons != _colons(value)):
            _carefully(body)
    except RecursionError:
        raise _too_deep() from None
    return value


def _keys_of_rows(value: Any) -> int:
    """The keys of a list of objects, and of an object that has some; quick, and of other values too few."""
    if type(value) is dict:
        return len(value) + sum(_keys_of_rows(held) for held in value.values() if type(held) is list)
    if type(value) is list and value and type(value[0]) is dict:
        return sum(len(row) for row in value if type(row) is dict)
    return 0


def _colons(value: Any) -> int:
    """The colons that the text of a value has if every key is there once."""
    if type(value) is dict:
        return len(value) + sum(key.count(_COLON) + _colons(held) for key, held in value.items())
    if type(value) is list:
        return sum(_colons(held) for held in value if type(held) in (dict, list, str))
    return value.count(_COLON) if type(value) is str else 0


def _carefully(body: bytes) -> Any:
    try:
        return json.loads(body.decode(), object_pairs_hook=_object)
    except RecursionError:
        raise _too_deep() from None
    except Refused:
        raise
    except ValueError as error:
        raise _no_json(body, error) from None


def _too_deep() -> Refused:
    return bad_request("the body is not JSON that is read here: it is nested too deeply")


def _no_json(body: bytes, error: ValueError) -> Refused:
    text = str(error)
    hint = ""
    if body.startswith(b"--") or "utf-8" in text.lower():  # a form's parts, or a file
        hint = '; send JSON in UTF-8, and in it an image, or other bytes, as {"b64": "<base64>"}'
    elif "control character" in text:
        hint = r"; write a line break in a string as \n (base64 has none here: `base64 -w0`)"
    elif _NO_VALUE.search(body):
        hint = "; write a missing value as null"
    return bad_request(f"the body is not JSON: {text}{hint}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = collections.Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise bad_request(f"an object has the key {twice[:60]!r} twice")
    return found


def answer_of(rows: Rows, answer: Answer, *, classes: Sequence[str], ids: Sequence[str]) -> bytes:
    """The body of an answer.

    Args:
      rows: what was asked.
      answer: the outputs of these rows.
      classes: their names by id; empty for a regression.
      ids: of the request's rows.

    Raises:
      Refused: a row has no prediction, and the form has no place for its reason.
    """
    match rows.form:
        case "rows" | "columns":
            return _predictions(answer.outputs, _note(rows), columnar=rows.form == "columns")
        case "classify" | "regress":
            return _results(answer.outputs, _note(rows), classes)
        case "plain":
            return _plain(rows, answer, classes, ids)


def _note(rows: Rows) -> dict[str, str]:
    """What an answer says of names that are ignored; nothing if there are none."""
    return {"note": note_of_undeclared(rows.ignored)} if rows.ignored else {}


def _predictions(outputs: Outputs, note: dict[str, str], *, columnar: bool) -> bytes:
    """By row (`predictions`) or by column (`outputs`).

    Numbers that JSON has no word for are NaN, Infinity and -Infinity, as TensorFlow Serving writes them.
    """
    import orjson

    finite = not _any_error(outputs)
    columns = {
        name: _values(name, values, views=not columnar) if finite else _spelled(name, values)
        for name, values in outputs.items()
    }
    answer: Any
    if columnar:
        answer = {"outputs": columns, **note}
    else:
        names = tuple(columns)
        predictions = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        answer = {"predictions": predictions, **note}
    if finite:
        return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()


def _results(outputs: Outputs, note: dict[str, str], classes: Sequence[str]) -> bytes:
    """Pairs of class and probability for each row, or values."""
    import orjson

    errors = outputs.get(ERROR)
    if errors is not None and any(errors.tolist()):
        row = next(i for i, error in enumerate(errors.tolist()) if error)
        raise bad_request(f"examples[{row}]: has no prediction: {errors[row].decode('utf-8', 'replace')}")
    if classes:
        results: Any = [list(zip(classes, row, strict=True)) for row in map(list, outputs[PROBABILITIES])]
    else:
        results = outputs[VALUE]
    return orjson.dumps({"results": results, **note}, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(rows: Rows, answer: Answer, classes: Sequence[str], ids: Sequence[str]) -> bytes:
    """For each row its prediction, or its error. Numbers that JSON has no word for are null."""
    import orjson

    outputs = answer.outputs
    fields: dict[str, Any] = {}
    if KEY in outputs:
        fields[KEY] = _values(KEY, outputs[KEY], views=True)
    if classes:
        fields[CLASS] = _values(CLASS, outputs[CLASS], views=True)
        fields[PROBABILITIES] = [dict(zip(classes, row, strict=True)) for row in map(list, outputs[PROBABILITIES])]
    else:
        fields[VALUE] = list(outputs[VALUE])
    errors = outputs[ERROR].tolist() if ERROR in outputs else [b""] * rows.count
    names = tuple(fields)
    versions = set(answer.versions) - {""}
    version = versions.pop() if len(versions) == 1 else answer.loaded.version
    predictions: list[dict[str, Any]] = []
    for i, values in enumerate(zip(*fields.values(), strict=True)):
        row = dict(zip(names, values, strict=True))
        if errors[i]:
            row = {KEY: row[KEY]} if KEY in row and i not in rows.errors else {}
            error = errors[i].decode("utf-8", "replace")
            row[ERROR] = error + answer.loaded.interface.hints.get(error, "")
        if answer.versions[i] not in (version, ""):  # no version answered an id of another request
            row["model_version"] = answer.versions[i]
        predictions.append({"id": ids[i], **row})
    body = {"predictions": predictions, "model_version": version, **_note(rows)}
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _any_error(outputs: Outputs) -> bool:
    """Whether a row has no prediction, or an output is not a finite number."""
    errors = outputs.get(ERROR)
    if errors is not None and any(errors.tolist()):
        return True
    return not all(np.isfinite(values).all() for values in outputs.values() if values.dtype.kind == "f")


def _values(name: str, values: np.ndarray, *, views: bool) -> Any:
    """An output as what JSON is made of; numbers are written with the digits of their own precision."""
    if values.dtype == object:
        return [_text(name, value) for value in values.tolist()] if values.ndim == 1 else _texts(name, values.tolist())
    return list(values) if views else np.ascontiguousarray(values)


def _spelled(name: str, values: np.ndarray) -> Any:
    """The same for Python's own JSON, which knows no arrays, and writes NaN."""
    if values.dtype.kind != "f":
        return _values(name, values, views=False) if values.dtype == object else values.tolist()
    spelled = np.array([float(str(value)) for value in values.ravel()]).reshape(values.shape)
    return spelled.tolist()


def _texts(name: str, values: Iterable[Any]) -> list[Any]:
    return [_texts(name, value) if isinstance(value, list) else _text(name, value) for value in values]


def _text(name: str, value: bytes) -> Any:
    if not name.endswith("_bytes"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(value).decode()}
