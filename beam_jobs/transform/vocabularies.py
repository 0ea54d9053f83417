"""All vocabularies of a schema, counted by one tf.Transform analyzer.

`tft.vocabulary` adds some fifty Beam transforms for each vocabulary, which take most of a second to build and to run
even for a few rows. Here one combine counts the words of all features; each further vocabulary costs a file and its
table. String ops take time for each value, so a column of strings goes through them as its distinct values, which are
few. Values that a saved transform does not know are counted, too.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
import tensorflow_transform as tft
import tensorflow_transform.beam as tft_beam

from beam_jobs.core.source import KnownIds
from schemas import storage
from schemas.dataset import layout
from schemas.spec.features import Category, Text
from schemas.spec.forms import Vocabulary
from schemas.spec.table import Schema


@dataclasses.dataclass(frozen=True)
class UniqueValues:
    """The distinct values of one column of a batch.

    Attributes:
      values: `[distinct]`; after `map` some may be equal.
      rows: int64 `[batch]`, the place of each row's value in `values`.
      counts: int64 `[distinct]`, how many rows have each value.
    """

    values: tf.Tensor
    rows: tf.Tensor
    counts: tf.Tensor

    @staticmethod
    def of(x: tf.Tensor) -> UniqueValues:
        """Finds the distinct values of `[batch]`."""
        return UniqueValues(*tf.unique_with_counts(x, out_idx=tf.int64))

    @staticmethod
    def of_words(
        codes: tf.Tensor, words: tf.SparseTensor, op: Callable[[tf.Tensor], tf.Tensor] = tf.identity
    ) -> list[UniqueValues]:
        """Returns the distinct values of each column of CODES and WORDS (see `schemas.spec.table`), after an `op`."""
        columns = codes.shape[1]
        before = tf.fill([1, columns], tf.constant(-1, tf.int64))  # a batch may have no rows
        sizes = tf.reduce_max(tf.concat([before, codes], 0), 0) + 1
        places = codes + tf.cumsum(sizes, exclusive=True)
        counts = tf.math.unsorted_segment_sum(tf.ones_like(places), places, tf.size(words.values))
        parts = [tf.split(x, sizes, num=columns) for x in (op(words.values), counts)]
        return [UniqueValues(*fields) for fields in zip(parts[0], tf.unstack(codes, axis=1), parts[1], strict=True)]

    def map(self, op: Callable[[tf.Tensor], tf.Tensor]) -> UniqueValues:
        """Applies `op` to the distinct values."""
        return dataclasses.replace(self, values=op(self.values))

    def spread(self, results: tf.Tensor) -> tf.Tensor:
        """Returns each row's result, `[batch]`, from the results of the values."""
        return tf.gather(results, self.rows)


# The word that tf.Transform writes to an empty vocabulary: no table can be initialized from an empty file.
EMPTY = b"49d0cd50-04bb-48c0-bc6f-5b575dce351a"

# The word that all rows are counted by, where words are counted by the rows that hold them. No n-gram is a space.
ALL_ROWS = b" "

# After a vocabulary's name, the file with the number of rows that hold each word, and last that of all rows.
ROWS = "~rows"  # in no feature's name


def most_frequent(words: pa.Table, vocabulary: Vocabulary) -> pa.Table:
    """Returns the words that a vocabulary holds, of a table like COUNTED: by falling count, then by falling bytes."""
    if vocabulary.frequency_threshold:
        words = words.filter(pc.greater_equal(words["count"], vocabulary.frequency_threshold))
    order = pc.sort_indices(words, sort_keys=[("count", "descending"), ("word", "descending")])
    return words.take(order[: vocabulary.top_k])


def measure_vocabularies(words: Mapping[Vocabulary, UniqueValues | tf.SparseTensor]) -> dict[str, Any]:
    """Returns the path of each vocabulary's file, a scalar for `tft.apply_vocabulary`, by name.

    A pair for a vocabulary with `by_row`: also the path of the words' counts.

    `words` are the strings to count for each.
    """
    if not words:
        return {}
    distinct = [x if isinstance(x, UniqueValues) else UniqueValues.of(x.values) for x in words.values()]
    pairs = sum(vocabulary.by_row for vocabulary in words)
    outputs = tft.experimental.ptransform_analyzer(
        [
            tf.stack([tf.size(x.values, tf.int64) for x in distinct]),
            tf.concat([x.values for x in distinct], 0),
            tf.concat([x.counts for x in distinct], 0),
        ],
        CountAndWrite(tuple(words)),
        output_dtypes=[tf.string] * (len(words) + pairs),
        output_shapes=[[]] * (len(words) + pairs),
        output_asset_default_values=[EMPTY] * len(words) + [b"0\n0"] * pairs,
        name="vocabularies",
    )
    for vocabulary in words:
        tft.annotate_asset(vocabulary.name, vocabulary.name)
    paths, rows = outputs[: len(words)], iter(outputs[len(words) :])
    return {v.name: (path, next(rows)) if v.by_row else path for v, path in zip(words, paths, strict=True)}


