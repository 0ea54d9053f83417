"""Batches of answered requests, as a server hands them to its store."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from millrace.store.database import connect
from millrace.store.writer import RequestStore, ServedBatch
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE

SCHEMA = parse_schema(LATE.encode(), "late.yaml")


def write_store(folder: str | Path, schema_yaml: bytes, *batches: ServedBatch, **settings: Any) -> None:
    """Stores batches of requests of a schema."""
    schema = parse_schema(schema_yaml, "schema.yaml")
    store = RequestStore(str(folder), schema, schema_yaml=schema_yaml, **settings)
    for batch in batches:
        store.submit(batch).result()
    store.close()


def stored_rows(folder: str | Path) -> list[dict[str, Any]]:
    """All rows of a store, by column."""
    with contextlib.closing(connect(str(folder))) as database:
        return [dict(row) for row in database.execute("SELECT * FROM requests ORDER BY number")]


def stored_images(folder: str | Path) -> dict[str, bytes]:
    """The images of a store, by name."""
    with contextlib.closing(connect(str(folder))) as database:
        return {row["name"]: row["data"] for row in database.execute("SELECT * FROM images")}


def late_batch(
    ids: Sequence[str],
    *,
    ids_from_client: bool = True,
    age: float = 30.0,
    share: float = 0.25,
    at: float = 1.8e9,
) -> ServedBatch:
    """A batch of LATE's requests; `share` is the probability of the class `yes`."""
    rows = len(ids)
    second = np.full(rows, share, np.float32)
    columns = {
        "id": np.array([row_id.encode() for row_id in ids], object),
        "age": np.full(rows, age, np.float32),
        "hours": np.arange(rows, dtype=np.float32),
        "work": np.array([b"a"] * rows, object),
    }
    outputs = {
        "class": np.array([b"yes" if share > 0.5 else b"no"] * rows, object),
        "class_id": np.full(rows, int(share > 0.5)),
        "probabilities": np.stack([1 - second, second], axis=1),
        "logits": np.zeros((rows, 1), np.float32),
        "error": np.array([b""] * rows, object),
    }
    return ServedBatch(ids, [ids_from_client] * rows, columns, outputs, "7", [at] * rows, at + 0.01)
