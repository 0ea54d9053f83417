"""Defines the parts from which schemas are made: strict values, thresholds, raw columns, and the inputs of a model."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import struct
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from schemas.spec.words import canonical, word_of

MAX_COLUMNS = 100_000  # a row has at most so many: [p0, p999999999] is quickly typed and would fill the memory

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
MAX_NAME = 200  # the most characters of a feature's name, because files are named after features


def _as_text(value: object) -> object:
    """Turns an integer into text. Tokens are text, but YAML reads `values: [1, 2]` as integers."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_word(value: object) -> object:
    """Returns the canonical spelling of a category, a key or a class (see `schemas.spec.words`).

    YAML may read such a value as a number or a truth value. White space around a text is removed, as when data is read.
    """
    if isinstance(value, str):
        return canonical(value.strip(" \t\n\r\v\f"))
    return word_of(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else value


def _with_words(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Adds the canonical spellings to some tokens of missing values: for the token 99.0 also 99."""
    return tuple(dict.fromkeys((*tokens, *map(canonical, tokens))))


def _check_name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("a feature's name is a letter, then letters, digits, '_', '-' or '.'")
    return value


def as_float32(value: float) -> float:
    """Rounds a number to float32, the precision of data and graphs. A number out of range becomes infinite."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


Token = Annotated[str, BeforeValidator(_as_text)]
Word = Annotated[str, BeforeValidator(_as_word)]
MissingTokens = Annotated[tuple[Token, ...], AfterValidator(_with_words)]
Name = Annotated[str, Field(min_length=1), BeforeValidator(lambda v: _check_name(v) if isinstance(v, str) else v)]
ColumnRef = Annotated[int, Field(ge=0)] | str  # a column: its position, counted from 0, or its name in the header
Positive = Annotated[int, Field(gt=0)]


class Strict(BaseModel):
    """The base class of all values in a schema: frozen, refuses unknown keys, and does not convert types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Splitting(Strict):
    """How records are divided into splits.

    Subclasses have a field for each split; 0 or None means that there is no such split.
    """

    ALL: ClassVar[tuple[str, ...]] = ("train", "eval", "test")

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits that exist."""
        return tuple(split for split in self.ALL if getattr(self, split) not in (None, 0))


def check_shares(train: float, evaluation: float, test: float) -> None:
    """Refuses shares of splits that do not sum to 1, or that leave no data for training.

    Raises:
      ValueError: the shares are refused.
    """
    total = train + evaluation + test
    if abs(total - 1) > 1e-9:
        shares = f"train {train:g}, eval {evaluation:g} and test {test:g}"  # one of them may be a default
        raise ValueError(f"{shares} sum to {total:g}; the sum must be 1")
    if train == 0:
        raise ValueError("train: 0 leaves no data for training")


class Declared(Strict):
    """The base class of schemas: everything that a schema file declares."""

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the schema as JSON, in hex. It is equal for two files that declare the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


_ABSENT = {
    "missing_value": "which means missing, and the schema gives no `missing:` for it",
    "missing_label": "which means missing; expected a label",
}


@dataclasses.dataclass(frozen=True)
class CellError:
    """Why a cell is rejected: a reason code, and a text about what was found and expected."""

    reason: str
    detail: str


def shown(value: bytes) -> str:
    """Returns a value in quotes for a message. A long value is cut."""
    head = value[:60]
    try:
        text = repr(head.decode("utf-8"))
    except UnicodeDecodeError:
        text = repr(head)[1:]
    return text + ("..." if len(value) > 60 else "")


def absent_value(value: bytes, reason: str) -> CellError:
    """Returns the error about a value that means missing.

    Args:
      value: the value.
      reason: the reason code, missing_value or missing_label.
    """
    return CellError(reason, f"found {shown(value)}, {_ABSENT[reason]}")


@dataclasses.dataclass(frozen=True)
class RawColumn:
    """One column of a batch of raw data, before the transform: the values of one feature.

    A float32 column is `[batch]`, or `[batch, width]` if `width` is given; NaN means missing. A string column is
    `[batch]`, with each text as it stands in the file, spaces included; '' and the schema's tokens mean missing.
    Columns that a graph takes may also be int64. A column that is `varying` has any number of values for each row, as a
    sparse tensor.
    """

    name: str
    dtype: Literal["float32", "int64", "string"]
    width: int | None = None
    varying: bool = False

    @property
    def shape(self) -> list[int]:
        """The shape of the value in one record: `[]` or `[width]`."""
        return [] if self.width is None else [self.width]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Which words of the train split a vocabulary contains.

    Attributes:
      name: the name of the feature, and of the vocabulary's file.
      top_k: the largest number of words; None: unlimited.
      frequency_threshold: the smallest count of a word in the vocabulary; None: no limit.
      by_row: whether a word's count is the number of rows that contain it. These counts are stored with the words.
    """

    name: str
    top_k: int | None = None
    frequency_threshold: int | None = None
    by_row: bool = False


@dataclasses.dataclass(frozen=True)
class Dense:
    """A float32 feature that a model reads: `[batch]`, or `[batch, width]` if a record holds a vector.

    `z_score` says whether the values are deviations from the mean, in standard deviations.
    """

    name: str
    width: int = 1
    z_score: bool = False


@dataclasses.dataclass(frozen=True)
class Ids:
    """An int64 feature that a model reads, with ids from 0 to count - 1.

    Attributes:
      name: the name of the feature.
      count: the number of different ids.
      length: the number of ids in a record. 1: the feature is `[batch]`. More: it is `[batch, length]`. None: a record
        has any number of ids, in any order (a bag of ids), and the feature is a SparseTensor.
      positional: whether each of the `length` positions has ids with a meaning of its own. Otherwise the positions hold
        the tokens of a text one after the other, and 0 is padding.
      crossed: whether the ids are hashed combinations of other features.
      weights: for a bag, the float32 feature that holds the weights of the ids, in the same order; None: no weights.
      ordered: whether a larger id stands for larger numbers, as with buckets.
    """

    name: str
    count: int
    length: int | None = 1
    positional: bool = False
    crossed: bool = False
    weights: str | None = None
    ordered: bool = False


Input = Dense | Ids


Threshold = Annotated[float, Field(gt=0, le=1)]


class Limits(Strict):
    """Thresholds of a distance: a job or a comparison warns above `warn`, and fails above `fail`.

    One may be left out.
    """

    warn: Threshold | None = None
    fail: Threshold | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Limits:
        if self.warn is None and self.fail is None:
            raise ValueError("give `warn`, `fail` or both, each more than 0 and at most 1")
        if self.warn is not None and self.fail is not None and not self.warn < self.fail:
            raise ValueError(f"warn: {self.warn:g} must be less than fail: {self.fail:g}")
        return self


Drift = Threshold | Limits | Literal["none"]


def limits_of(declared: Drift | None) -> Limits | None:
    """Returns the declared thresholds, or None.

    A single number is the threshold above which a job or a comparison fails.
    """
    if declared is None or declared == "none":
        return None
    return declared if isinstance(declared, Limits) else Limits(fail=declared)


Share = Annotated[float, Field(ge=0, le=1)]
AtLeastZero = Annotated[float, Field(ge=0)]
NOT_METRICS = ("margin", "slices", "slice_margin")


class PromoteRules(Strict):
    """The rules by which `millrace promote` accepts an export.

    The rules say nothing about the data. So they are no part of a schema's fingerprint, and may be changed without
    writing the dataset again.

    Each metric may have a threshold: the smallest accepted value, or for losses and errors the largest.

    Attributes:
      margin: how much worse than the model in service an export may be. It is an absolute difference, but for losses
        and errors a share of the value in service.
      slices: features that divide the rows into parts, one part for each value. An export must not be clearly worse on
        any part.
      slice_margin: the margin on each part; None: three times `margin`.
    """

    accuracy: Share | None = None
    balanced_accuracy: Share | None = None
    macro_f1: Share | None = None
    auc: Share | None = None
    log_loss: AtLeastZero | None = None
    r2: Annotated[float, Field(le=1)] | None = None
    root_mean_squared_error: AtLeastZero | None = None
    mean_absolute_error: AtLeastZero | None = None
    margin: AtLeastZero = 0.01
    slices: tuple[Name, ...] = ()
    slice_margin: AtLeastZero | None = None

    @model_validator(mode="after")
    def _each_slice_once(self) -> PromoteRules:
        if len(set(self.slices)) != len(self.slices):
            raise ValueError("`slices` must name each feature once")
        return self

    @property
    def thresholds(self) -> dict[str, float]:
        """The thresholds by metric, for the metrics that have one."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in NOT_METRICS}
        return {name: value for name, value in values.items() if value is not None}