def apply_vocabulary(x: UniqueValues | tf.SparseTensor, path: tf.Tensor, *, oov_buckets: int) -> Any:
    """Looks up strings: int64, dense or sparse as `x` is; unknown words are hashed into `oov_buckets` more ids, or -1.

    The ids are those of a `tf.lookup.StaticVocabularyTable`, which would save and load two tables instead of one.
    """

    def look_up(words: tf.Tensor, path: tf.Tensor) -> tuple[Any, tf.Tensor]:
        with tf.init_scope():  # creates the table once, not in every call of the graph
            line = tf.lookup.TextFileIndex
            source = tf.lookup.TextFileInitializer(path, tf.string, line.WHOLE_LINE, tf.int64, line.LINE_NUMBER)
            table = tf.lookup.StaticHashTable(source, -1)
        size = table.size()
        ids = table.lookup(words)
        if oov_buckets:
            unknown = size if oov_buckets == 1 else size + tf.strings.to_hash_bucket_fast(words, oov_buckets)
            ids = tf.where(ids < 0, unknown, ids)
        if isinstance(x, UniqueValues):
            return x.spread(ids), size + oov_buckets
        return tf.SparseTensor(x.indices, ids, x.dense_shape), size + oov_buckets

    return tft.apply_vocabulary(x.values, path, num_oov_buckets=oov_buckets, lookup_fn=look_up)


