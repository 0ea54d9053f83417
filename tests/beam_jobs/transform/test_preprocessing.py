"""The transform that a schema implies: what it measures, and what it makes of values."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from hypothesis import example, given
from hypothesis import strategies as st

from beam_jobs.transform.preprocessing import (
    Preprocessing,
    clean,
    lower,
    padded,
    steps_of,
    text_tokens,
    transform_cross,
)
from beam_jobs.transform.vocabularies import UniqueValues
from schemas.dataset.statistics import read_statistics
from schemas.spec.features import Bool, Category, CategoryLabel, Cross, Feature, Label, Text
from tests.support.csv_reading import table_schema
from tests.support.datasets import rejects_of, written, written_rows
from tests.support.written_records import examples

ROWS = 400
FEATURES = """\
  - {name: z_median, column: a, kind: numeric, transform: z_score, missing: median}
  - {name: z_median_too, column: d2, kind: numeric, transform: z_score, missing: median}
  - {name: min_max_mean, column: b, kind: numeric, transform: min_max, missing: mean}
  - {name: min_max_mean_too, column: c2, kind: numeric, transform: min_max, missing: mean}
  - {name: plain_constant, column: c, kind: numeric, transform: none, missing: -1}
  - {name: log_median, column: d, kind: numeric, transform: log, missing: median}
  - {name: z_vector, columns: [v0, v1], kind: numeric, transform: z_score, missing: mean, indicator: true}
  - {name: bucket_vector, columns: [u0, u1], kind: numeric, transform: {bucketize: 3}, missing: mean}
  - {name: constant, column: e, kind: numeric, transform: z_score}
  - {name: nothing, column: f, kind: numeric, transform: min_max, missing: 2}
  - {name: id, kind: key}
