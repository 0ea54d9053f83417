"""Texts as weighted n-grams: against plain Python, and what a job stores of them against scikit-learn.

The oracle splits by Unicode categories and slices Python strings; the transform works by regular expressions and byte
offsets. scikit-learn counts, weighs and normalizes by code of its own.
"""

from __future__ import annotations

import collections
import csv
import functools
import itertools
import math
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from beam_jobs.transform.ngrams import Ngrams, weighted
from beam_jobs.transform.preprocessing import text_ngrams
from beam_jobs.transform.vocabularies import ALL_ROWS, COUNTED, EMPTY, ROWS, write_vocabularies
from schemas.dataset import OpenDataset, layout
from schemas.spec.features import Text
from schemas.spec.forms import Vocabulary
from tests.support.datasets import written
from tests.support.written_records import examples

Bag = dict[str, float]
Counts = collections.Counter[str]


def text(**options: object) -> Text:
    return Text(name="t", kind="text", **options)  # type: ignore[arg-type]


def ngrams(feature: Text, texts: Sequence[str]) -> Ngrams:
    return text_ngrams(feature, tf.constant(list(texts), tf.string), missing=("?",))


def by_text(text_ngrams: Ngrams, texts: int) -> list[list[str]]:
    """The n-grams of each text, in the order in which they are found."""
    lists: list[list[str]] = [[] for _ in range(texts)]
    for row, value in zip(
        text_ngrams.texts.numpy(), text_ngrams.unique.spread(text_ngrams.unique.values).numpy(), strict=True
    ):
        lists[row].append(value.decode())
    return lists


@pytest.mark.parametrize(
    ("options", "value", "expected"),
    [
        ({"ngrams": (1, 2)}, "The cat, the HAT!", ["the", "cat", "the", "hat", "the cat", "cat the", "the hat"]),
        ({"ngrams": (2, 3)}, "a b c", ["a b", "b c", "a b c"]),
        ({"ngrams": (1, 1)}, "don't #tag @me 4u a_b", ["don", "t", "tag", "me", "4u", "a_b"]),
        ({"ngrams": (1, 1)}, "ÄRGER Ünal हिन्दी 中文。字 ٣", ["ärger", "ünal", "हिन्दी", "中文", "字", "٣"]),
        ({"ngrams": (1, 1)}, "a\0b\u2028c\u00a0d", ["a", "b", "c", "d"]),
        ({"ngrams": (1, 2)}, "?", []),  # means missing
        ({"characters": (2, 3)}, "ab\tA", ["~ a", "~ab", "~b ", "~ ab", "~ab ", "~ a", "~a ", "~ a "]),
        ({"characters": (2, 2), "lower": False}, "É😀", ["~ É", "~É😀", "~😀 "]),
        ({"characters": (2, 2)}, "a\0B", ["~ a", "~a\0", "~\0b", "~b "]),
        ({"ngrams": (1, 1), "characters": (3, 3)}, "a b", ["a", "b", "~ a ", "~ b "]),
    ],
)
def test_the_ngrams_of_a_text(options, value, expected):
    """Alone, and between texts that share some with it."""
    assert by_text(ngrams(text(**options), [value]), 1) == [expected]
    assert by_text(ngrams(text(**options), ["a the", value, "", "cat"]), 4)[1] == expected


