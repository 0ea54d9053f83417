"""The kinds of strings, and of columns that no model reads.

Strings are `bool`, `category`, `cross` and `text`. No model reads `ignore`, `weight` and `key`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from schemas.errors import did_you_mean
from schemas.spec.forms import CellError, ColumnRef, Dense, Ids, Input, Name, Positive, Vocabulary, Word, shown
from schemas.spec.kinds.base import (
    ComparedItem,
    FeatureKind,
    FromWords,
    Ranged,
    ReadAsNumbers,
    ReadAsStrings,
    Single,
)

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


class Bool(Single, ReadAsStrings, ComparedItem, FeatureKind):
    """A string that becomes 0.0 or 1.0. Letter case does not matter."""

    kind: Literal["bool"]
    true: tuple[Word, ...] = ("true", "t", "yes", "y", "1")
    false: tuple[Word, ...] = ("false", "f", "no", "n", "0")
    missing: bool | None = None

    @model_validator(mode="after")
    def _true_is_not_false(self) -> Bool:
        both = sorted({t.lower() for t in self.true} & {f.lower() for f in self.false})
        if both:
            raise ValueError(f"`true` and `false` both contain {both[0]!r}")
        return self

    def inputs(self, words: int) -> tuple[Input, ...]:
        return (Dense(self.name),)

    def read_values(self, values: pa.BinaryArray) -> list[bytes | CellError]:
        """Returns b"1" or b"0" for each value, or the error not_a_bool for other words."""
        tokens = {t.lower().encode(): b"0" for t in self.false}
        tokens |= {t.lower().encode(): b"1" for t in self.true}
        expected = ", ".join((*self.true, *self.false))

        def read(value: bytes) -> bytes | CellError:
            token = tokens.get(_lower(value))
            if token is None:
                return CellError("not_a_bool", f"found {shown(value)}, expected one of {expected}")
            return token

        return [read(value) for value in values.to_pylist()]


def _lower(value: bytes) -> bytes:
    """Returns a text in lower case; unchanged if it is not UTF-8."""
    try:
        return value.decode("utf-8").lower().encode()
    except UnicodeDecodeError:
        return value


class Category(FromWords):
    """A string that becomes an id: by a vocabulary of the train split, by a list of values, or by a hash."""

    kind: Literal["category"]
    values: tuple[Word, ...] | None = None
    hash_buckets: Positive | None = None
    missing: Word | None = None  # the value that replaces a missing one; None: a missing value rejects its row

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

    @property
    def vocabulary(self) -> Vocabulary | None:
        return super().vocabulary if self.values is None and self.hash_buckets is None else None

    @property
    def listed(self) -> tuple[str, ...] | None:
        return self.values

    @property
    def crossable(self) -> bool:
        return True

    def inputs(self, words: int) -> tuple[Input, ...]:
        if self.hash_buckets is not None:
            return (Ids(self.name, self.hash_buckets),)
        return (Ids(self.name, (words if self.values is None else len(self.values)) + self.oov_buckets),)

    def not_meant(self) -> Iterator[tuple[str, str]]:
        filling = self.missing if self.in_vocabulary else None
        if filling is not None and (not filling or "\n" in filling or "\r" in filling):
            message = "a vocabulary holds neither an empty value nor one with a line end; give another, "
            yield "missing", f"found {filling!r}; {message}such as '<unknown>'"


class CategoryLabel(Single, ReadAsStrings, ComparedItem):
    """A label that is a class: one of the given values, or of a vocabulary of the train split."""

    kind: Literal["category"]
    values: Annotated[tuple[Word, ...], Field(min_length=2)] | None = None
    aliases: dict[Word, Word] = Field(default_factory=dict)  # other spellings, each with the value that it stands for
    # With "balanced", each class has the same weight in training. Changes no record, so it is not in a fingerprint.
    class_weights: Literal["balanced"] | None = Field(default=None, exclude=True)
    # The class whose precision, recall and curves are computed, if there are two classes; None: the rarer one. Changes
    # no record, so it is not in a fingerprint.
    positive: Word | None = Field(default=None, exclude=True)

    @model_validator(mode="after")
    def _aliases_name_values(self) -> CategoryLabel:
        if self.values is not None:
            if self.positive is not None and self.positive not in self.values:
                hint = did_you_mean(self.positive, self.values)
                raise ValueError(f"positive: {self.positive!r} is not one of `values`{hint}")
            if self.positive is not None and len(self.values) != 2:
                raise ValueError(f"`positive` is for two classes, and `values` has {len(self.values)}")
            if len(set(self.values)) != len(self.values):
                raise ValueError("`values` must contain each value only once")
            unknown = sorted(set(self.aliases.values()) - set(self.values))
            if unknown:
                raise ValueError(f"aliases map to {unknown}, which `values` does not contain")
        return self

    @property
    def if_missing(self) -> str:
        return "missing_label"

    @property
    def vocabulary(self) -> Vocabulary | None:
        return Vocabulary(self.name) if self.values is None else None


class Cross(FeatureKind):
    """The combination of the ids of other features, hashed into buckets."""

    kind: Literal["cross"]
    of: Annotated[tuple[Name, ...], Field(min_length=2)]
    buckets: Annotated[int, Field(ge=2)]

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        return ()

    @property
    def width(self) -> int:
        return 0

    @property
    def raw(self) -> None:
        return None

    def inputs(self, words: int) -> tuple[Input, ...]:
        return (Ids(self.name, self.buckets, crossed=True),)

    def not_meant(self) -> Iterator[tuple[str, str]]:
        for name in sorted({name for name in self.of if self.of.count(name) > 1}):
            yield "of", f"{name!r} is crossed with itself; name each feature only once"


MAX_LENGTH = 100_000  # the most ids of a text
MAX_BYTES = 100_000  # default for the size of a text: its n-grams take some 440 times as much memory
MAX_NGRAM = 10  # the most words or characters of an n-gram
MOST_NGRAMS, LEAST_TEXTS = 100_000, 2  # the default `top_k` and `frequency_threshold` of n-grams


def _in_order(lengths: tuple[int, int]) -> tuple[int, int]:
    if lengths[0] > lengths[1]:
        raise ValueError(f"[{lengths[0]}, {lengths[1]}]: give the shortest n-gram's length first, then the longest's")
    return lengths


NgramLength = Annotated[int, Field(ge=1, le=MAX_NGRAM)]
NgramLengths = Annotated[tuple[NgramLength, NgramLength], AfterValidator(_in_order)]


class Text(FromWords):
    """A string that is split at white space into words, which become ids.

    With `length`, a record has so many ids, padded with 0. Without it, a record has a bag of any number of ids. With
    `ngrams` or `characters`, the ids are those of the distinct n-grams in the vocabulary, with their TF-IDF weights.
    """

    splits_into_words: ClassVar[bool] = True

    kind: Literal["text"]
    lower: bool = True
    length: Annotated[int, Field(gt=0, le=MAX_LENGTH)] | None = None  # None: a bag of ids (variable length)
    ngrams: NgramLengths | None = None  # the shortest and the longest n-gram, in words
    characters: NgramLengths | None = None  # the shortest and the longest n-gram of a word's characters
    max_bytes: Positive = MAX_BYTES  # a longer text rejects its row

    @model_validator(mode="after")
    def _ngrams_are_a_bag(self) -> Text:
        keys = [key for key in ("length", "oov_buckets") if key in self.model_fields_set]
        if self.weighted and keys:
            raise ValueError(
                f"`{keys[0]}` does not go with `ngrams` or `characters`: n-grams are a bag, without unknown ones"
            )
        return self

    @property
    def weighted(self) -> bool:
        """Whether the text becomes weighted n-grams."""
        return self.ngrams is not None or self.characters is not None

    @property
    def weights_name(self) -> str:
        """The name of the feature that holds the weights of the n-grams."""
        return f"{self.name}_tfidf"

    @property
    def vocabulary(self) -> Vocabulary:
        if not self.weighted:
            return Vocabulary(self.name, self.top_k, self.frequency_threshold)
        return Vocabulary(self.name, self.top_k or MOST_NGRAMS, self.frequency_threshold or LEAST_TEXTS, by_row=True)

    @property
    def made(self) -> tuple[str, ...]:
        return (self.name, self.weights_name) if self.weighted else (self.name,)

    @property
    def if_missing(self) -> None:
        return None

    @property
    def stored_length(self) -> int:
        return self.length or 1

    def inputs(self, words: int) -> tuple[Input, ...]:
        if self.weighted:
            return (Ids(self.name, 1 + words, None, weights=self.weights_name),)
        return (Ids(self.name, 1 + words + self.oov_buckets, self.length),)


class SetAside(FeatureKind):
    """A feature that no model reads, and that the transform does not change."""

    is_input: ClassVar[bool] = False

    def inputs(self, words: int) -> tuple[Input, ...]:
        return ()


class Ignore(Ranged, SetAside):
    """Columns of the file that are not a feature."""

    kind: Literal["ignore"]

    @property
    def raw(self) -> None:
        return None


class Weight(Single, ReadAsNumbers, SetAside):
    """The weight of an example in training: a float32 of 0 or more."""

    kind: Literal["weight"]

    def row_errors(self, rows: np.ndarray) -> Iterator[tuple[int, CellError]]:
        import numpy as np

        for row in np.flatnonzero(rows[:, 0] < 0).tolist():
            yield row, CellError("negative_weight", f"found {rows[row, 0]:g}, expected 0 or more")


class Key(Single, ReadAsStrings, SetAside):
    """A string that identifies an example. It is passed on to the records and to the predictions."""

    kind: Literal["key"]

    @property
    def if_missing(self) -> None:
        return None