"""
HEADER = "id,a,b,c,d,c2,d2,v0,v1,u0,u1,e,f,y"


def raw(i: int) -> dict[str, float | str]:
    """Row i; NaN is missing."""
    gone = float("nan")
    return {
        "id": f"k{i}",
        "a": gone if i % 9 == 0 else i * 1.5,
        "b": gone if i % 10 == 1 else float(i),
        "c": gone if i % 5 == 2 else float(i),
        "d": gone if i % 7 == 3 else float(i % 13),
        "c2": gone if i % 5 == 3 else float(3 * i),
        "d2": gone if i % 11 == 3 else float(i % 17),
        "v0": gone if i % 6 == 0 else i + 0.5,
        "v1": float(-i),
        "u0": gone if i % 8 == 0 else float(i),
        "u1": float(i * i),
        "e": 5.0,
        "f": gone,
        "y": i * 2.0,
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, float | str], dict[str, list[float]]]]:
    """(raw row, stored example) pairs; all rows train but a few that evaluate, so that statistics are known."""
    folder = tmp_path_factory.mktemp("preprocessing")
    schema = f"name: t\nformat: csv\ncsv: {{header: present}}\nfeatures:\n{FEATURES}"
    schema += "label: {name: y, kind: numeric}\nsplit: {by: file, train: train.csv, eval: eval.csv}\n"
    write(folder / "train.csv", range(ROWS))
    write(folder / "eval.csv", range(ROWS, ROWS + 20))
    dataset = written(folder, schema, str(folder / "train.csv"), str(folder / "eval.csv"))
    examples_by_key = {e["id"][0]: e for s in dataset.splits for e in examples(dataset, s)}
    return [(raw(i), examples_by_key[f"k{i}".encode()]) for i in range(ROWS + 20)]


def write(path: Path, rows: range) -> None:
    lines = [",".join("" if str(v) == "nan" else str(v) for v in raw(i).values()) for i in rows]
    path.write_text("\n".join([HEADER, *lines]) + "\n")


@functools.cache
def train_values(column: str) -> np.ndarray:
    """What the train split holds of a column, without what is missing."""
    values = np.array([raw(i)[column] for i in range(ROWS)], float)
    return values[~np.isnan(values)]


Statistic = Callable[[np.ndarray], float]


def filled(value: object, statistic: Statistic, column: str) -> float:
    number = float(value)  # type: ignore[arg-type]
    return statistic(train_values(column)) if np.isnan(number) else number


# What the feature is made of, what fills its gaps, what is made of a value and those of `train`, and how exactly.
SCALED: dict[str, tuple[str, Statistic, Callable[[float, np.ndarray], float], float]] = {
    "z_median": ("a", np.median, lambda value, train: (value - train.mean()) / train.std(), 0.01),
    "min_max_mean": ("b", np.mean, lambda value, train: (value - train.min()) / (train.max() - train.min()), 1e-4),
    "z_median_too": ("d2", np.median, lambda value, train: (value - train.mean()) / train.std(), 0.02),
    "min_max_mean_too": ("c2", np.mean, lambda value, train: (value - train.min()) / (train.max() - train.min()), 1e-4),
    "plain_constant": ("c", lambda _: -1.0, lambda value, _: value, 0.0),
    "log_median": ("d", np.median, lambda value, _: np.log1p(value), 1e-5),
    "constant": ("e", np.mean, lambda *_: 0.0, 0.0),  # without spread
    "nothing": ("f", lambda _: 2.0, lambda value, _: value, 0.0),  # no value at all, so it is not scaled
    "y": ("y", np.mean, lambda value, _: value, 0.0),  # a numeric label
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCALED)
def test_a_number_is_filled_and_scaled(stored, name):
    column, fill, scale, exact = SCALED[name]
    for row, out in stored:
        expected = scale(filled(row[column], fill, column), train_values(column))
        assert out[name] == [pytest.approx(expected, abs=exact, rel=0)]


@pytest.mark.slow
def test_a_vector_is_scaled_column_by_column(stored):
    for row, out in stored:
        expected = []
        for column in ("v0", "v1"):
            values = train_values(column)
            expected.append((filled(row[column], np.mean, column) - values.mean()) / values.std())
        assert out["z_vector"] == pytest.approx(expected, abs=1e-4)
        assert out["z_vector_missing"] == [float(row["v0"] != row["v0"]), 0.0]


@pytest.mark.slow
def test_a_vector_is_bucketized_column_by_column(stored):
    buckets = np.array([out["bucket_vector"] for row, out in stored[:ROWS] if row["u0"] == row["u0"]])
    for column in range(2):
        counts = np.bincount(buckets[:, column])
        assert len(counts) == 3
        assert counts.min() > 0.25 * len(buckets)


class TestStrings:
    """The graph interprets strings as the reader does."""

    @pytest.mark.parametrize(
        ("text", "lowered"),
        [
            ("Ab", "ab"),
            ("JÁ", "já"),
            ("ΟΔΟΣ", "οδος"),
            ("Big\0Cat", "big\0cat"),  # TensorFlow's own ends a string at its first NUL
            ("\0A", "\0a"),
            ("A\0\0", "a\0\0"),
            ("", ""),
        ],
    )
    def test_lower_case_by_unicode_to_the_last_byte(self, text, lowered):
        assert lower(tf.constant([text, "X"])).numpy().tolist() == [lowered.encode(), b"x"]

    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            (["a", "", "b c d e", " f  g "], [[1, 0, 0], [0, 0, 0], [2, 3, 4], [6, 7, 0]]),
            (["", " "], [[0, 0, 0], [0, 0, 0]]),
            ([], np.zeros((0, 3)).tolist()),
        ],
    )
    def test_words_are_cut_and_padded_to_the_length_of_the_text(self, texts, expected):
        words = text_tokens(Text(name="t", kind="text", length=3), tf.constant(texts, tf.string), missing=())
        numbered = tf.SparseTensor(words.indices, tf.range(1, 1 + tf.size(words.values)), words.dense_shape)
        assert padded(numbered, 3).numpy().tolist() == expected

    @pytest.mark.parametrize("sent", ["?", " ?\t", "n/a", ""])
    def test_a_token_that_means_missing_is_compared_without_white_space_around_it(self, sent):
        assert clean(tf.constant([sent, "x"]), ("", " ?", "n/a ")).numpy().tolist() == [b"", b"x"]

    @pytest.mark.slow
    def test_tokens_of_a_bool_in_any_script_and_case(self, tmp_path):
        schema = (
            "name: t\nformat: csv\ncsv: {header: present}\nfeatures:\n"
            '  - {name: id, kind: key}\n  - {name: member, kind: bool, true: ["JÁ", " yes "], false: [nein]}\n'
            "  - {name: title, kind: text, length: 2}\n"
            "label: {name: y, kind: numeric}\nsplit: {by: file, train: rows.csv}\n"
        )
        words = ["jÁ", "YES", "Nein"]
        rows = [f"k{i},{words[i % 3]},{'Big' + chr(0) + 'Cat' if i % 2 else 'BIG'} x,1" for i in range(30)]
        dataset = written_rows(tmp_path, schema, "id,member,title,y", rows)
        stored = {e["id"][0]: e for e in examples(dataset, "train")}
        assert [stored[f"k{i}".encode()]["member"] for i in range(3)] == [[1.0], [1.0], [0.0]]
        assert stored[b"k0"]["title"] != stored[b"k1"]["title"]  # two words, not one that ends at the NUL


GIVEN_LABEL = "{name: y, kind: category, values: [a, b]}"
MEASURED = (
    "kind: numeric",  # z_score
    "kind: numeric, transform: min_max",
    "kind: numeric, transform: log, missing: mean",
    "kind: numeric, transform: none, missing: median",
    "kind: numeric, transform: none, clip: [0.01, 0.99]",
    "kind: numeric, transform: {bucketize: 3}",
    "kind: category",
    "kind: text",
)
NOT_MEASURED = (
    "kind: numeric, transform: log",
    "kind: numeric, transform: none, missing: 0",
    "kind: numeric, transform: {scale: [0, 255]}",
    "kind: numeric, transform: {bucketize: [1, 2]}",
    "kind: category, values: [a]",
    "kind: category, hash_buckets: 9",
    "kind: bool",
    "columns: [x0, x2], kind: one_hot",
)


@pytest.mark.parametrize(
    ("features", "label", "measured"),
    [
        *(((feature,), GIVEN_LABEL, True) for feature in MEASURED),
        (("kind: bool",), "{name: y, kind: category}", True),
        (NOT_MEASURED, GIVEN_LABEL, False),
        (NOT_MEASURED, "{name: y, kind: numeric}", False),
        ((*NOT_MEASURED, "kind: numeric"), GIVEN_LABEL, True),
    ],
)
def test_the_train_split_is_read_for_what_is_measured_alone(features, label, measured) -> None:
    lines = "".join(f"  - {{name: f{i}, {feature}}}\n" for i, feature in enumerate(features))
    text = f"name: t\nformat: csv\ncsv: {{header: present}}\nfeatures:\n{lines}label: {label}\n"
    split = "split: {by: row, train: 0.8, eval: 0.1, test: 0.1}\n"
    assert Preprocessing(table_schema(text + split)).measures == measured


MANY = """\
name: many
format: csv
csv: {header: present}
features:
FEATURES
  - {name: id, kind: key}
