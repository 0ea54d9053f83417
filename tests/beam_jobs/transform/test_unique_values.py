"""What is done once for each distinct string gives every row what it would have got by itself."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given
from hypothesis import strategies as st

from beam_jobs.transform.preprocessing import steps_of, transform_bool, transform_cross
from beam_jobs.transform.vocabularies import UniqueValues
from schemas.spec.features import Bool, Category, CategoryLabel, Cross, Feature, Label

MISSING = ("?", "", "n/a")
WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            [b"", b"  ", b"?", b" ?\t", b"n/a", b"N/A", b"a", b"A", b" a", b"a b", b"\xff", b" \xff ", b"Yes"]
        ),
        st.binary(max_size=4),
    ),
    max_size=12,
)


def rows_of(words: UniqueValues) -> list[bytes]:
    """Each row's word."""
    return words.spread(words.values).numpy().tolist()


def trimmed(word: bytes) -> bytes:
    return b"" if word.strip().decode("latin-1") in MISSING else word.strip()


def prepare(item: Feature | Label, raw: tf.Tensor) -> UniqueValues:
    steps = steps_of(item, MISSING)
    assert steps is not None
    return steps.prepare(raw)


@given(WORDS)
@example([])
@example([b" a", b"a", b"a "])
def test_each_row_has_its_own_word_trimmed_and_what_is_missing_filled(raw: list[bytes]) -> None:
    x = tf.constant(raw, tf.string)
    filled = prepare(Category(name="c", kind="category", missing="gone"), x)
    assert rows_of(filled) == [trimmed(word) or b"gone" for word in raw]
    assert rows_of(prepare(Category(name="c", kind="category"), x)) == [trimmed(word) for word in raw]
    assert rows_of(prepare(CategoryLabel(name="c", kind="category"), x)) == raw
    assert filled.counts.numpy().sum() == len(raw)


@given(WORDS)
def test_each_row_has_its_own_truth(raw: list[bytes]) -> None:
    feature = Bool(name="b", kind="bool", missing=True)
    truth = transform_bool(feature, prepare(feature, tf.constant(raw, tf.string))).numpy()
    yes = {b"", b"true", b"t", b"yes", b"y", b"1"}
    assert truth.tolist() == [float(trimmed(word).lower() in yes) for word in raw]


IDS = st.lists(st.tuples(*3 * [st.integers(0, 3) | st.integers(0, 2**63 - 1)]), max_size=8)


@pytest.mark.parametrize("names", [("a", "b"), ("c", "b", "a"), ("a", "a")])
@given(rows=IDS)
@example(rows=[])
@example(rows=[(1, 23, 4), (12, 3, 4), (1, 2, 34), (1, 23, 4)])
def test_a_cross_hashes_the_ids_of_each_row_as_they_are_written(
    names: tuple[str, ...], rows: list[tuple[int, ...]]
) -> None:
    columns = dict(zip("abc", np.array(rows, np.int64).reshape(-1, 3).T, strict=True))
    cross = transform_cross(
        Cross(name="x", kind="cross", of=names, buckets=1000), {k: tf.constant(v) for k, v in columns.items()}
    )
    written = ["_".join(str(columns[name][i]) for name in names) for i in range(len(rows))]
    assert (
        cross.numpy().tolist() == tf.strings.to_hash_bucket_fast(tf.constant(written, tf.string), 1000).numpy().tolist()
    )
