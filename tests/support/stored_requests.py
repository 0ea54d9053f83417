"""Batches of answered requests, as a server hands them to its store."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import LATE

SCHEMA = parse_schema(LATE.encode(), "late.yaml")
CLASSES = ("no", "yes")


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows that a model answered together."""

    ids: Sequence[str]
    given: Sequence[bool]
    columns: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    version: str
    received: Sequence[float]
    answered: float
    sent: Mapping[int, bytes] = dataclasses.field(default_factory=dict)


def late_batch(
    ids: Sequence[str],
    *,
    given: bool = True,
    age: float = 30.0,
    share: float = 0.25,
    at: float = 1.8e9,
    work: bytes = b"a",
) -> Batch:
    """A batch of LATE's requests; `share` is the probability of the class `yes`."""
    rows = len(ids)
    second = np.full(rows, share, np.float32)
    columns = {
        "id": np.array([each.encode() for each in ids], object),
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
    return Batch(ids, [given] * rows, columns, outputs, "7", [at] * rows, at + 0.01)
