"""Counts the values that a saved transform does not know: words outside its vocabularies and lists of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from beam_jobs.core.steps import KnownIds
from schemas import storage
from schemas.dataset import layout
from schemas.spec.features import Category, Text
from schemas.spec.table import Schema

# The stages of CountKeys ("", stage, feature): how many values were looked up, and how many of them are not known.
LOOKED_UP, UNSEEN = "*looked_up", "*unseen"


def known_ids(schema: Schema, run_dir: str) -> dict[str, KnownIds]:
    """The known ids of each feature whose values are looked up.

    Args:
      schema: the dataset's, whose transform is derived from it.
      run_dir: the run with the transform.
    """
    found = {}
    for feature in schema.features:
        if isinstance(feature, Category | Text) and feature.vocabulary is not None:
            words = storage.read_bytes(layout.join(run_dir, layout.TRANSFORM_FN, "assets", feature.name))
            first = 1 if isinstance(feature, Text) else 0
            found[feature.name] = KnownIds(first, first + words.count(b"\n"))
        elif isinstance(feature, Category) and feature.values is not None:
            found[feature.name] = KnownIds(0, len(feature.values))
    return found


def count_unseen(features: pa.RecordBatch, known: Mapping[str, KnownIds]) -> Iterator[tuple[tuple[str, str, str], int]]:
    """(CountKey, values) of a transformed batch."""
    for name, ids in known.items():
        values = np.asarray(features.column(name).flatten())
        if ids.first:  # padded
            values = values[values >= ids.first]
        unseen = int(((values >= ids.end) | (values < ids.first)).sum())
        yield ("", LOOKED_UP, name), len(values)
        if unseen:
            yield ("", UNSEEN, name), unseen
