"""The `preprocessing_fn` that a schema implies: raw features in, transformed features out, as a tf.Transform graph.

Everything here is traced once into TensorFlow ops. What a serving client may send is handled here and not in the
reader, so that training and serving treat it alike: white space around strings, the schema's missing tokens, NaN.
Numbers are scaled in `beam_jobs.transform.numeric`. All vocabularies are one analyzer (see
`beam_jobs.transform.vocabularies`). Strings are trimmed, compared and looked up once for each distinct value of a batch
(see `beam_jobs.transform.vocabularies`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, assert_never

import tensorflow as tf
import tensorflow_transform as tft

from beam_jobs.transform.ngrams import Ngrams, ngrams_of, transform_ngrams
from beam_jobs.transform.numeric import apart, transform_numbers
from beam_jobs.transform.vocabularies import UniqueValues, apply_vocabulary, measure_vocabularies
from schemas.spec.features import (
    Bool,
    Category,
    CategoryLabel,
    Cross,
    Feature,
    Ignore,
    Key,
    Label,
    Numeric,
    NumericLabel,
    OneHot,
    Text,
    Weight,
)
from schemas.spec.forms import RawColumn
from schemas.spec.table import CODES, NUMBERS, WORDS, Schema, number_columns, word_columns

Tensors = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """The `preprocessing_fn` of a schema, as an object that can be pickled."""

    schema: Schema

    @property
    def measures(self) -> bool:
        """Whether any feature needs an analysis of the train split, and so a read of it."""
        return any(item.measures for item in self.schema.items)

    def __call__(self, inputs: Tensors) -> Tensors:
        """Maps a graph's inputs (see `schemas.spec.table.graph_columns`) to transformed tensors."""
        tokens = self.schema.missing_tokens
        steps = [s for s in (steps_of(item, tokens[item.name]) for item in self.schema.items) if s is not None]
        tensors = dict(inputs)
        if columns := word_columns(self.schema):
            tensors |= dict(
                zip((c.name for c in columns), self._words(inputs, [tokens[c.name] for c in columns]), strict=True)
            )
        ready = {s.name: s.prepare(tensors[s.name]) for s in steps}
        item_vocabularies = [item.vocabulary for item in self.schema.items if item.vocabulary is not None]
        read = {vocabulary: ready[vocabulary.name] for vocabulary in item_vocabularies}
        counted = {v: x.counted() if isinstance(x, Ngrams) else x for v, x in read.items()}
        vocabularies = measure_vocabularies(counted)
        numbers = [feature for feature in self.schema.features if isinstance(feature, Numeric)]
        outputs: Tensors = transform_numbers(numbers, inputs[NUMBERS]) if numbers else {}
        for step in steps:
            outputs |= step.transform(ready[step.name], vocabularies.get(step.name))
        crosses = [feature for feature in self.schema.features if isinstance(feature, Cross)]
        return outputs | {cross.name: transform_cross(cross, outputs) for cross in crosses}

    def _words(self, inputs: Tensors, tokens: Sequence[tuple[str, ...]]) -> list[UniqueValues]:
        """The clean words of each column, by its tokens of missing values: all at once if these are the same."""
        if len(set(tokens)) == 1:
            return UniqueValues.of_words(inputs[CODES], inputs[WORDS], lambda values: clean(values, tokens[0]))
        words = UniqueValues.of_words(inputs[CODES], inputs[WORDS])
        return [x.map(functools.partial(clean, missing=own)) for x, own in zip(words, tokens, strict=True)]


@dataclasses.dataclass(frozen=True)
class ByName:
    """A user's `preprocessing_fn`, which is given every raw column by its own name."""

    function: Callable[[Tensors], Tensors]
    schema: Schema

    def __call__(self, inputs: Tensors) -> Tensors:
        columns = number_columns(self.schema)
        named = {name: x for name, x in inputs.items() if name not in (NUMBERS, CODES, WORDS)}
        named |= apart(inputs[NUMBERS], columns) if columns else {}
        if words := word_columns(self.schema):
            unique_words = UniqueValues.of_words(inputs[CODES], inputs[WORDS])
            named |= {column.name: x.spread(x.values) for column, x in zip(words, unique_words, strict=True)}
        return self.function(named)


