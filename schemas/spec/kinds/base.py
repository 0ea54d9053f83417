"""Defines what features and labels have in common: the columns they read, the values they reject, what they become.

The reader, the job and the trainer use these properties and do not look at an item's kind. Properties without a
sensible default are abstract.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, model_validator

from schemas.spec.forms import (
    MAX_COLUMNS,
    CellError,
    ColumnRef,
    Drift,
    Input,
    MissingTokens,
    Name,
    Positive,
    RawColumn,
    Strict,
    Vocabulary,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


NUMBERED = re.compile(r"(.*?)(?<![0-9])([0-9]{1,18})", re.DOTALL)


class Item(Strict):
    """A feature or the label."""

    name: Name

    columns_are: ClassVar[str] = "the column is"  # the beginning of a message about its columns
    by_column: ClassVar[bool] = False  # whether it stores a value of each of its columns, in their order

    @property
    @abstractmethod
    def refs(self) -> tuple[ColumnRef, ...]:
        """The raw columns that it is read from, in order."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of these columns."""

    @property
    @abstractmethod
    def raw(self) -> RawColumn | None:
        """The raw column that its columns are decoded into; None if they are not decoded."""

    @property
    def measures(self) -> bool:
        """Whether its transform needs statistics or a vocabulary of the train split."""
        return self.vocabulary is not None

    @property
    def if_missing(self) -> str | None:
        """The reason for which a missing value rejects its row; None: a missing value is accepted."""
        return "missing_value" if getattr(self, "missing", None) is None else None

    def tokens(self, of_files: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the tokens of a missing value in its columns.

        `of_files`: those of columns that declare none of their own.
        """
        return of_files

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary that is computed from the train split; None if there is none."""
        return None

    @property
    def listed(self) -> tuple[str, ...] | None:
        """The values that the schema lists, if other values are accepted as well; else None."""
        return None

    @property
    def made(self) -> tuple[str, ...]:
        """The names of all features that the transform computes from it."""
        return (self.name,)

    @property
    def stored_length(self) -> int:
        """The number of its values in a record; 1 if it varies between records."""
        return 1

    def not_meant(self) -> Iterator[tuple[str, str]]:
        """Yields (key, mistake) of valid settings that cannot be intended."""
        yield from ()


class FeatureKind(Item):
    """A feature."""

    is_input: ClassVar[bool] = True  # whether a model reads it

    @abstractmethod
    def inputs(self, words: int) -> tuple[Input, ...]:
        """Returns the model inputs that it becomes.

        Args:
          words: the size of its vocabulary; 0 if it has none.
        """

    @property
    def crossable(self) -> bool:
        """Whether it becomes one id, so that a cross can use it."""
        return False

    @property
    def not_finite_hint(self) -> str:
        """A hint for messages about values that the transform makes infinite or NaN."""
        return ""


class ComparedItem(Item):
    """An item whose values are compared between splits, and with other data."""

    drift: Drift | None = Field(default=None, exclude=True)  # changes no record, so it is not in a fingerprint


class ReadAsNumbers(ComparedItem):
    """An item that is read as float32: `[rows]`, or `[rows, width]` for a vector. NaN is missing."""

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "float32")

    def row_errors(self, rows: np.ndarray) -> Iterator[tuple[int, CellError]]:
        """Yields the rows of float32 `[rows, width]` that the kind's own rules reject."""
        yield from ()

    def split_values(self, rows: np.ndarray) -> np.ndarray:
        """Returns the values for the split's hash, float32 `[rows]` or `[rows, width]`, from `[rows, width]`."""
        return rows


class ReadAsStrings(Item):
    """An item that is read as strings, as they are in the file."""

    splits_into_words: ClassVar[bool] = False

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "string")

    @property
    def in_vocabulary(self) -> bool:
        """Whether whole values are looked up in a vocabulary of the train split, which holds no line end."""
        return self.vocabulary is not None and not self.splits_into_words

    def read_values(self, values: pa.BinaryArray) -> list[bytes | CellError] | None:
        """Applies the kind's own rules to trimmed values: each value for the split's hash, or why it is rejected.

        None if the kind has no such rules. The results for values that mean missing are ignored.
        """


class Single(Item):
    """An item that is read from one column."""

    column: ColumnRef | None = None
    missing_tokens: MissingTokens | None = None  # instead of those of `csv`

    def tokens(self, of_files: tuple[str, ...]) -> tuple[str, ...]:
        return of_files if self.missing_tokens is None else self.missing_tokens

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        """The one raw column this is read from: `column`, or else the column called like the feature."""
        return (self.name if self.column is None else self.column,)

    @property
    def width(self) -> int:
        return 1


class Ranged(Single):
    """An item that is read from one column or from a range of columns."""

    columns: tuple[ColumnRef, ColumnRef] | None = None  # first and last, both included

    @model_validator(mode="after")
    def _one_of_column_and_columns(self) -> Ranged:
        if self.column is not None and self.columns is not None:
            raise ValueError("give either `column` or `columns`, not both")
        check_range(self.columns)
        return self

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        """The raw columns, in order: positions first..last, or names prefix<m>..prefix<n>."""
        return super().refs if self.columns is None else columns_of(self.columns)

    @property
    def width(self) -> int:
        return 1 if self.columns is None else len(numbers_of(self.columns))


def check_range(columns: tuple[ColumnRef, ColumnRef] | None) -> None:
    """Raises ValueError for a range that cannot be read or is too long."""
    count = 0 if columns is None else len(numbers_of(columns))
    if count > MAX_COLUMNS:
        raise ValueError(f"`columns` spans {count:,} columns; a row has {MAX_COLUMNS:,} at most")


def columns_of(columns: tuple[ColumnRef, ColumnRef]) -> tuple[ColumnRef, ...]:
    """Returns a range's columns, in order: positions first..last, or names prefix<m>..prefix<n>."""
    first = NUMBERED.fullmatch(columns[0]) if isinstance(columns[0], str) else None
    if first is None:
        return tuple(numbers_of(columns))
    digits = len(first[2]) if first[2][0] == "0" else 0
    return tuple(f"{first[1]}{i:0{digits}d}" for i in numbers_of(columns))


def numbers_of(columns: tuple[ColumnRef, ColumnRef]) -> range:
    """Returns the positions, or the numbers after the names' prefix. Raises ValueError if they are not a range."""
    first, last = columns
    if isinstance(first, int) and isinstance(last, int):
        if last < first:
            raise ValueError(f"columns [{first}, {last}]: give the first position and the last, counted from 0")
        return range(first, last + 1)
    names = isinstance(first, str) and isinstance(last, str)
    a, b = NUMBERED.fullmatch(str(first)), NUMBERED.fullmatch(str(last))
    if not (names and a and b and a[1] == b[1] and int(a[2]) <= int(b[2])):
        raise ValueError(
            f"columns [{str(first)[:40]}, {str(last)[:40]}]: a range of names is one prefix and two numbers, "
            "such as [pixel0, pixel783]"
        )
    return range(int(a[2]), int(b[2]) + 1)


class FromWords(Single, ReadAsStrings, ComparedItem, FeatureKind):
    """A string to ids, by a vocabulary."""

    top_k: Positive | None = None
    frequency_threshold: Positive | None = None
    oov_buckets: Positive = 1

    @property
    def vocabulary(self) -> Vocabulary | None:
        return Vocabulary(self.name, self.top_k, self.frequency_threshold)
