"""What the ids of stored records stand for: classes, categories and words, by the schema and the run's vocabularies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.opening import Dataset
from schemas.spec.features import Category, CategoryLabel, OneHot, Text
from schemas.spec.table import Schema

OTHER = "<other>"  # a value that is not in the vocabulary
_PADDING = "<padding>"


def meanings(dataset: Dataset) -> Mapping[str, Sequence[str]]:
    """By feature, what each id means, in the order of the ids; ids beyond stand for unknown values.

    Features with hash buckets have none, and neither have those of a custom preprocessing_fn.
    """
    schema = dataset.declared
    if not isinstance(schema, Schema) or dataset.manifest.preprocessing_fn is not None:
        return {}
    found: dict[str, Sequence[str]] = {}
    for item in schema.items:
        match item:
            case Category() | CategoryLabel() if item.values is not None:
                found[item.name] = item.values
            case OneHot():
                found[item.name] = tuple(map(str, item.refs))
            case Category() | CategoryLabel() | Text() if item.vocabulary is not None:
                words = _words(dataset, item.vocabulary.name)
                if words is not None:
                    found[item.name] = (_PADDING, *words) if isinstance(item, Text) else words
            case _:
                pass
    return found


def _words(dataset: Dataset, name: str) -> Sequence[str] | None:
    """A vocabulary's words; None where there is no such file."""
    path = layout.join(dataset.path, dataset.manifest.run, layout.TRANSFORM_FN, "assets", name)
    if not storage.exists(path):
        return None
    return storage.read_bytes(path).decode("utf-8", "replace").removesuffix("\n").split("\n")


def meant(value: Any, words: Sequence[str]) -> Any:
    """What an id, or each id of a list, stands for."""
    if isinstance(value, list):
        return [meant(each, words) for each in value]
    return words[value] if isinstance(value, int) and 0 <= value < len(words) else OTHER