label: {name: y, kind: category, values: ["0", "1"]}
split: {by: [id], train: 0.8, eval: 0.1, test: 0.1}
"""


def many(features: list[str]) -> str:
    return MANY.replace("FEATURES", "\n".join(features))


def ranged(x: np.ndarray, train: np.ndarray) -> np.ndarray:
    return (np.where(np.isnan(x), -7.0, x) - train.min()) / (train.max() - train.min())


BOTH = "clip: [0.05, 0.99]"
CLIPPED = {  # what is declared of the same values in each column, and what NumPy makes of clipped ones
    "plain": (f"{BOTH}, transform: none, missing: mean", lambda x, train: np.where(np.isnan(x), train.mean(), x)),
    "scored": (f"{BOTH}, transform: z_score, missing: mean", lambda x, train: (x - train.mean()) / train.std()),
    "ranged": (f"{BOTH}, transform: min_max, missing: -7", ranged),
    "logged": (f"{BOTH}, transform: log, missing: median", lambda x, _: np.log1p(x)),
    "cut": (f"{BOTH}, transform: {{bucketize: [5, 6]}}, missing: 0", lambda x, _: np.searchsorted([5, 6], x, "right")),
    # a number that takes the place of missing ones is not clipped
    "low": ("clip: [0.1, 1], transform: none, missing: 1e9", lambda x, _: x),
    "high": ("clip: [0, 0.8], transform: none, missing: 1e9", lambda x, _: x),
}


def test_clipped_at_quantiles_of_the_train_split(tmp_path: Path):
    """Bounds are values of the train split, of about this rank; all that is measured is of clipped values."""
    random = np.random.default_rng(3)
    train, rest = random.normal(5, 2, 2_000).astype(np.float32), np.array([-1e9, -5, 5.5, 1e9], np.float32)
    train[::400] = 1e7, -1e7, -2, 3e7, -1e8
    train[7], rest = np.nan, np.append(rest, np.float32(np.nan))
    for name, values in (("train", train), ("eval", rest)):
        cells = [["" if np.isnan(v) else repr(float(v))] * len(CLIPPED) for v in values]
        lines = [",".join([*CLIPPED, "id", "y"]), *(f"{','.join(row)},{i},{i % 2}" for i, row in enumerate(cells))]
        (tmp_path / f"{name}.csv").write_text("\n".join(lines) + "\n")
    features = [f"  - {{name: {name}, kind: numeric, {declared}}}" for name, (declared, _) in CLIPPED.items()]
    schema = many(features)
    schema = schema[: schema.index("split:")] + "split: {by: file, train: train.csv, eval: eval.csv}\n"
    dataset = written(tmp_path, schema, str(tmp_path / "train.csv"), str(tmp_path / "eval.csv"))
    stored = {split: sorted(examples(dataset, split), key=lambda e: int(e["id"][0])) for split in ("train", "eval")}
    columns = {n: {split: np.array([e[n][0] for e in rows]) for split, rows in stored.items()} for n in CLIPPED}
    train_numbers = train[~np.isnan(train)]
    bounds = {}
    for name, shares in (("plain", (0.05, 0.99)), ("low", (0.1, 1.0)), ("high", (0.0, 0.8))):
        inside = columns[name]["eval"][[0, 3]]  # of values beyond all others
        bounds[name] = np.where(np.isin(shares, (0, 1)), (-np.inf, np.inf), inside)
        for share, bound in zip(shares, bounds[name], strict=True):
            if np.isfinite(bound):
                assert bound in train_numbers
                assert np.mean(train_numbers < bound) <= share + 0.001  # tf.Transform's error
                assert np.mean(train_numbers <= bound) >= share - 0.001
    for name, (declared, of) in CLIPPED.items():
        low, high = bounds.get(name, bounds["plain"])
        for split, values in (("train", train), ("eval", rest)):
            expected = of(np.clip(values, low, high), np.clip(train_numbers, low, high).astype(np.float64))
            fill = {"z_score": 0.0, "log": np.log1p(np.median(train_numbers)), "bucketize": 0, "1e9": 1e9}
            missing = next((value for word, value in fill.items() if word in declared), None)
            expected = np.where(np.isnan(values), expected if missing is None else missing, expected)
            np.testing.assert_allclose(columns[name][split], expected, rtol=1e-4, atol=2e-3, err_msg=name)
    statistics = json.loads((Path(dataset.run_dir) / "statistics.json").read_text())
    assert "1e+08" in json.dumps(statistics) or "100000000" in json.dumps(statistics)  # of the raw values


def test_a_column_without_a_value_has_one_finite_value_beside_others(tmp_path: Path) -> None:
    """tf.Transform measures NaN, or fails, where it measures such a column with others."""
    transforms = ("none", "z_score", "min_max", "log", "{bucketize: 3}")
    declared = [f"transform: {t}, missing: {missing}" for missing in ("mean", "median", "3.5") for t in transforms]
    names, features = [], []
    for i, words in enumerate(declared):
        names += [f"none{i}", f"some{i}", f"vec{i}x0", f"vec{i}x1"]
        features += [f"  - {{name: {name}{i}, kind: numeric, {words}}}" for name in ("none", "some")]
        features.append(f"  - {{name: both{i}, columns: [vec{i}x0, vec{i}x1], kind: numeric, {words}}}")
    empty = [name.startswith("none") or name.endswith("x0") for name in names]
    lines = (",".join(["" if gone else f"{i}" for gone in empty]) + f",k{i},{i % 2}" for i in range(60))
    dataset = written_rows(tmp_path, many(features), ",".join([*names, "id", "y"]), lines)
    stored = [example for split in ("train", "eval", "test") for example in examples(dataset, split)]
    assert len(stored) == 60
    for i in range(len(declared)):
        (value,) = {example[f"none{i}"][0] for example in stored}
        assert np.isfinite(value)
        assert all(np.isfinite(example[f"both{i}"]).all() for example in stored)
    assert {example["none0"][0] for example in stored} == {0.0}  # the mean of no value
    assert {example["some0"][0] for example in stored} == set(range(60))


OWN_TOKENS = """\
name: own
format: csv
csv: {header: present, missing: [NA, ""]}
features:
  - {name: country, kind: category, missing_tokens: [""]}
  - {name: city, kind: category, missing: nowhere}
  - {name: size, kind: numeric, transform: none, missing: 7.0, missing_tokens: ["-999", "-"]}
  - {name: note, kind: text, missing_tokens: [none]}
  - {name: code, kind: key, missing_tokens: [NA]}