def rows_with(ids: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns how many rows hold each word, by its id, int64 `[n]`, and how many rows there are, int64 `[]`.

    Args:
      ids: int64 `[n]`.
      path: of the counts.
    """

    def look_up(ids: tf.Tensor, path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.init_scope():
            line = tf.lookup.TextFileIndex.LINE_NUMBER
            table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer(path, tf.int64, line, tf.int64, 0), -1)
        size = table.size()
        return table.lookup(tf.concat([ids, [size - 1]], 0)), size

    row_counts = tft.apply_vocabulary(ids, path, lookup_fn=look_up)
    return row_counts[:-1], row_counts[-1]


class CountAndWrite(tft_beam.experimental.PTransformAnalyzer):
    """Batches of (words by vocabulary, words, counts) -> a PCollection for each output of `measure_vocabularies`."""

    def __init__(self, vocabularies: tuple[Vocabulary, ...]) -> None:
        super().__init__()
        self.vocabularies = vocabularies

    def expand(self, batches: beam.PCollection) -> tuple[beam.PCollection, ...]:
        counts = (
            batches
            | "Words" >> beam.FlatMap(words_of).with_output_types(tuple[int, pa.Table])
            | "Count" >> beam.CombinePerKey(AddCounts())
        )
        tags = [str(i) for i in range(len(self.vocabularies))]
        tags += [f"{i}{ROWS}" for i, vocabulary in enumerate(self.vocabularies) if vocabulary.by_row]
        paths = (
            batches.pipeline
            | "Once" >> beam.Create([None])
            | "Write"
            >> beam.FlatMap(
                write_vocabularies,
                counts=beam.pvalue.AsIter(counts),
                vocabularies=self.vocabularies,
                folder=self.base_temp_dir,
            ).with_outputs(*tags)
        )
        return tuple(paths[tag] for tag in tags)


SHARES = 16  # of the words, that workers add up apart
COUNTED = pa.schema([("vocabulary", pa.int32()), ("word", pa.binary()), ("count", pa.int64())])
PENDING = 100_000  # rows that are at least taken in before counts are added up, which takes a pass over all of them


def words_of(batch: tuple[np.ndarray, ...]) -> Iterator[tuple[int, pa.Table]]:
    """Yields (share, the counts of its words) of a batch. Missing words, and words with line breaks, are skipped."""
    sizes, words, counts = batch
    numbers = np.repeat(np.arange(len(sizes)), sizes)
    table = pa.table([numbers, words.tolist(), counts], schema=COUNTED)
    missing = pc.equal(table["word"], b"")
    broken = (pc.greater_equal(pc.find_substring(table["word"], end), 0) for end in (b"\n", b"\r"))
    table = table.filter(pc.invert(functools.reduce(pc.or_, broken, missing)))
    shares = np.fromiter((zlib.crc32(word) % SHARES for word in table["word"].to_pylist()), np.int64)
    for share in np.unique(shares).tolist():
        yield share, table.take(np.flatnonzero(shares == share))


@dataclasses.dataclass
class WordCounts:
    """Tables of counts, and how much is to be added up: a table takes about as much memory as 100 rows."""

    tables: list[pa.Table] = dataclasses.field(default_factory=list)
    pending: int = 0

    def add(self, table: pa.Table) -> None:
        """Takes a table in."""
        self.tables.append(table)
        self.pending += 100 + len(table)
        if self.pending > max(PENDING, len(self.tables[0])):
            self.add_up()

    def add_up(self) -> pa.Table:
        """Adds up all tables into one with each word once, in one chunk, since a pickle repeats what chunks share."""
        groups = pa.concat_tables(self.tables).group_by(["vocabulary", "word"])
        self.tables = [groups.aggregate([("count", "sum")]).rename_columns(COUNTED.names).combine_chunks()]
        self.pending = 0
        return self.tables[0]


class AddCounts(beam.CombineFn):
    """Adds up tables of counts. An object of Python's for each of many n-grams would take several times as much."""

    def create_accumulator(self) -> WordCounts:
        return WordCounts()

    def add_input(self, counts: WordCounts, table: pa.Table) -> WordCounts:
        counts.add(table)
        return counts

    def merge_accumulators(self, accumulators: Iterable[WordCounts]) -> WordCounts:
        total = WordCounts()
        for counts in accumulators:
            for table in counts.tables:
                total.add(table)
        return total

    def compact(self, counts: WordCounts) -> WordCounts:
        counts.add_up()
        return counts

    def extract_output(self, counts: WordCounts) -> pa.Table:
        return counts.add_up()


def write_vocabularies(
    _: None, counts: Iterable[tuple[int, pa.Table]], vocabularies: tuple[Vocabulary, ...], folder: str
) -> Iterator[beam.pvalue.TaggedOutput]:
    """Writes the files of each vocabulary to a folder of this attempt, and yields their paths, tagged by its number."""
    parts: list[list[pa.Table]] = [[COUNTED.empty_table()] for _ in vocabularies]
    rows = dict.fromkeys(range(len(vocabularies)), 0)
    for _share, table in counts:
        counted = table.sort_by("vocabulary")
        starts = np.searchsorted(np.asarray(counted["vocabulary"]), np.arange(len(vocabularies) + 1)).tolist()
        for number, (start, end) in enumerate(itertools.pairwise(starts)):
            words, vocabulary = counted[start:end], vocabularies[number]
            if vocabulary.by_row:
                of_rows = pc.equal(words["word"], ALL_ROWS)
                rows[number] += pc.sum(words.filter(of_rows)["count"]).as_py() or 0
                words = words.filter(pc.invert(of_rows))
            parts[number].append(most_frequent(words, vocabulary))
    attempt = layout.join(folder, uuid.uuid4().hex)
    for number, vocabulary in enumerate(vocabularies):
        words = most_frequent(pa.concat_tables(parts[number]), vocabulary)
        files = {"": words["word"].to_pylist() or [EMPTY]}
        if vocabulary.by_row:
            files[ROWS] = [b"%d" % count for count in (*(words["count"].to_pylist() or [0]), rows[number])]
        for kind, lines in files.items():
            path = layout.join(attempt, vocabulary.name + kind)
            storage.write_bytes(path, b"".join(line + b"\n" for line in lines))
            yield beam.pvalue.TaggedOutput(f"{number}{kind}", np.array(path))


# The stages of CountKeys ("", stage, feature): how many values were looked up, and how many of them are not known.
LOOKED_UP, UNSEEN = "*looked_up", "*unseen"


def known_ids(schema: Schema, run_dir: str) -> dict[str, KnownIds]:
    """Returns the known ids of each feature that is looked up, but for n-grams: most of a new text are unknown.

    Args:
      schema: the dataset's, whose transform is derived from it.
      run_dir: the run with the transform.
    """
    ids_by_feature = {}
    for feature in schema.features:
        if isinstance(feature, Category | Text) and feature.vocabulary is not None and not feature.vocabulary.by_row:
            words = storage.read_bytes(layout.join(run_dir, layout.TRANSFORM_FN, "assets", feature.name))
            first = 1 if isinstance(feature, Text) else 0
            ids_by_feature[feature.name] = KnownIds(first, first + words.count(b"\n"))
        elif isinstance(feature, Category) and feature.values is not None:
            ids_by_feature[feature.name] = KnownIds(0, len(feature.values))
    return ids_by_feature


def count_unseen(
    features: pa.RecordBatch, ids_by_feature: Mapping[str, KnownIds]
) -> Iterator[tuple[tuple[str, str, str], int]]:
    """Yields (CountKey, values) of a transformed batch."""
    for name, ids in ids_by_feature.items():
        values = np.asarray(features.column(name).flatten())
        if ids.first:  # padded
            values = values[values >= ids.first]
        unseen = int(((values >= ids.end) | (values < ids.first)).sum())
        yield ("", LOOKED_UP, name), len(values)
        if unseen:
            yield ("", UNSEEN, name), unseen
