"""Defines what all parts of a schema are made of: strict values, thresholds, raw columns, and the inputs of a model."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
import struct
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from schemas.spec.words import canonical, word_of

MAX_COLUMNS = 100_000  # of a row; [p0, p999999999] is short to write and would fill the memory

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
MAX_NAME = 200  # characters of a feature's name, after which files are named


def _as_text(value: object) -> object:
    """YAML reads `values: [1, 2]` as integers; tokens are text, so a plain integer is taken as its digits."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_word(value: object) -> object:
    """The spelling of a category, a key or a class, which YAML may read as a whole number or a truth value.

    White space around it is left out, as when data is read.
    """
    if isinstance(value, str):
        return canonical(value.strip(" \t\n\r\v\f"))
    return word_of(value) if isinstance(value, int) or (isinstance(value, float) and value.is_integer()) else value


def _with_words(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """Tokens of missing values, and how data spells them where it has words: for 99.0 also 99."""
    return tuple(dict.fromkeys((*tokens, *map(canonical, tokens))))


def _check_name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("a feature's name is a letter, then letters, digits, '_', '-' or '.'")
    return value


def as_float32(value: float) -> float:
    """Returns the number as data and graphs hold it; infinite if it is out of a float32's range."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


Token = Annotated[str, BeforeValidator(_as_text)]
Word = Annotated[str, BeforeValidator(_as_word)]
MissingTokens = Annotated[tuple[Token, ...], AfterValidator(_with_words)]
Name = Annotated[str, Field(min_length=1), BeforeValidator(lambda v: _check_name(v) if isinstance(v, str) else v)]
ColumnRef = Annotated[int, Field(ge=0)] | str  # a position counted from 0, or a header's name
Positive = Annotated[int, Field(gt=0)]


class Strict(BaseModel):
    """A frozen value that refuses unknown keys and does not convert types."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


class Splitting(Strict):
    """How records are divided: a field for each split, 0 or None where there is none."""

    ALL: ClassVar[tuple[str, ...]] = ("train", "eval", "test")

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that there are."""
        return tuple(split for split in self.ALL if getattr(self, split) not in (None, 0))


def check_shares(train: float, evaluation: float, test: float) -> None:
    """Refuses shares of splits that do not sum to 1, or leave nothing for training."""
    total = train + evaluation + test
    if abs(total - 1) > 1e-9:
        shares = f"train {train:g}, eval {evaluation:g} and test {test:g}"  # one of them may be a default
        raise ValueError(f"{shares} sum to {total:g}; the sum must be 1")
    if train == 0:
        raise ValueError("train: 0 leaves no data for training")


class Declared(Strict):
    """What a schema file declares."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the canonical JSON: the same for two files that declare the same."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


_ABSENT = {
    "missing_value": "which means missing, and the schema gives no `missing:` for it",
    "missing_label": "which means missing; expected a label",
}


@dataclasses.dataclass(frozen=True)
class CellError:
    """A reason code, and what was found and expected."""

    reason: str
    detail: str


def shown(value: bytes) -> str:
    """Returns a value for a message: in quotes, cut where it is long."""
    head = value[:60]
    try:
        text = repr(head.decode("utf-8"))
    except UnicodeDecodeError:
        text = repr(head)[1:]
    return text + ("..." if len(value) > 60 else "")


def absent_value(value: bytes, reason: str) -> CellError:
    """Returns the error that a value means missing: missing_value or missing_label."""
    return CellError(reason, f"found {shown(value)}, {_ABSENT[reason]}")


@dataclasses.dataclass(frozen=True)
class RawColumn:
    """One raw feature.

    float32 is `[batch]`, or `[batch, width]` where `width` is given; NaN is missing.
    string is `[batch]`, untrimmed as it stands in the file; '' and the schema's tokens are missing. What a graph takes
    may also be int64, or `varying`: any number of values for each row, as a sparse tensor.
    """

    name: str
    dtype: Literal["float32", "int64", "string"]
    width: int | None = None
    varying: bool = False

    @property
    def shape(self) -> list[int]:
        """A record's: `[]` or `[width]`."""
        return [] if self.width is None else [self.width]


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """Which words of the train split a vocabulary holds.

    Attributes:
      name: of the feature, and of the file.
      top_k: the most words.
      frequency_threshold: the least count of a word.
      by_row: words are counted by the rows that hold them, and these counts are kept beside the words.
    """

    name: str
    top_k: int | None = None
    frequency_threshold: int | None = None
    by_row: bool = False


@dataclasses.dataclass(frozen=True)
class Dense:
    """A float32 feature: `[batch]`, or `[batch, width]` where a record holds a vector.

    `z_score`: whether its values are deviations from a mean, in standard deviations.
    """

    name: str
    width: int = 1
    z_score: bool = False


@dataclasses.dataclass(frozen=True)
class Ids:
    """An int64 feature whose values are ids in [0, count).

    `[batch]` where `length` is 1, `[batch, length]` where each position has ids of its own kind (`positional`) or holds
    the next token of a text (0 is padding), and a SparseTensor where `length` is None (a bag of ids). The ids of a bag
    have weights, if `weights` names the float32 feature that holds them, in the same order. `ordered`: a larger id
    stands for larger numbers, as those of buckets do.
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
    """A distance above which a job or a comparison warns, one above which it fails, or both."""

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
    """Returns the thresholds that are declared; a number alone is the one to fail above."""
    if declared is None or declared == "none":
        return None
    return declared if isinstance(declared, Limits) else Limits(fail=declared)


Share = Annotated[float, Field(ge=0, le=1)]
AtLeastZero = Annotated[float, Field(ge=0)]
NOT_METRICS = ("margin", "slices", "slice_margin")


class PromoteRules(Strict):
    """What `millrace promote` asks of an export.

    It says nothing about the data, so it is no part of a schema's fingerprint: it may change without writing a dataset
    again. A metric's value is the least that is accepted; of a loss or an error, the most.

    Attributes:
      margin: how much worse than the model in service an export may be: an absolute difference, of losses and errors a
        share of the value in service.
      slices: features by whose values the rows are divided; on none of the parts may an export surely be worse.
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
        """The metrics that have a threshold, with it."""
        values = {name: getattr(self, name) for name in type(self).model_fields if name not in NOT_METRICS}
        return {name: value for name, value in values.items() if value is not None}
