"""Defines the base classes of features and labels: the columns they read, the values they reject, and what they become.

The reader, the job and the trainer use only these properties, and do not look at the kind of an item. Properties
without a sensible default are abstract.
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


# A name that ends with a number, such as pixel783: the prefix and the number.
NUMBERED = re.compile(r"(.*?)(?<![0-9])([0-9]{1,18})", re.DOTALL)


class Item(Strict):
    """A feature or the label of a schema."""

    name: Name

    columns_are: ClassVar[str] = "the column is"  # the beginning of a message about the item's columns
    by_column: ClassVar[bool] = False  # whether a record has one value for each column of the item, in order

    @property
    @abstractmethod
    def refs(self) -> tuple[ColumnRef, ...]:
        """The raw columns that the item is read from, in order."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of raw columns that the item is read from."""

    @property
    @abstractmethod
    def raw(self) -> RawColumn | None:
        """The column of a decoded batch that holds the item's values; None if they are not decoded."""

    @property
    def measures(self) -> bool:
        """Whether the item's transform needs statistics or a vocabulary of the train split."""
        return self.vocabulary is not None

    @property
    def if_missing(self) -> str | None:
        """The reason code with which a missing value rejects its row; None if a missing value is accepted."""
        return "missing_value" if getattr(self, "missing", None) is None else None

    def tokens(self, of_files: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the texts that mean a missing value in the item's columns.

        Args:
          of_files: the tokens for columns that declare no tokens of their own.
        """
        return of_files

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary of the train split that the item needs; None if it needs no vocabulary."""
        return None

    @property
    def listed(self) -> tuple[str, ...] | None:
        """The values that the schema lists, if other values are accepted as well; otherwise None."""
        return None

    @property
    def made(self) -> tuple[str, ...]:
        """The names of all features that the transform computes from the item."""
        return (self.name,)

    @property
    def stored_length(self) -> int:
        """The number of the item's values in a record; 1 if the number varies."""
        return 1

    def not_meant(self) -> Iterator[tuple[str, str]]:
        """Yields (key, mistake) for settings that are valid, but surely not intended."""
        yield from ()


class FeatureKind(Item):
    """The base class of features."""

    is_input: ClassVar[bool] = True  # whether a model reads it

    @abstractmethod
    def inputs(self, words: int) -> tuple[Input, ...]:
        """Returns the model inputs that the feature becomes.

        Args:
          words: the size of the feature's vocabulary; 0 if it has no vocabulary.
        """

    @property
    def crossable(self) -> bool:
        """Whether the feature becomes a single id, so that a cross can use it."""
        return False

    @property
    def not_finite_hint(self) -> str:
        """A hint for messages about values that the transform makes infinite or NaN; '' if it makes no such values."""
        return ""


class ComparedItem(Item):
    """An item whose values are compared between splits, and with other data."""

    drift: Drift | None = Field(default=None, exclude=True)  # changes no record, so it is not in a fingerprint


class ReadAsNumbers(ComparedItem):
    """An item that is read as float32: `[rows]`, or `[rows, width]` for a vector. NaN means missing."""

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "float32")

    def row_errors(self, rows: np.ndarray) -> Iterator[tuple[int, CellError]]:
        """Yields (row, error) for each row that the rules of this kind reject.

        Args:
          rows: the values, float32 `[rows, width]`.
        """
        yield from ()

    def split_values(self, rows: np.ndarray) -> np.ndarray:
        """Returns the values that the hash of the split uses.

        Args:
          rows: the values, float32 `[rows, width]`.

        Returns:
          float32 `[rows]` or `[rows, width]`.
        """
        return rows


class ReadAsStrings(Item):
    """An item that is read as strings, with each text as it stands in the file."""

    splits_into_words: ClassVar[bool] = False

    @property
    def raw(self) -> RawColumn:
        return RawColumn(self.name, "string")

    @property
    def in_vocabulary(self) -> bool:
        """Whether whole values are looked up in a vocabulary of the train split.

        Such a vocabulary cannot contain line ends.
        """
        return self.vocabulary is not None and not self.splits_into_words

    def read_values(self, values: pa.BinaryArray) -> list[bytes | CellError] | None:
        """Applies the rules of this kind to values, from which surrounding spaces were removed.

        Returns:
          For each value, the value that the hash of the split uses, or the error that rejects it. Results for values
          that mean missing are ignored. None if the kind has no rules.
        """


class Single(Item):
    """An item that is read from one column."""

    column: ColumnRef | None = None
    missing_tokens: MissingTokens | None = None  # replaces the tokens in `csv`

    def tokens(self, of_files: tuple[str, ...]) -> tuple[str, ...]:
        return of_files if self.missing_tokens is None else self.missing_tokens

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        """The raw column that the item is read from: `column`, or else the column with the item's name."""
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
        """The raw columns, in order: the positions first to last, or the names prefix<m> to prefix<n>."""
        return super().refs if self.columns is None else columns_of(self.columns)

    @property
    def width(self) -> int:
        return 1 if self.columns is None else len(numbers_of(self.columns))


def check_range(columns: tuple[ColumnRef, ColumnRef] | None) -> None:
    """Refuses a range of columns that is not a range, or is too long.

    Raises:
      ValueError: the range is refused.
    """
    count = 0 if columns is None else len(numbers_of(columns))
    if count > MAX_COLUMNS:
        raise ValueError(f"`columns` spans {count:,} columns; a row has {MAX_COLUMNS:,} at most")


def columns_of(columns: tuple[ColumnRef, ColumnRef]) -> tuple[ColumnRef, ...]:
    """Returns the columns of a range, in order: the positions first to last, or the names prefix<m> to prefix<n>.

    For example, [p08, p10] has the columns p08, p09 and p10.
    """
    first = NUMBERED.fullmatch(columns[0]) if isinstance(columns[0], str) else None
    if first is None:
        return tuple(numbers_of(columns))
    # If the first number has leading zeros, all numbers have the same number of digits.
    digits = len(first[2]) if first[2][0] == "0" else 0
    return tuple(f"{first[1]}{i:0{digits}d}" for i in numbers_of(columns))


def numbers_of(columns: tuple[ColumnRef, ColumnRef]) -> range:
    """Returns the positions of a range of columns, or the numbers at the end of its names.

    Raises:
      ValueError: the two columns are not a range.
    """
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
    """A string feature that becomes ids, by a vocabulary."""

    top_k: Positive | None = None
    frequency_threshold: Positive | None = None
    oov_buckets: Positive = 1

    @property
    def vocabulary(self) -> Vocabulary | None:
        return Vocabulary(self.name, self.top_k, self.frequency_threshold)
