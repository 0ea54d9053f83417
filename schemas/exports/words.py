"""Compares the words that a model knows with those of a dataset, and counts values that it does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas import storage
from schemas.csv.values import distinct, missing_tokens
from schemas.dataset import OpenDataset, layout
from schemas.dataset.records import classes_of, read_vocabulary, read_words
from schemas.errors import few
from schemas.exports.notes import read_notes
from schemas.spec.features import Category
from schemas.spec.table import Schema

_CHARACTERS = 40  # of a word that is shown


def differing_words(export_dir: str, dataset: OpenDataset) -> list[str]:
    """Says how the classes and vocabularies of an export differ from those of a dataset of the same schema.

    Args:
      export_dir: the export.
      dataset: the dataset.

    Returns:
      A clause for each list of words, such as `classes of the label: 2 in the model, 3 in the data (new: 'maybe')`. Not
      compared are the words of a `preprocessing_fn` that gives its vocabularies other names than their features have.
    """
    schema, notes = read_notes(export_dir)
    classes = classes_of(dataset.path, dataset.manifest, dataset.declared) if notes.classes else None
    pairs: list[tuple[str, Sequence[str] | None, Sequence[str] | None]] = [
        ("classes of the label", notes.classes, classes)
    ]
    for feature in schema.features if isinstance(schema, Schema) else ():
        if feature.vocabulary is not None:
            name = feature.vocabulary.name
            exported = read_words(layout.join(export_dir, "assets", name))
            pairs.append(
                (f"words of {feature.name!r}", exported, read_vocabulary(dataset.path, dataset.manifest, name))
            )
    return [
        f"{what}: {len(model):,} in the model, {len(data):,} in the data ({_changes(model, data)})"
        for what, model, data in pairs
        if model is not None and data is not None and list(model) != list(data)
    ]


def _changes(model: Sequence[str], data: Sequence[str]) -> str:
    lists = {"new": set(data) - set(model), "missing": set(model) - set(data)}
    shown = [
        f"{name}: {few([repr(word[:_CHARACTERS]) for word in sorted(words)])}" for name, words in lists.items() if words
    ]
    return "; ".join(shown) or "in another order"


class KnownValues:
    """The values of each category that a model knows: those of its vocabulary, or those that the schema lists.

    Args:
      export_dir: the export, in whose assets vocabularies are.
      schema: its schema.
    """

    def __init__(self, export_dir: str, schema: Schema) -> None:
        self._missing = {name: missing_tokens(tokens).tokens for name, tokens in schema.missing_tokens.items()}
        self._known_values: dict[str, frozenset[bytes]] = {}
        for feature in schema.features:
            if not isinstance(feature, Category):
                continue
            path = storage.join(export_dir, "assets", feature.name)
            if feature.values is not None:
                self._known_values[feature.name] = frozenset(value.encode() for value in feature.values)
            elif feature.vocabulary is not None and storage.exists(path):  # a transform of one's own has none
                self._known_values[feature.name] = frozenset(storage.read_bytes(path).split(b"\n"))

    def count(self, columns: Mapping[str, pa.BinaryArray], rows: np.ndarray) -> Counter[str]:
        """Counts by feature the rows with a value that the model does not know; a missing value is none.

        Args:
          columns: binary `[n]`, by feature; others may be there.
          rows: bool `[n]`: those that count.
        """
        unknown: Counter[str] = Counter()
        for name, vocabulary in self._known_values.items():
            column = distinct(columns[name], self._missing[name], words=True)
            new = np.array([word not in vocabulary for word in column.trimmed.to_pylist()], bool) & ~column.absent
            if new.any() and (count := int(np.count_nonzero(new[column.codes] & rows))):
                unknown[name] = count
        return unknown


def notes_of(unknown: Mapping[str, int], rows: int, schema: Schema) -> list[str]:
    """Writes a sentence for each feature with values that the model does not know.

    Args:
      unknown: by feature, how many rows have one.
      rows: how many rows there are.
      schema: the model's.
    """
    return [
        f"{unknown[f.name]:,} of {rows:,} rows have a value of `{f.name}` that {_why_unknown(f)}"
        for f in schema.features
        if isinstance(f, Category) and unknown.get(f.name)
    ]


def _why_unknown(feature: Category) -> str:
    if feature.values is not None:
        return "is not among the schema's `values`"
    if feature.top_k or feature.frequency_threshold:
        return "is not in the model's vocabulary, which holds the frequent ones"
    return "training never saw"
