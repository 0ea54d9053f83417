"""The feature kinds that a schema file can declare, as frozen, strictly checked values."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_COLUMNS = 100_000  # of a row; [p0, p999999999] is short to write and would fill the memory
MAX_BUCKETS = 100_000  # of quantiles
MAX_LENGTH = 100_000  # ids of a text

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
NUMBERED = re.compile(r"(.*?)(?<![0-9])([0-9]{1,18})", re.DOTALL)


def _as_text(value: object) -> object:
    """YAML reads `values: [1, 2]` as integers; tokens are text, so a plain integer is taken as its digits."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("a feature's name is a letter, then letters, digits, '_', '-' or '.'")
    return value


def is_word(value: str) -> bool:
    """Whether a vocabulary can hold the value: its file has one to a line, and none that is empty."""
    return bool(value) and "\n" not in value and "\r" not in value


Token = Annotated[str, BeforeValidator(_as_text)]
Name = Annotated[str, Field(min_length=1), BeforeValidator(lambda v: _check_name(v) if isinstance(v, str) else v)]
ColumnRef = Annotated[int, Field(ge=0)] | str  # a position counted from 0, or a header's name
Positive = Annotated[int, Field(gt=0)]


class Strict(BaseModel):
    """A frozen value that refuses unknown keys and does not convert types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class _Single(Strict):
    name: Name
    column: ColumnRef | None = None

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        """The one raw column this is read from: `column`, or else the column called like the feature."""
        return (self.name if self.column is None else self.column,)

    @property
    def width(self) -> int:
        """How many columns these are."""
        return 1


class _Ranged(Strict):
    name: Name
    column: ColumnRef | None = None
    columns: tuple[ColumnRef, ColumnRef] | None = None  # first and last, both included

    @model_validator(mode="after")
    def _one_of_column_and_columns(self) -> _Ranged:
        if self.column is not None and self.columns is not None:
            raise ValueError("give either `column` or `columns`, not both")
        count = len(self._numbers)  # raises on a range that cannot be read
        if count > MAX_COLUMNS:
            raise ValueError(f"`columns` spans {count:,} columns; a row has {MAX_COLUMNS:,} at most")
        return self

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        """The raw columns, in order: positions first..last, or names prefix<m>..prefix<n>."""
        if self.columns is None:
            return (self.name if self.column is None else self.column,)
        first = NUMBERED.fullmatch(self.columns[0]) if isinstance(self.columns[0], str) else None
        if first is None:
            return tuple(self._numbers)
        digits = len(first[2]) if first[2][0] == "0" else 0
        return tuple(f"{first[1]}{i:0{digits}d}" for i in self._numbers)

    @property
    def width(self) -> int:
        """How many columns these are."""
        return 1 if self.columns is None else len(self._numbers)

    @property
    def _numbers(self) -> range:
        """The positions, or the numbers behind the names' prefix, told without making them; ValueError: no range."""
        if self.columns is None:
            return range(0)
        first, last = self.columns
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


class Scale(Strict):
    """(x - low) / (high - low), by bounds that the schema gives."""

    scale: tuple[float, float]

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Scale:
        if not self.scale[0] < self.scale[1]:
            raise ValueError("scale: [low, high] needs low < high")
        return self


class Bucketize(Strict):
    """A bucket's number: by this many quantiles of the train split, or by given boundaries."""

    bucketize: Annotated[int, Field(ge=2, le=MAX_BUCKETS)] | tuple[float, ...]

    @model_validator(mode="after")
    def _boundaries_rise(self) -> Bucketize:
        if isinstance(self.bucketize, tuple) and (
            not self.bucketize or any(b <= a for a, b in zip(self.bucketize, self.bucketize[1:], strict=False))
        ):
            raise ValueError("bucketize: boundaries must be strictly increasing, and there must be at least one")
        return self


class Numeric(_Ranged):
    """A float32, or a vector of them when `columns` names several. Raw: NaN is missing."""

    kind: Literal["numeric"]
    transform: Literal["z_score", "min_max", "log", "none"] | Scale | Bucketize = "z_score"
    missing: Literal["mean", "median"] | float | None = None  # None: a missing value rejects its row
    indicator: bool = False  # adds the feature <name>_missing, 1.0 where the value was missing

    @model_validator(mode="after")
    def _indicator_needs_a_filling(self) -> Numeric:
        if self.indicator and self.missing is None:
            raise ValueError("indicator: true needs `missing:` (mean, median or a number) to replace the missing value")
        return self