@dataclasses.dataclass(frozen=True)
class ColumnSteps:
    """The processing of the raw column of a feature or of the label.

    Attributes:
      name: the column's.
      prepare: converts the raw tensor, or the column's clean words, to the input of `transform`, which is also what its
        vocabulary counts.
      transform: (prepared tensor, what is measured of its vocabulary or None) -> transformed features by name.
    """

    name: str
    prepare: Callable[[tf.Tensor], Any]
    transform: Callable[[Any, Any], Tensors]


def steps_of(item: Feature | Label, missing: tuple[str, ...]) -> ColumnSteps | None:
    """Returns the steps of a feature's kind; None for numbers, transformed together, and where there is no column.

    `missing`: the tokens of a missing value in its columns.
    """
    name = item.name
    match item:
        case Category():
            words = functools.partial(category_words, item)
            return ColumnSteps(name, words, lambda x, vocabulary: {name: transform_category(item, x, vocabulary)})
        case OneHot():
            return ColumnSteps(name, as_read, lambda x, _: {name: tf.argmax(x, axis=1, output_type=tf.int64)})
        case Bool():
            return ColumnSteps(name, as_read, lambda x, _: {name: transform_bool(item, x)})
        case Text() if item.weighted:
            ngrams = functools.partial(text_ngrams, item, missing=missing)
            return ColumnSteps(name, ngrams, functools.partial(transform_ngrams, item))
        case Text():
            tokens = functools.partial(text_tokens, item, missing=missing)
            return ColumnSteps(name, tokens, lambda x, vocabulary: {name: transform_text(item, x, vocabulary)})
        case Weight() | Key() | NumericLabel():
            return ColumnSteps(name, as_read, lambda x, _: {name: tf.identity(x)})
        case CategoryLabel():
            return ColumnSteps(
                name, UniqueValues.of, lambda x, vocabulary: {name: transform_label(item, x, vocabulary)}
            )
        case Numeric() | Ignore() | Cross():
            return None
        case _:
            assert_never(item)


def as_read(x: tf.Tensor) -> tf.Tensor:
    """Returns a tensor as it is: numbers, clean strings, and strings that pass through."""
    return x


def category_words(feature: Category, words: UniqueValues) -> UniqueValues:
    """Fills missing words, if the feature says by what."""
    return words if feature.missing is None else words.map(lambda v: tf.where(tf.equal(v, ""), feature.missing, v))


def text_tokens(feature: Text, x: tf.Tensor, *, missing: tuple[str, ...]) -> tf.SparseTensor:
    """Splits each text into its words."""
    return tf.compat.v1.strings.split(cased(feature, clean(x, missing)), result_type="SparseTensor")


def text_ngrams(feature: Text, x: tf.Tensor, *, missing: tuple[str, ...]) -> Ngrams:
    """Finds the n-grams of each text."""
    return ngrams_of(feature, cased(feature, clean(x, missing)))


def cased(feature: Text, x: tf.Tensor) -> tf.Tensor:
    """Puts texts in the case that their words are compared in."""
    return lower(x) if feature.lower else x


def clean(x: tf.Tensor, missing: tuple[str, ...]) -> tf.Tensor:
    """Trims strings, and replaces every token that means missing by ''."""
    x = tf.strings.strip(x)
    for token in missing:
        if trimmed := token.encode().strip():
            x = tf.where(tf.equal(x, trimmed), "", x)
    return x


def lower(x: tf.Tensor) -> tf.Tensor:
    """Converts string `[n]` to lower case by Unicode, part by part: `tf.strings.lower` ends a string at its first NUL.

    Sparse, and not ragged: an op or two for each line here, where ragged tensors trace a hundred.
    """
    parts = tf.compat.v1.strings.split(x, "\0", result_type="SparseTensor")
    ended = tf.strings.join([tf.strings.lower(parts.values, encoding="utf-8"), tf.constant("\0")])
    joined = tf.strings.unsorted_segment_join(ended, parts.indices[:, 0], parts.dense_shape[0])
    return tf.strings.substr(joined, tf.zeros_like(joined, tf.int32), tf.strings.length(joined) - 1)


