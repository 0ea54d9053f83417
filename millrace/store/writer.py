"""Stores answered requests: a thread takes the batches that have gathered, and commits them together.

A batch is stored whole or not at all, before its answers leave. A row whose id is stored already is not stored again:
its stored answer takes the place of the new one. Only ids that clients chose can come again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import orjson

from millrace.store import database
from millrace.store.database import StoredRequest, store_errors
from millrace.store.layout import ID, RequestLayout, spelled_key
from schemas import storage
from schemas.errors import UsageError
from schemas.spec.loader import AnySchema
from schemas.storage.json_files import parse_json

WAITING = 2  # batches that wait to be stored; then the model waits, too
RETENTION_SECONDS = 600.0  # between two looks for requests that are too old
DAY = 86_400.0
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_IMAGE_KINDS = ((b"\xff\xd8\xff", ".jpg"), (b"\x89PNG", ".png"))
Outputs = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ServedBatch:
    """Rows that one model answered together.

    Attributes:
      ids: one a row: the request's id, followed by `/0`, `/1`, ... where the request has several rows.
      from_client: one a row: whether the client chose the id, and so may send it again.
      columns: the raw values by the export's input names, float32 `[rows]` or `[rows, width]`, or objects of `bytes`
        `[rows]`, as in the signature `serving_default`. A key that a request does not send is b"". Of a row that could
        not be read they are NaN and b"".
      outputs: the model's outputs by name, `[rows, ...]`, as in `trainer.export.outputs`. Where `error` is not b"", the
        row has no prediction.
      version: the name of the export that answered.
      received: one a row: when its request arrived, seconds since 1970.
      answered: when the model had answered, seconds since 1970.
      sent: the rows that could not be read, as JSON, by row.
    """

    ids: Sequence[str]
    from_client: Sequence[bool]
    columns: Mapping[str, np.ndarray]
    outputs: Outputs
    version: str
    received: Sequence[float]
    answered: float
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)


class StoredAnswers(NamedTuple):
    """What a stored batch is answered with.

    Attributes:
      outputs: by name, `[rows, ...]`.
      versions: one a row: the name of the export that answered it; empty where the id is that of another request.
    """

    outputs: Outputs
    versions: Sequence[str]


@dataclasses.dataclass
class StoreCounts:
    """Rows stored, rows that repeat an id, and rows that could not be stored."""

    rows: int = 0
    repeated: int = 0
    failed: int = 0


_Pending = tuple[ServedBatch, Future[StoredAnswers]]


class RequestStore:
    """A folder of stored requests, written by one server at a time. `append` and `submit` are thread-safe.

    Args:
      path: the folder, on local disk; it and its files are for this user alone.
      schema: of the export that is served.
      schema_yaml: its file, which `millrace label` reads.
      retain_days: requests that are older are removed; None: never.

    Raises:
      UsageError: an option is out of its range, the folder is another process's, or holds something else, or requests
        of another schema.
      StoreError: it cannot be read or written.
    """

    def __init__(
        self,
        path: str,
        schema: AnySchema,
        *,
        schema_yaml: bytes = b"",
        retain_days: float | None = None,
    ) -> None:
        if not storage.is_local(path):
            raise UsageError(f"--store {path}: must be on local disk, where a write can be flushed")
        self._path, self._retain_days = path, retain_days
        self._layout = RequestLayout.of(schema)
        self.counts = StoreCounts()
        self._last_removal = -math.inf
        self._work: queue.Queue[_Pending | None] = queue.Queue(WAITING)
        with contextlib.ExitStack() as resources, store_errors(path):
            resources.enter_context(database.server_folder(path))
            self._database = resources.enter_context(contextlib.closing(database.connect(path, create=True)))
            database.set_served(self._database, path, self._layout.form, schema_yaml)
            self._remove_old()
            self._resources = resources.pop_all()
        self._thread = threading.Thread(target=self._run, name="request-store", daemon=True)
        self._thread.start()

    def submit(self, batch: ServedBatch) -> Future[StoredAnswers]:
        """Begins to store a batch, after waiting while others wait.

        Returns:
          A future that ends when the batch is on disk. It has what is to be answered: the batch's outputs, with the
          stored ones where an id was stored already, and an error for a row that has the id of another request. It
          raises StoreError if nothing was stored.
        """
        stored: Future[StoredAnswers] = Future()
        self._work.put((batch, stored))
        return stored

    def close(self) -> None:
        """Stores what waits, and frees the folder."""
        self._work.put(None)
        self._thread.join()
        self._resources.close()

    def _run(self) -> None:
        while (pending := self._work.get()) is not None:
            group = [pending]
            while not self._work.empty() and (pending := self._work.get()) is not None:
                group.append(pending)
            self._store(group)
            if pending is None:
                return

    def _store(self, group: Sequence[_Pending]) -> None:
        """Stores some batches together; if that fails, each alone, so that one does not fail for another."""
        try:
            with store_errors(self._path):
                answers = self._write([batch for batch, _ in group])
        except Exception as error:
            if len(group) > 1:
                for pending in group:
                    self._store([pending])
                return
            ((batch, stored),) = group
            self.counts.failed += len(batch.ids)
            stored.set_exception(error)
            return
        for (_, stored), outputs in zip(group, answers, strict=True):
            stored.set_result(outputs)

    def _write(self, batches: Sequence[ServedBatch]) -> list[StoredAnswers]:
        """Commits the new rows of some batches. Returns what each batch is answered with."""
        if time.monotonic() - self._last_removal >= RETENTION_SECONDS:
            self._remove_old()
        ids = [name for batch in batches for name, chosen in zip(batch.ids, batch.from_client, strict=True) if chosen]
        stored = database.requests_by_id(self._database, ids)
        new: list[StoredRequest] = []
        images: dict[str, tuple[float, bytes]] = {}
        repeats: list[dict[int, StoredRequest | None]] = []  # of each batch, by row; None: another request has the id
        for batch in batches:
            names = _image_names(batch.columns) if self._layout.images else {}
            repeats.append({})
            for row, request in enumerate(self._requests(batch, names)):
                if request.from_client and request.id in stored:
                    first = stored[request.id]
                    same = (first.line, first.sent) == (request.line, request.sent)
                    repeats[-1][row] = first if same else None
                    continue
                new.append(request)
                if request.from_client:
                    stored[request.id] = request
                for name, files in names.items():
                    images[files[row].decode()] = request.received, batch.columns[name][row]
        images.pop("", None)
        if new:
            database.insert(self._database, new, images)
        self.counts.rows += len(new)
        self.counts.repeated += sum(map(len, repeats))
        return [_answers(batch, rows) for batch, rows in zip(batches, repeats, strict=True)]

    def _requests(self, batch: ServedBatch, image_names: Mapping[str, Sequence[bytes]]) -> list[StoredRequest]:
        """Returns the rows of the table `requests` that a batch becomes."""
        rows, outputs, key = len(batch.ids), dict(batch.outputs), self._layout.key
        errors = outputs.pop("error").tolist() if "error" in outputs else [b""] * rows
        outputs.pop("key", None)
        names = tuple(outputs)
        answers = zip(*map(_by_row, outputs.values()), strict=True)
        lines = self._layout.lines(image_names or batch.columns)
        for row in batch.sent:
            lines[row] = b""  # a row that could not be read has no raw values
        columns = (
            batch.ids,
            batch.from_client,
            [None] * rows if key is None else [spelled_key(value) or None for value in batch.columns[key]],
            lines,
            [batch.sent.get(row) for row in range(rows)],
            [orjson.dumps(dict(zip(names, answer, strict=True)), _text, _NUMPY) for answer in answers],
            errors,
            [batch.version] * rows,
            batch.received,
            [batch.answered] * rows,
        )
        return [StoredRequest(*values) for values in zip(*columns, strict=True)]

    def _remove_old(self) -> None:
        self._last_removal = time.monotonic()
        if self._retain_days is not None:
            database.remove_old(self._database, time.time() - self._retain_days * DAY)


def _answers(batch: ServedBatch, repeats: Mapping[int, StoredRequest | None]) -> StoredAnswers:
    """Returns a batch's outputs with the stored answers of the rows that repeat an id."""
    versions = [batch.version] * len(batch.ids)
    if not repeats:
        return StoredAnswers(batch.outputs, versions)
    outputs = {name: values.copy() for name, values in batch.outputs.items()}
    for row, request in repeats.items():
        error = f"{ID}: {batch.ids[row][:80]} is the id of another request, with other values".encode()
        answer: dict[str, Any] = {}
        versions[row] = ""
        if request is not None:
            error, versions[row] = request.error, request.model
            answer = {} if error else parse_json(request.answer)
        for name, values in outputs.items():
            value: Any = _bytes(answer[name]) if name in answer and values.dtype == object else answer.get(name)
            if name == "error":
                values[row] = error
            elif name in answer and np.shape(value) == np.shape(values[row]):
                values[row] = value
            elif name != "key":  # no prediction, or one that this model does not make
                values[row] = {"f": np.nan, "i": -1, "O": b""}.get(values.dtype.kind, 0)
    return StoredAnswers(outputs, versions)


def _by_row(values: np.ndarray) -> list[Any]:
    """Returns an output as what orjson writes; numbers with the digits of their own precision."""
    return values.tolist() if values.dtype == object else list(np.ascontiguousarray(values))


def _text(value: bytes) -> str | list[int]:
    """Returns bytes for JSON, as numbers if they are not UTF-8. `_bytes` restores them."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return list(value)


def _bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if value and isinstance(value[0], int) else list(map(_bytes, value))


def _image_names(columns: Mapping[str, np.ndarray]) -> dict[str, list[bytes]]:
    """Returns the name of each image file, by input: a digest of its bytes; empty where there is no image."""
    return {name: [_image_name(data) if data else b"" for data in files] for name, files in columns.items()}


def _image_name(data: bytes) -> bytes:
    suffix = next((suffix for magic, suffix in _IMAGE_KINDS if data.startswith(magic)), ".bin")
    return f"{hashlib.sha256(data).hexdigest()[:32]}{suffix}".encode()
