"""Declares the schema of a dataset of rows, and derives whatever follows from it alone.

A schema file becomes a `Schema`. From this follow the raw columns of a decoded batch, the columns that a transform's
graph takes, and the columns that a serving request sends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from schemas.spec.features import Bool, Category, ComparedItem, Cross, Feature, Key, Label, Numeric, Weight
from schemas.spec.forms import (
    MAX_COLUMNS,
    MAX_NAME,
    ColumnRef,
    Declared,
    Drift,
    Limits,
    MissingTokens,
    Name,
    PromoteRules,
    RawColumn,
    Share,
    Splitting,
    Strict,
    check_shares,
    limits_of,
)

SPLITS = Splitting.ALL

RowFormatName = Literal["csv"]  # the keys of `schemas.formats.ROW_FORMATS`

Mistake = tuple[tuple[str | int, ...], str]  # the path of keys that leads to it, and what is wrong


class Misplaced(ValueError):
    """Mistakes that involve several fields, each with the place in the file where it is reported."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("; ".join(message for _, message in mistakes))
        self.mistakes = mistakes


class CsvOptions(Strict):
    """The key `csv` of a schema: how the CSV files are written."""

    header: Literal["auto", "present", "none"] = "auto"  # auto: the first line is a header if it has the columns' names
    columns: tuple[str, ...] | None = None  # the names of the columns, in order, if the files have no header
    num_columns: Annotated[int, Field(gt=0, le=MAX_COLUMNS)] | None = (
        None  # the number of columns, for files without a header if `columns` is not given
    )
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    quote: Annotated[str, Field(min_length=1, max_length=1)] = '"'
    quoted_newlines: bool = False  # whether quoted fields may contain line ends; if not, each line is a record
    missing: MissingTokens = ("",)  # compared after trimming
    encoding: Literal["utf-8", "utf-16", "latin-1"] = "utf-8"

    @model_validator(mode="after")
    def _single_byte_signs(self) -> CsvOptions:
        for key, sign in (("delimiter", self.delimiter), ("quote", self.quote)):
            if not sign.isascii() or sign in "\r\n":
                raise ValueError(f"{key}: {sign!r} is not one ASCII character other than a line end")
        if self.delimiter == self.quote:
            raise ValueError("delimiter and quote must differ")
        if self.columns is not None and self.num_columns is not None and len(self.columns) != self.num_columns:
            raise ValueError(f"`columns` names {len(self.columns)} columns, but num_columns is {self.num_columns}")
        if self.columns is not None and len(set(self.columns)) != len(self.columns):
            raise ValueError("columns must name each column once")
        return self

    @property
    def width(self) -> int | None:
        """The number of columns of a row; None if the schema does not say."""
        return len(self.columns) if self.columns is not None else self.num_columns


class HashSplit(Splitting):
    """Divides rows into splits with given shares, by a stable hash of the whole row or of the named features."""

    by: Literal["row"] | tuple[Name, ...] = "row"
    train: Share = 0.8
    eval: Share = 0.1
    test: Share = 0.1

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> HashSplit:
        check_shares(self.train, self.eval, self.test)
        return self


class FileSplit(Splitting):
    """Divides rows by file: a pattern for each split, matched against the end of the file's path."""

    by: Literal["file"]
    train: str
    eval: str | None = None
    test: str | None = None


def _split_tag(value: object) -> str:
    """Returns which class a value of the key `split` belongs to."""
    by = value.get("by") if isinstance(value, dict) else getattr(value, "by", None)
    return "file" if by == "file" else "hash"


Split = Annotated[Annotated[HashSplit, Tag("hash")] | Annotated[FileSplit, Tag("file")], Discriminator(_split_tag)]