def lookup(x: UniqueValues, values: tuple[str, ...], oov_buckets: int) -> tf.Tensor:
    """Returns the index of each string in `values`; others are hashed into `oov_buckets` ids after them, or -1."""

    def make() -> Any:
        initializer = tf.lookup.KeyValueTensorInitializer(list(values), list(range(len(values))), tf.string, tf.int64)
        if oov_buckets:
            return tf.lookup.StaticVocabularyTable(initializer, oov_buckets)
        return tf.lookup.StaticHashTable(initializer, -1)

    return x.spread(tft.make_and_track_object(make).lookup(x.values))


def transform_category(feature: Category, x: UniqueValues, vocabulary: tf.Tensor | None) -> tf.Tensor:
    """Returns ids, int64: by the feature's values, by hash, or by a vocabulary of the train split."""
    if feature.values is not None:
        return lookup(x, feature.values, feature.oov_buckets)
    if feature.hash_buckets is not None:
        return x.spread(tf.strings.to_hash_bucket_fast(x.values, feature.hash_buckets))
    return apply_vocabulary(x, vocabulary, oov_buckets=feature.oov_buckets)


def transform_bool(feature: Bool, x: UniqueValues) -> tf.Tensor:
    """Returns 1.0 for the tokens of `true`, and 0.0 for others, float32; case is ignored."""
    tokens = [token.lower().encode().strip() for token in feature.true]
    true = tf.reduce_any(tf.equal(lower(x.values)[:, tf.newaxis], [tokens]), axis=1)
    if feature.missing:
        true = tf.logical_or(true, tf.equal(x.values, ""))
    return x.spread(tf.cast(true, tf.float32))


def transform_text(feature: Text, tokens: tf.SparseTensor, vocabulary: tf.Tensor) -> tf.Tensor | tf.SparseTensor:
    """Returns token ids from 1 on, int64: `[batch, length]` padded with 0, or a sparse bag."""
    ids = apply_vocabulary(tokens, vocabulary, oov_buckets=feature.oov_buckets)
    ids = tf.SparseTensor(ids.indices, ids.values + 1, ids.dense_shape)
    if feature.length is None:
        return ids
    return padded(ids, feature.length)


def padded(ids: tf.SparseTensor, length: int) -> tf.Tensor:
    """Returns the first ids of each row, padded with 0: `[batch, length]`."""
    rows = ids.dense_shape[0]
    first = tf.sparse.slice(ids, [0, 0], [rows, length])
    return tf.sparse.to_dense(tf.SparseTensor(first.indices, first.values, [rows, length]))


def transform_cross(feature: Cross, outputs: Tensors) -> tf.Tensor:
    """Hashes the crossed features' ids, written `1_2_3`, into `buckets`, int64.

    Each combination is written once. They are numbered two features at a time, so that no product of sizes overflows.
    """
    first, *rest = (UniqueValues.of(outputs[name]).map(tf.strings.as_string) for name in feature.of)
    for other in rest:
        size = tf.size(other.values, tf.int64)
        pairs = UniqueValues.of(first.rows * size + other.rows)
        left, right = tf.gather(first.values, pairs.values // size), tf.gather(other.values, pairs.values % size)
        first = dataclasses.replace(pairs, values=tf.strings.join([left, right], separator="_"))
    return first.spread(tf.strings.to_hash_bucket_fast(first.values, feature.buckets))


def transform_label(label: CategoryLabel, x: UniqueValues, vocabulary: tf.Tensor | None) -> tf.Tensor:
    """Returns class ids, int64; -1 for a class that the train split does not hold."""
    if label.values is not None:
        return lookup(x, label.values, 0)
    return apply_vocabulary(x, vocabulary, oov_buckets=0)


def input_spec(inputs: Sequence[RawColumn]) -> dict[str, tf.io.FixedLenFeature | tf.io.VarLenFeature]:
    """Returns a graph's inputs as a parsing spec: of shape [], [width], or of any length."""
    types = {c.name: tf.as_dtype(c.dtype) for c in inputs}
    return {
        c.name: tf.io.VarLenFeature(types[c.name]) if c.varying else tf.io.FixedLenFeature(c.shape, types[c.name])
        for c in inputs
    }
