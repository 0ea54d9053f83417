"""The numbers and ids of a record by name: a feature of one value as itself, and each value of a short vector."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from schemas.spec.features import Feature, Numeric
from schemas.spec.forms import Dense, Ids, Input
from schemas.spec.table import Schema

LONGEST = 50  # values of a vector that are told apart: not the pixels of an image


@dataclasses.dataclass(frozen=True)
class Part:
    """One value of a feature. `column`: its place in the stored vector; None: the feature holds a single value."""

    feature: str
    column: int | None = None
    name: str = ""


def parts_of(entry: Input, feature: Feature | None) -> Iterator[Part]:
    """The values of a stored feature that can be told apart; none of a bag, of a long vector or of tokens.

    Args:
      entry: the stored feature.
      feature: what the schema declares; None where a custom `preprocessing_fn` made it.
    """
    width = entry.width if isinstance(entry, Dense) else entry.length
    if width == 1:
        yield Part(entry.name, None, entry.name)
    elif width is not None and width <= LONGEST and (isinstance(entry, Dense) or entry.positional):
        refs = feature.refs if isinstance(feature, Numeric) and len(feature.refs) == width else range(width)
        yield from (Part(entry.name, place, f"{entry.name}[{ref}]") for place, ref in enumerate(refs))


def declared_parts(schema: Schema) -> list[str]:
    """The names of the values that the schema's features become, before its vocabularies are known."""
    names = []
    for feature in schema.inputs:
        for entry in feature.inputs(1):
            names += [part.name for part in parts_of(entry, feature) if not hashed(entry, feature)]
    return names


def hashed(entry: Input, feature: Feature | None) -> bool:
    """Whether ids are buckets of a hash, which say nothing to a reader."""
    return (isinstance(entry, Ids) and entry.crossed) or getattr(feature, "hash_buckets", None) is not None