class Schema(Declared):
    """The schema of a dataset of rows: its files, features, label and splits."""

    records: ClassVar[str] = "rows"  # the word for the dataset's records
    examples: ClassVar[str] = "rows"  # the word for what models are trained on

    name: Name
    format: RowFormatName
    csv: CsvOptions = CsvOptions()
    features: Annotated[tuple[Feature, ...], Field(min_length=1)]
    label: Label
    split: Split = HashSplit()
    promote: PromoteRules = Field(default=PromoteRules(), exclude=True)  # not in the fingerprint
    drift: Drift | None = Field(default=None, exclude=True)  # for all features; changes no record: no fingerprint

    @model_validator(mode="after")
    def _names_and_references(self) -> Schema:
        total = sum(feature.width for feature in self.features)
        if total > MAX_COLUMNS:  # checked first, because the other checks go through all columns
            raise Misplaced(((("features",), f"read {total:,} columns together; a row has {MAX_COLUMNS:,} at most"),))
        mistakes = [*self._names(), *self._crosses(), *self._split_columns(), *self._columns(), *self._slices()]
        mistakes += self._not_meant()
        if mistakes:
            raise Misplaced(tuple(mistakes))
        return self

    def _names(self) -> Iterator[Mistake]:
        """Yields names that are used twice, the lack of any input for a model, and a second weight or key."""
        names: set[str] = set()
        for path, item in self._items():
            for name in item.made:
                if name in names:
                    yield (*path, "name"), f"the name {name!r} is used twice"
                names.add(name)
        if not self.inputs:
            yield ("features",), "every feature is ignored, a key or a weight: a model would have no input"
        for kind in (Weight, Key):
            for i in [i for i, f in enumerate(self.features) if isinstance(f, kind)][1:]:
                yield ("features", i), f"a dataset has one {kind.__name__.lower()} at most"

    def _crosses(self) -> Iterator[Mistake]:
        """Yields features in a cross that cannot be crossed."""
        crossable = {f.name for f in self.features if f.crossable}
        for i, f in enumerate(self.features):
            if isinstance(f, Cross):
                for name in f.of:
                    if name not in crossable:
                        message = f"{name!r} is not a category, one_hot or bucketized feature of one column"
                        yield ("features", i, "of"), message

    def _split_columns(self) -> Iterator[Mistake]:
        """Yields names under `split: by` that are not features read from a column."""
        if isinstance(self.split, HashSplit) and self.split.by != "row":
            feature_names = {item.name for item in self.items if item.refs}
            for name in self.split.by:
                if name not in feature_names:
                    yield ("split", "by"), f"{name!r} is not a feature that is read from a column"

    def _slices(self) -> Iterator[Mistake]:
        """Yields names under `promote: slices` that are not inputs of a model."""
        input_names = {f.name for f in self.inputs if f.raw is not None}
        for i, name in enumerate(self.promote.slices):
            if name not in input_names:
                yield ("promote", "slices", i), f"{name!r} is not a feature that a model reads from a column"

    def _not_meant(self) -> Iterator[Mistake]:
        """Yields settings that are valid, but surely not intended."""
        for path, item in self._items():
            yield from (((*path, key), message) for key, message in item.not_meant())
            if len(item.name) > MAX_NAME:
                message = f"{item.name[:30]!r}... has {len(item.name)} characters; expected at most {MAX_NAME}"
                yield (*path, "name"), f"{message}, since files are named after it: `column:` may hold the file's name"
        if isinstance(self.split, HashSplit) and self.split.by != "row" and self.label.name in self.split.by:
            message = f"{self.label.name!r} is the label, whose classes would not be spread over the splits"
            yield ("split", "by"), f"{message}; allowed: row, file, or features"

    def _columns(self) -> Iterator[Mistake]:
        """Yields features that read a column that does not exist, or that another feature reads."""
        width = self.csv.width
        # If the schema names all columns, a name and a position can mean the same column, so names become positions.
        places = None if self.csv.columns is None else {name: i for i, name in enumerate(self.csv.columns)}
        taken: dict[ColumnRef, str] = {}
        for path, item in self._items():
            for ref in item.refs:
                if isinstance(ref, str) and places is not None and ref not in places:
                    yield path, f"{item.name!r} reads the column {ref!r}, which csv.columns does not name"
                    break
                place = ref if isinstance(ref, int) or places is None else places[ref]
                if isinstance(place, int) and width is not None and place >= width:
                    yield path, f"{item.name!r} reads column {ref}, but a row has columns 0 to {width - 1}"
                    break
                if place in taken:
                    yield path, f"{item.name!r} and {taken[place]!r} both read column {ref!r}"
                    break
                taken[place] = item.name
        if self.csv.header == "none" and width is None:
            yield ("csv", "header"), "header: none needs `columns` or `num_columns`"

    def _items(self) -> Iterator[tuple[tuple[str | int, ...], Feature | Label]]:
        """Yields every feature and the label, each with its path of keys in the file."""
        for i, f in enumerate(self.features):
            yield ("features", i), f
        yield ("label",), self.label

    @property
    def missing_tokens(self) -> dict[str, tuple[str, ...]]:
        """The tokens that mean a missing value, by name of the feature or label."""
        return {item.name: item.tokens(self.csv.missing) for item in self.items}

    @property
    def split_names(self) -> tuple[str, ...]:
        """The names of the dataset's splits."""
        return self.split.splits

    @property
    def items(self) -> tuple[Feature | Label, ...]:
        """The features in the order of the schema, then the label."""
        return (*self.features, self.label)

    @property
    def inputs(self) -> tuple[Feature, ...]:
        """The features that a model reads, in the order of the schema."""
        return tuple(f for f in self.features if f.is_input)

    @property
    def key(self) -> Key | None:
        return next((f for f in self.features if isinstance(f, Key)), None)

    @property
    def weight(self) -> Weight | None:
        return next((f for f in self.features if isinstance(f, Weight)), None)

    def drift_limits(self, name: str) -> Limits | None:
        """Returns the thresholds of drift of a feature, the label or the weight.

        If the schema gives it no thresholds of its own, those of the whole table apply.
        """
        for item in self.items:
            if item.name == name and isinstance(item, ComparedItem) and item.drift is not None:
                return limits_of(item.drift)
        return limits_of(self.drift)

    @property
    def limits_drift(self) -> bool:
        """Whether any threshold of drift is set."""
        return any(self.drift_limits(item.name) is not None for item in self.items if isinstance(item, ComparedItem))


