"""Whether an export has the classes and the words of a dataset, in the order of their ids."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.dataset import Dataset, layout
from schemas.dataset.records import classes_of, read_vocabulary, read_words
from schemas.errors import few
from schemas.exports.notes import read_notes
from schemas.spec.table import Schema

_CHARACTERS = 40  # of a word that is shown


def differing_words(export_dir: str, dataset: Dataset) -> list[str]:
    """How the classes and vocabularies of an export differ from those of a dataset of the same schema.

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