class _Vocabulary(_Single):
    top_k: Positive | None = None
    frequency_threshold: Positive | None = None
    oov_buckets: Positive = 1


class Category(_Vocabulary):
    """A string to an id: by a vocabulary of the train split, by given values, or by hash."""

    kind: Literal["category"]
    values: tuple[Token, ...] | None = None
    hash_buckets: Positive | None = None
    missing: Token | None = None  # the value that a missing one becomes; None: a missing value rejects its row

    @property
    def in_vocabulary(self) -> bool:
        """Whether its ids are of a vocabulary that the train split gives."""
        return self.values is None and self.hash_buckets is None

    @model_validator(mode="after")
    def _one_way_to_ids(self) -> Category:
        if self.values is not None and self.hash_buckets is not None:
            raise ValueError("give `values` or `hash_buckets`, not both")
        if (self.values is not None or self.hash_buckets is not None) and (self.top_k or self.frequency_threshold):
            raise ValueError(
                "`top_k` and `frequency_threshold` belong to a vocabulary, not to `values` or hash buckets"
            )
        if self.values is not None and (not self.values or len(set(self.values)) != len(self.values)):
            raise ValueError("`values` must contain at least one value, and each value only once")
        return self


class OneHot(Strict):
    """A group of 0/1 columns of which exactly one is 1, to the position of the 1."""

    name: Name
    kind: Literal["one_hot"]
    columns: tuple[ColumnRef, ColumnRef]

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        return _Ranged(name=self.name, columns=self.columns).refs

    @property
    def width(self) -> int:
        """How many columns these are."""
        return _Ranged(name=self.name, columns=self.columns).width

    @model_validator(mode="after")
    def _at_least_two(self) -> OneHot:
        if self.width < 2:
            raise ValueError("a one_hot group needs two or more columns")
        return self


class Bool(_Single):
    """A string to 0.0 or 1.0; letter case does not count."""

    kind: Literal["bool"]
    true: tuple[Token, ...] = ("true", "t", "yes", "y", "1")
    false: tuple[Token, ...] = ("false", "f", "no", "n", "0")
    missing: bool | None = None

    @model_validator(mode="after")
    def _true_is_not_false(self) -> Bool:
        both = sorted({t.lower() for t in self.true} & {f.lower() for f in self.false})
        if both:
            raise ValueError(f"`true` and `false` both contain {both[0]!r}")
        return self


class Cross(Strict):
    """The combination of the ids of other features, hashed into buckets."""

    name: Name
    kind: Literal["cross"]
    of: Annotated[tuple[Name, ...], Field(min_length=2)]
    buckets: Annotated[int, Field(ge=2)]

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        return ()


class Text(_Vocabulary):
    """A string split at white space into token ids: `length` of them, padded with 0, or a bag of any number."""

    kind: Literal["text"]
    lower: bool = True
    length: Annotated[int, Field(gt=0, le=MAX_LENGTH)] | None = None  # None: a bag of ids (variable length)


class Ignore(_Ranged):
    """Columns that are in the file and are no feature."""

    kind: Literal["ignore"]


class Weight(_Single):
    """The example's weight, a float32 of 0 or more."""

    kind: Literal["weight"]


class Key(_Single):
    """A string that names the example; it passes through to the records and the predictions."""

    kind: Literal["key"]


Feature = Annotated[
    Numeric | Category | OneHot | Bool | Cross | Text | Ignore | Weight | Key, Field(discriminator="kind")
]


class CategoryLabel(_Single):
    """A class: one of the given values, or of the vocabulary of the train split."""

    kind: Literal["category"]
    values: Annotated[tuple[Token, ...], Field(min_length=2)] | None = None
    aliases: dict[str, Token] = {}  # other spellings, each with the value that it stands for

    @model_validator(mode="after")
    def _aliases_name_values(self) -> CategoryLabel:
        if self.values is not None:
            if len(set(self.values)) != len(self.values):
                raise ValueError("`values` must contain each value only once")
            unknown = sorted(set(self.aliases.values()) - set(self.values))
            if unknown:
                raise ValueError(f"aliases map to {unknown}, which `values` does not contain")
        return self


class NumericLabel(_Single):
    """A float32 to be predicted by regression."""

    kind: Literal["numeric"]


Label = Annotated[CategoryLabel | NumericLabel, Field(discriminator="kind")]