label: {name: y, kind: category, missing_tokens: ["?"]}
split: {by: row, train: 1.0, eval: 0.0, test: 0.0}
"""


def test_a_column_has_its_own_tokens_of_missing_values(tmp_path: Path):
    """NA is Namibia in one column, and missing in another."""
    rows = ["NA,NA,-999,NA none,a,NA", "NE,Oslo,-,none,b,x", ",Oslo,1,a,c,x", "NG,,NA,a,d,x", "NG,,2,a,e,?"]
    dataset = written_rows(tmp_path, OWN_TOKENS, "country,city,size,note,code,y", rows, max_rejects=3)
    stored = {example["code"][0]: example for example in examples(dataset, "train")}
    reasons = {(reject.raw[-3:-2], reject.column, reject.reason) for reject in rejects_of(dataset)}
    assert reasons == {
        (b"c", "country", "missing_value"),
        (b"d", "size", "not_a_number"),
        (b"e", "y", "missing_label"),
    }
    words = {
        n: set(tft.TFTransformOutput(dataset.run_dir).vocabulary_by_name(n)) for n in ("country", "city", "note", "y")
    }
    assert words == {
        "country": {b"NA", b"NE"},
        "city": {b"nowhere", b"Oslo"},
        "note": {b"na", b"none"},
        "y": {b"NA", b"x"},
    }
    assert {code: example["size"] for code, example in stored.items()} == {b"a": [7.0], b"b": [7.0]}
    statistics = read_statistics(dataset.path)["features"]
    described = {item["name"]: item["splits"]["train"]["missing"] for item in statistics}
    assert described == {"country": 0, "city": 1, "size": 2, "note": 1, "code": 0, "y": 0}


def test_buckets_that_are_alike_have_each_a_declared_range(tmp_path: Path) -> None:
    """By which a training sizes their embeddings."""
    buckets = {"a": "3", "b": "3", "c": "[10, 20]", "d": "[10, 20]"}
    features = [f"  - {{name: {n}, kind: numeric, transform: {{bucketize: {b}}}}}" for n, b in buckets.items()]
    lines = (f"{i},{-i},{i},{-i},k{i},{i % 2}" for i in range(60))
    dataset = written_rows(tmp_path, many(features), "a,b,c,d,id,y", lines)
    described = tft.TFTransformOutput(dataset.run_dir).transformed_metadata.schema.feature
    assert {f.name: f.int_domain.max for f in described if f.name in buckets} == dict.fromkeys(buckets, 2)


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
    words = isinstance(item, Category | Bool)
    return steps.prepare(UniqueValues.of(raw).map(lambda values: clean(values, MISSING)) if words else raw)


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
