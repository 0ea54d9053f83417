"""The forms that a feature takes: as a raw column, as a vocabulary, and transformed, as a model reads it."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class RawColumn:
    """One raw feature.

    float32 is `[batch]`, or `[batch, width]` where `width` is given; NaN is missing.
    string is `[batch]`, untrimmed as it stands in the file; '' and the schema's tokens are missing.
    """

    name: str
    dtype: Literal["float32", "string"]
    width: int | None = None

    @property
    def shape(self) -> list[int]:
        """A record's: `[]` or `[width]`."""
        return [] if self.width is None else [self.width]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Which words of the train split a vocabulary holds. `name`: of the feature, and of the file."""

    name: str
    top_k: int | None = None
    frequency_threshold: int | None = None


@dataclasses.dataclass(frozen=True)
class Dense:
    """A float32 feature: `[batch]`, or `[batch, width]` where a record holds a vector."""

    name: str
    width: int = 1


@dataclasses.dataclass(frozen=True)
class Ids:
    """An int64 feature whose values are ids in [0, count).

    `[batch]` where `length` is 1, `[batch, length]` where each position has ids of its own kind (`positional`) or holds
    the next token of a text (0 is padding), and a SparseTensor where `length` is None (a bag of ids).
    """

    name: str
    count: int
    length: int | None = 1
    positional: bool = False
    crossed: bool = False


Input = Dense | Ids