def is_in_word(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def of_python(feature: Text, value: str) -> Iterator[str]:
    """The n-grams of a text that is not missing, one by one."""
    value = "".join(part.lower() for part in value) if feature.lower else value
    if feature.ngrams:
        words = "".join(c if is_in_word(c) else " " for c in value).split(" ")
        words = [word for word in words if word]
        for n in range(feature.ngrams[0], feature.ngrams[1] + 1):
            yield from (" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
    if feature.characters:
        for word in "".join(" " if c in " \t\n\r\v\f" else c for c in value).split(" "):
            spaced = f" {word} " if word else ""
            for n in range(feature.characters[0], feature.characters[1] + 1):
                yield from ("~" + spaced[i : i + n] for i in range(len(spaced) - n + 1))


# Each is one character in lower case; of all categories that differ, in scripts that Unicode has had for long.
CHARACTERS = "abABcé1_ ,.'#\t\0\u00a0\u0301\u0928\u094d字。😀ß²٣Ⅷ"
TEXTS = st.lists(st.text(CHARACTERS, max_size=12), max_size=6)
LENGTHS = st.tuples(st.integers(1, 3), st.integers(0, 2)).map(lambda ends: (ends[0], ends[0] + ends[1]))
FEATURES = st.one_of(
    st.builds(text, ngrams=LENGTHS, lower=st.booleans()),
    st.builds(text, characters=LENGTHS, lower=st.booleans()),
    st.builds(text, ngrams=LENGTHS, characters=LENGTHS),
)


def weights_of(
    feature: Text, texts: Sequence[str], words: Sequence[str], document_counts: Counts, rows: int
) -> list[dict[int, float]]:
    """The weights of each text by id; `document_counts`: how many of the rows hold each of the words."""
    places = {word.encode(): place for place, word in enumerate(words)}
    x = ngrams(feature, texts)
    word_ids = [places.get(value, -1) for value in x.unique.values.numpy()]

    def rows_with(indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.constant([document_counts[words[i]] for i in indices.numpy()], tf.int64), tf.constant(rows, tf.int64)

    tensors = weighted(feature, x, x.unique.spread(tf.constant(word_ids, tf.int64)), rows_with)
    ids, weights = tensors["t"], tensors["t_tfidf"]
    np.testing.assert_array_equal(ids.indices, weights.indices)
    assert ids.dense_shape.numpy().tolist() == weights.dense_shape.numpy().tolist()
    bags: list[dict[int, float]] = [{} for _ in texts]
    for (row, place), i, weight in zip(ids.indices.numpy(), ids.values.numpy(), weights.values.numpy(), strict=True):
        assert place == len(bags[row])
        bags[row][int(i)] = float(weight)
    assert all(list(bag) == sorted(bag) for bag in bags)
    return bags


@settings(max_examples=30)
@given(FEATURES, TEXTS, TEXTS)
def test_weights_are_those_of_python_whatever_else_is_in_the_batch(feature, train, extra_texts):
    document_counts = Counts(
        itertools.chain.from_iterable(set(of_python(feature, value.strip(" \t"))) for value in train)
    )
    words = sorted(document_counts)[::2]  # the others are unknown
    bags = weights_of(feature, [*train, *extra_texts], words, document_counts, len(train))
    for value, bag in zip([*train, *extra_texts], bags, strict=True):
        counts = Counts(of_python(feature, value.strip(" \t")))
        expected = {
            1 + i: counts[word] * (1 + math.log((1 + len(train)) / (1 + document_counts[word])))
            for i, word in enumerate(words)
            if counts[word]
        }
        length = math.sqrt(sum(weight**2 for weight in expected.values()))
        assert bag == pytest.approx({i: weight / length for i, weight in expected.items()}, rel=1e-6)
        assert weights_of(feature, [value], words, document_counts, len(train)) == [bag]  # to the last bit


@pytest.mark.parametrize(
    ("vocabulary", "words", "rows"),
    [
        (Vocabulary("t", by_row=True), b"a\nb\n", b"2\n1\n4\n"),
        (Vocabulary("t", top_k=1, by_row=True), b"a\n", b"2\n4\n"),
        (Vocabulary("t", frequency_threshold=3, by_row=True), EMPTY + b"\n", b"0\n4\n"),
        (Vocabulary("t"), b" \na\nb\n", None),  # of a category a space is a value, if there is one
    ],
)
def test_the_rows_that_hold_a_word_are_written_beside_it(tmp_path, vocabulary, words, rows):
    tables = [
        pa.table([[0, 0], [b"b", ALL_ROWS], [1, 4]], schema=COUNTED),
        pa.table([[0], [b"a"], [2]], schema=COUNTED),
    ]
    counts = list(enumerate(tables))
    paths = [str(output.value) for output in write_vocabularies(None, counts, (vocabulary,), str(tmp_path))]
    assert [Path(path).read_bytes() for path in paths] == [words, *([rows] if rows else [])]
    assert Path(paths[-1]).name == (f"t{ROWS}" if rows else "t")


WORDS = ["good", "bad", "Flight", "flight!", "@air", "don't", "été", "बस", "航班很好", ":)", "the", "a", "x" * 30]
WORDS += ["nul\0nul", "line\u2028end", "next\u0085line", '"quoted"', "comma,"]
SCHEMA = """\
name: remarks
format: csv
csv: {header: present}
features:
  - {name: id, kind: key}
  - {name: t, kind: text, OPTIONS}
label: {name: y, kind: numeric}
split: {by: file, train: "train*.csv", eval: eval.csv}
"""


def remarks(first: int, last: int) -> dict[str, str]:
    """Texts by key: of 0 to 7 words, some of them empty, missing or long."""
    drawn = np.random.default_rng(first)
    texts = {f"k{i}": " ".join(drawn.choice(WORDS, i % 8)) for i in range(first, last)}
    return texts | {f"k{first + 3}": "never seen!?", f"k{first + 5}": "good flight " * 3_000}


def write(path: Path, rows: dict[str, str]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "t", "y"], *([key, value, 1] for key, value in rows.items())])
    return str(path)


def stored(dataset: OpenDataset, split: str) -> dict[str, Bag]:
    """The weights of each record by its key and the n-grams."""
    assets = Path(dataset.run_dir, layout.TRANSFORM_FN, "assets")
    words = ["", *(assets / "t").read_text(encoding="utf-8").removesuffix("\n").split("\n")]
    return {
        row["id"][0].decode(): dict(zip((words[i] for i in row.get("t", [])), row.get("t_tfidf", []), strict=True))
        for row in examples(dataset, split)
    }


def of_sklearn(vectorizer: TfidfVectorizer, rows: dict[str, str]) -> dict[str, Bag]:
    matrix, names = vectorizer.transform(rows.values()), vectorizer.get_feature_names_out()
    return {
        key: {str(names[i]): float(w) for i, w in zip(row.indices, row.data, strict=True)}
        for key, row in zip(rows, matrix, strict=True)
    }


def padded(value: str, *, lengths: tuple[int, int]) -> list[str]:
    return list(of_python(text(characters=lengths), value))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "vectorizer"),
    [
        (
            "ngrams: [1, 2], frequency_threshold: 1",
            TfidfVectorizer(token_pattern=r"(?:[^\W]|[\u093e-\u094d])+", ngram_range=(1, 2)),
        ),
        (
            "characters: [2, 4]",
            TfidfVectorizer(analyzer=functools.partial(padded, lengths=(2, 4)), min_df=2),
        ),
    ],
)
def test_a_job_stores_the_weights_of_sklearn(tmp_path, options, vectorizer):
    rows = {"train": remarks(0, 200), "eval": remarks(200, 260)}
    inputs = [write(tmp_path / f"{split}.csv", split_texts) for split, split_texts in rows.items()]
    dataset = written(tmp_path, SCHEMA.replace("OPTIONS", options), *inputs)
    vectorizer.fit(rows["train"].values())
    for split, split_texts in rows.items():
        weights, expected = stored(dataset, split), of_sklearn(vectorizer, split_texts)
        assert weights.keys() == expected.keys()
        for key, bag in expected.items():
            assert weights[key] == pytest.approx(bag, rel=1e-5), split_texts[key]
    assert {} in stored(dataset, "eval").values()