OFFSET = "_offset"  # int64: the offset of the record's first byte in its (decompressed) file
PLACE = "_place"  # int64 [2]: the key of a record's file, and its offset; kept with it until the shard is written
SPLIT = "_split"  # int8: index into schemas.spec.table.SPLITS


def raw_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """Returns all raw columns: those of the features in the order of the schema, then the label's."""
    return tuple(item.raw for item in schema.items if item.raw is not None)


NUMBERS = "_numbers"  # an input of a transform's graph: the raw columns of all numeric features as one matrix


def number_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """Returns the raw columns of the numeric features, in their order in the input `NUMBERS` of a graph."""
    return tuple(feature.raw for feature in schema.features if isinstance(feature, Numeric))


# Two inputs of a transform's graph for all features whose strings are looked up as a whole. The first row of WORDS has
# the distinct strings of the batch, column after column. CODES has an index for each row and column, into the distinct
# strings of that column. So a string that occurs in many rows is passed only once.
WORDS, CODES = "_words", "_codes"


def word_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """Returns the raw columns of the features that are looked up as whole strings.

    They are in their order in the input `WORDS` of a graph.
    """
    return tuple(feature.raw for feature in schema.features if isinstance(feature, Category | Bool))


def graph_columns(schema: Schema, together: Collection[str] = (NUMBERS, WORDS)) -> tuple[RawColumn, ...]:
    """Returns the columns that a transform's graph takes.

    Not every raw column is an input of its own: the numeric columns are one input, and the columns of whole strings are
    two. The reason is speed. Each input of a graph costs a job a millisecond or more in tf.Transform and TensorFlow,
    and also takes time in each analyzer. And TensorFlow copies each string of a batch several times.

    Args:
      schema: the schema.
      together: which of the merged inputs NUMBERS and WORDS the graph has.
    """
    numbers = number_columns(schema) if NUMBERS in together else ()
    words = word_columns(schema) if WORDS in together else ()
    names = {column.name for column in (*numbers, *words)}
    merged_columns = [RawColumn(NUMBERS, "float32", sum(column.width or 1 for column in numbers))] if numbers else []
    if words:
        merged_columns += [RawColumn(CODES, "int64", len(words)), RawColumn(WORDS, "string", varying=True)]
    return (*merged_columns, *(column for column in raw_columns(schema) if column.name not in names))


def served_features(schema: Schema) -> list[Feature]:
    """Returns the features that a serving request sends: the inputs, and the key if there is one.

    A request sends no label and no weight.
    """
    sent = (*schema.inputs, *((schema.key,) if schema.key else ()))
    return [feature for feature in sent if feature.raw is not None]


def serving_columns(schema: Schema) -> tuple[RawColumn, ...]:
    """Returns the raw columns of the features that a serving request sends."""
    return tuple(feature.raw for feature in served_features(schema) if feature.raw is not None)


NOT_FINITE = "not_finite"  # the reason code of a value that the transform makes infinite or NaN


def hints_of(schema: Schema) -> dict[str, str]:
    """Returns a hint for each feature with a transform that can make a value infinite or NaN, by name."""
    return {feature.name: feature.not_finite_hint for feature in schema.features if feature.not_finite_hint}
