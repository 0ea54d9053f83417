"""Texts as bags of n-grams with TF-IDF weights: n-grams of words, of the characters of words, or of both.

Words are runs of letters, marks, digits and underscores; an n-gram of words is joined by single spaces. For n-grams of
characters, a word is what white space separates, with a space on either side; such an n-gram begins with `~` in the
vocabulary, so that it is never taken for a word. A missing text has no n-grams.

The weight of an n-gram is how often it occurs in the text, times 1 + log((1 + N) / (1 + n)), if n of the N rows of the
train split hold it, which is the inverse document frequency of `tft.tfidf` and of scikit-learn. The weights of a text
are divided by the root of the sum of their squares, as scikit-learn does by default. N-grams that the vocabulary lacks
count nowhere. What a text becomes depends on no other text of the batch.

`tft.tfidf` itself would need the vocabulary before it counts, and so one more read of the data. Here the vocabularies'
analyzer counts the rows that hold each n-gram.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from beam_jobs.transform.vocabularies import ALL_ROWS, UniqueValues, apply_vocabulary, rows_with
from schemas.spec.features import Text

CHARACTERS = "~"  # no word begins so
_BETWEEN_WORDS = r"[^\pL\pM\pN_]+"


@dataclasses.dataclass(frozen=True)
class Ngrams:
    """The n-grams of a batch of texts.

    Attributes:
      unique: the distinct ones of all occurrences.
      texts: int64 `[occurrences]`, the text that each is in.
      rows: int64 `[]`, how many texts there are.
    """

    unique: UniqueValues
    texts: tf.Tensor
    rows: tf.Tensor

    def counted(self) -> UniqueValues:
        """Counts in how many texts each n-gram occurs; the number of texts is that of `ALL_ROWS`."""
        values = self.unique.values
        distinct = tf.size(values, tf.int64)
        ngram_ids = tf.unique(self.texts * distinct + self.unique.rows).y % tf.maximum(distinct, 1)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(ngram_ids), ngram_ids, distinct)
        return UniqueValues(tf.concat([values, [ALL_ROWS]], 0), ngram_ids, tf.concat([counts, [self.rows]], 0))


def ngrams_of(feature: Text, x: tf.Tensor) -> Ngrams:
    """Finds the n-grams of texts, string `[batch]`, in the case that they are to be in."""
    rows = tf.size(x, tf.int64)
    ngrams = tf.zeros([0], tf.string)
    texts = places = tf.zeros([0], tf.int64)
    if feature.ngrams is not None:
        words = _split(tf.strings.regex_replace(x, _BETWEEN_WORDS, " "))
        ngrams, ends = _windows(words.values, _ends(words.indices[:, 0], rows), feature.ngrams, separator=" ")
        texts, places = _owners(ends), tf.range(tf.size(ngrams, tf.int64))
    if feature.characters is not None:
        words = _split(x)
        distinct = UniqueValues.of(words.values)
        spelled = tf.raw_ops.UnicodeDecode(
            input=tf.strings.join([" ", distinct.values, " "]), input_encoding="UTF-8", Tsplits=tf.int64
        )
        every = tf.range(tf.size(spelled.char_values, tf.int64) + 1)
        letters = tf.raw_ops.UnicodeEncode(
            input_values=spelled.char_values, input_splits=every, output_encoding="UTF-8"
        )
        grams, ends = _windows(letters, spelled.row_splits, feature.characters, separator="")
        # A word brings all of its n-grams to each place where it stands.
        first, last = tf.gather(ends, distinct.rows), tf.gather(ends, distinct.rows + 1)
        spans = tf.raw_ops.RaggedRange(starts=first, limits=last, deltas=tf.ones([], tf.int64), Tsplits=tf.int64)
        texts = tf.concat([texts, tf.gather(words.indices[:, 0], _owners(spans.rt_nested_splits))], 0)
        places = tf.concat([places, tf.size(ngrams, tf.int64) + spans.rt_dense_values], 0)
        ngrams = tf.concat([ngrams, tf.strings.join([CHARACTERS, grams])], 0)
    unique = UniqueValues.of(ngrams)
    return Ngrams(dataclasses.replace(unique, rows=tf.gather(unique.rows, places)), texts, rows)


def transform_ngrams(feature: Text, x: Ngrams, vocabulary: tuple[tf.Tensor, tf.Tensor]) -> dict[str, tf.SparseTensor]:
    """Applies `weighted` with a vocabulary: the paths of its words, and of how many rows hold each."""
    words, rows = vocabulary
    ids = apply_vocabulary(x.unique, words, oov_buckets=0)
    return weighted(feature, x, ids, lambda known_ids: rows_with(known_ids, rows))


def weighted(
    feature: Text, ngrams: Ngrams, ids: tf.Tensor, rows_with: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
) -> dict[str, tf.SparseTensor]:
    """Returns the ids from 1 of the distinct known n-grams of each text, ascending, and their weights.

    Args:
      feature: the text.
      ngrams: of a batch.
      ids: int64 `[occurrences]`, from 0; -1 is unknown.
      rows_with: how many rows of the train split hold each of some n-grams, by their ids, and how many rows it has.

    Returns:
      int64 and float32 SparseTensors `[batch, most n-grams of a text]` of the same indices, by the features' names.
    """
    words = 1 + tf.reduce_max(tf.concat([ids, [0]], 0))
    keys, _, counts = tf.unique_with_counts(tf.boolean_mask(ngrams.texts * words + ids, ids >= 0))
    order = tf.argsort(keys)
    keys = tf.gather(keys, order)
    texts, known_ids = keys // words, keys % words
    row_counts, rows = (tf.cast(1 + count, tf.float64) for count in rows_with(known_ids))
    weights = tf.cast(tf.gather(counts, order), tf.float64) * (1 + tf.math.log(rows / row_counts))
    lengths = tf.sqrt(tf.math.unsorted_segment_sum(weights**2, texts, ngrams.rows))
    places = tf.range(tf.size(keys, tf.int64)) - tf.searchsorted(texts, texts, out_type=tf.int64)
    shape = tf.stack([ngrams.rows, 1 + tf.reduce_max(tf.concat([places, [-1]], 0))])
    indices = tf.stack([texts, places], axis=1)
    return {
        feature.name: tf.SparseTensor(indices, known_ids + 1, shape),
        feature.weights_name: tf.SparseTensor(indices, tf.cast(weights / tf.gather(lengths, texts), tf.float32), shape),
    }


def _split(x: tf.Tensor) -> tf.SparseTensor:
    return tf.compat.v1.strings.split(x, result_type="SparseTensor")


def _windows(
    parts: tf.Tensor, ends: tf.Tensor, lengths: tuple[int, int], *, separator: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """The n-grams of rows of strings, and where those of each row begin; `ends`, likewise, of `parts`."""
    windows = tf.raw_ops.StringNGrams(
        data=parts,
        data_splits=ends,
        separator=separator,
        ngram_widths=list(range(lengths[0], lengths[1] + 1)),
        left_pad="",
        right_pad="",
        pad_width=0,
        preserve_short_sequences=False,
    )
    return windows.ngrams, windows.ngrams_splits


def _ends(owners: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """Where the values of each row begin, and where the last ones end, int64 `[rows + 1]`; `owners` ascend."""
    return tf.searchsorted(owners, tf.range(rows + 1), out_type=tf.int64)


def _owners(ends: tf.Tensor) -> tf.Tensor:
    """The row of each value, from where each row's begin."""
    return tf.searchsorted(ends, tf.range(ends[-1]), side="right", out_type=tf.int64) - 1
