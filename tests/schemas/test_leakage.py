"""What is found among rows and images, against pandas, scikit-learn and comparing all with all."""

from __future__ import annotations

import io
import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL.Image
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ImageEnhance
from sklearn.metrics import roc_auc_score

from beam_jobs.profiles import MergeProfiles
from schemas.dataset.leakage import lines
from schemas.profile import duplicates
from schemas.profile.duplicates import HASH, KEYS, SPLIT, RecordHashes
from schemas.profile.label_leaks import LEAST, LabelSignal, SampledRows, label_signals
from schemas.profile.leakage import LeakageProfile, RowCollector, WatchedRows, hash_rows, watched_rows
from schemas.profile.leakage_findings import find, warnings
from schemas.profile.near_duplicates import (
    MAX_BITS,
    NO_HASH,
    DifferenceHash,
    difference_hash,
    find_near_duplicates,
    similar_pairs,
)
from schemas.spec.table import SPLITS
from tests.support.csv_reading import table_schema
from tests.support.samples import column_of

ROWS = 100_000
SCHEMA = """\
name: visits
format: csv
csv: {header: present, missing: ["", "?"]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: none, missing: mean}
  - {name: city, kind: category}
  - {name: point, kind: numeric, columns: [x0, x1], transform: none}
  - {name: copy, kind: numeric, transform: none}
label: {name: late, kind: category}
split: {by: file, train: '*.train', eval: '*.eval', test: '*.test'}
"""


def test_the_hash_is_of_the_values() -> None:
    """Missing tokens, white space, zeros of both signs and NaN of any bits do not matter; nothing else is equal."""
    ages = np.array([0.0, -0.0, np.nan, 1, 2], np.float32)
    ages = np.concatenate([ages, np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)])
    cities = [b"Oslo", b" Oslo", b"?", b"", b"Bern", b"", b" ? "]
    found = collected(7, watched(), age=ages, city=cities, point=np.zeros((7, 2), np.float32))
    hashes = np.asarray(found.hashes["rows"].table.column("hash"))
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[5] == hashes[6]
    assert len(set(hashes.tolist())) == 4


ODD = st.sampled_from([0.0, -0.0, 1.0, 2.0, np.nan, -np.nan, 1e-45])


@given(st.integers(0, 5), st.data())
def test_rows_have_one_hash_if_they_are_equal_alone(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.tuples(*width * [ODD]), st.integers(0, 2)), min_size=1, max_size=30))
    numbers = np.array([held for held, _ in rows], np.float32).reshape(len(rows), width)
    hashes = hash_rows(numbers, [np.array([code for _, code in rows], np.uint64)]).tolist()
    alike = [(tuple(str(np.float32(x) + 0) for x in held), code) for held, code in rows]
    for (one, first), (other, second) in itertools.combinations(zip(alike, hashes, strict=True), 2):
        assert (one == other) == (first == second)


def test_hundred_thousand_rows_against_pandas_and_scikit_learn() -> None:
    drawn = np.random.default_rng(1)
    rows = frame(drawn)
    found = found_in(rows, drawn.permutation(np.arange(0, ROWS, 7_321))[:9])
    features = ["age", "city", "x0", "x1", "copy"]

    train = rows[rows["split"] == 0]
    assert found["rows"]["records"] == ROWS
    assert found["rows"]["share"] == 1
    assert found["rows"]["repeated"]["records"] == int(train.duplicated(features).sum())
    for second, first in ((1, 0), (2, 0), (2, 1)):
        theirs, ours = rows[rows["split"] == second], rows[rows["split"] == first]
        same, same_but_for_label = (
            in_other(theirs, ours, columns).sum() for columns in ([*features, "late"], features)
        )
        between = (SPLITS[first], SPLITS[second])
        assert of(found["rows"]["equal"], between) == same > 0
        assert of(found["rows"]["equal_but_for_label"], between) == same_but_for_label - same > 0
    for each in found["rows"]["equal"]:
        for one, other in each["examples"]:
            here, there = rows.loc[one["offset"]], rows.loc[other["offset"]]
            assert here[[*features, "late"]].equals(there[[*features, "late"]])
            assert [SPLITS[here["split"]], SPLITS[there["split"]]] == each["splits"]
            assert [one["file"], other["file"]] == [here["split"], there["split"]]

    for second, first in ((1, 0), (2, 0), (2, 1)):
        ids = set(rows[rows["split"] == first]["id"])
        between = (SPLITS[first], SPLITS[second])
        assert of(found["keys"]["in_two_splits"], between) == rows[rows["split"] == second]["id"].isin(ids).sum()

    told = {each["name"]: each for each in found["label"]["features"]}
    assert [name for name, each in told.items() if each["leaks"]] == ["copy"]
    for name in ("age", "x0", "x1", "copy"):
        present = train[train[name].notna()]
        area = roc_auc_score(present["late"] == "yes", present[name])
        assert told[name if name[0] != "x" else f"point[{name}]"]["auc"] == pytest.approx(max(area, 1 - area), abs=0.03)


def test_the_same_is_found_in_any_order() -> None:
    rows = frame(np.random.default_rng(2)).iloc[:30_000]
    cuts: tuple[list[int], ...] = ([], [9, 20_000], [3_000 * i for i in range(1, 10)])
    found = [found_in(rows, np.array(cut, int), backwards=bool(i % 2)) for i, cut in enumerate(cuts)]
    assert found[0] == found[1] == found[2]


def test_the_sample_is_bounded_and_a_class_of_a_few_of_its_rows_is_not_judged() -> None:
    rows = frame(np.random.default_rng(3))
    rows["late"] = np.where(np.arange(ROWS) % 500 == 0, "yes", "no")
    found = found_in(rows, np.array([], int))
    assert found["label"]["rows"] == 8192
    assert (found["label"]["judged"], found["label"]["rare_classes"]) == (False, 2)


@pytest.mark.parametrize(
    ("labels", "because"),
    [
        (["no"] * 400, "it has one class"),
        ([f"c{i}" for i in range(1001)], "it has more than 1,000 classes"),
        (["no"] * 400 + ["yes"] * 5, "no class and its rest have 30 rows each in the train split"),
    ],
)
def test_a_label_that_cannot_be_judged(labels: list[str], because: str) -> None:
    rows = frame(np.random.default_rng(4)).iloc[: len(labels)].assign(late=labels, split=0)
    found = found_in(rows, np.array([], int))["label"]
    assert (found["judged"], found["because"]) == (False, because)


def test_columns_that_are_missing_everywhere_are_not_judged() -> None:
    rows = frame(np.random.default_rng(5)).iloc[:1000].assign(age=np.nan, city="", split=0)
    names = {each["name"] for each in found_in(rows, np.array([], int))["label"]["features"]}
    assert names == {"point[x0]", "point[x1]", "copy"}


def test_ten_thousand_columns_are_judged_on_fewer_rows() -> None:
    schema = SCHEMA.replace("columns: [x0, x1]", "columns: [c0, c9999]")
    wide = watched(schema)
    drawn = np.random.default_rng(6)
    labels = drawn.integers(0, 2, 600)
    values = drawn.normal(size=(600, 10_000)).astype(np.float32)
    values[:, 77] = labels
    profile = collected(600, wide, point=values, late=[b"ny"[i : i + 1] for i in labels])
    assert len(pickle.dumps(profile)) < 24 * 2**20
    found = find(profile, wide)["label"]
    assert [each["name"] for each in found["features"] if each["leaks"]] == ["point[c77]"]
    assert found["rows"] == 256


def test_a_profile_is_the_same_after_pickling() -> None:
    """Without a row of the train split, with strings alone, with numbers alone, and more classes than are judged."""
    few = SCHEMA.replace("  - {name: age, kind: numeric, transform: none, missing: mean}\n", "")
    strings = few.replace("  - {name: point, kind: numeric, columns: [x0, x1], transform: none}\n", "").replace(
        "  - {name: copy, kind: numeric, transform: none}\n", ""
    )
    plain, other = watched(strings), watched(few)
    wide = [b"%d" % i for i in range(2000)]
    for of, profile in (
        (plain, collected(500, plain)),
        (other, collected(500, other, point=np.arange(1000, dtype=np.float32).reshape(500, 2))),
        (other, collected(2000, other, point=np.full((2000, 2), np.nan, np.float32), late=wide)),
    ):
        again = pickled(profile)
        assert again.hashes["rows"].table.equals(profile.hashes["rows"].table)
        assert find(again, of) == find(profile, of)
        again.merge(profile)
        assert again.hashes["rows"].records == 2 * profile.hashes["rows"].records


def collected(rows: int, of: WatchedRows, **columns: Any) -> LeakageProfile:
    """The profile of rows of the train split that are alike but for their ids and these columns."""
    plain = np.zeros(rows, np.float32)
    same = {"age": plain, "city": [b"Oslo"] * rows, "copy": plain, "late": [b"no"] * rows}
    values = {"id": [b"%d" % i for i in range(rows)], **same, **columns}
    collector = RowCollector(of)
    batch = pa.RecordBatch.from_pydict({name: column_of(held) for name, held in values.items()})
    collector.add(batch, np.zeros(rows, np.int8), np.zeros(rows, np.int64), np.arange(rows))
    assert collector.profile is not None
    return collector.profile


def watched(text: str = SCHEMA) -> WatchedRows:
    return watched_rows(table_schema(text))


def frame(drawn: np.random.Generator) -> pd.DataFrame:
    """Rows of which many are equal, in one split or in two; `copy` tells the label but for a few."""
    values = {
        "age": np.where(drawn.random(ROWS) < 0.05, np.nan, drawn.integers(0, 40, ROWS)).astype(np.float32),
        "city": drawn.choice(["Oslo", "Bern", "Rome", ""], ROWS),
        "x0": drawn.integers(0, 6, ROWS).astype(np.float32),
        "x1": (drawn.integers(0, 20, ROWS) / 8).astype(np.float32),
    }
    rows = pd.DataFrame(values)
    late = drawn.random(ROWS) < 0.1
    rows["copy"] = np.where(drawn.random(ROWS) < 0.004, ~late, late).astype(np.float32)
    rows["late"] = np.where(late, "yes", "no")
    rows["split"] = drawn.choice(3, ROWS, p=[0.8, 0.1, 0.1])
    rows["id"] = [f"k{i}" for i in drawn.integers(0, 150_000, ROWS)]
    return rows


def of(found: list[dict], splits: tuple[str, str]) -> int:
    """The records that two splits share."""
    return sum(each["records"] for each in found if tuple(each["splits"]) == splits)


def in_other(theirs: pd.DataFrame, ours: pd.DataFrame, columns: list[str]) -> pd.Series:
    """Which of `theirs` have an equal row in `ours`, by a merge."""
    keys = ours[columns].drop_duplicates().assign(there=True)
    return theirs.merge(keys, on=columns, how="left")["there"].notna()


def pickled(profile: LeakageProfile) -> LeakageProfile:
    """As it comes from another of Beam's workers, or from a child of a local job."""
    return pickle.loads(pickle.dumps(profile))


def found_in(rows: pd.DataFrame, cuts: np.ndarray, *, backwards: bool = False) -> dict:
    """What is found in rows, cut into bundles of two batches. The file is the split, the offset the row."""
    combine = MergeProfiles()
    total = combine.create_accumulator()
    bundles = np.split(np.arange(len(rows)), np.sort(cuts))
    for bundle in reversed(bundles) if backwards else bundles:
        collector = RowCollector(watched())
        for places in np.array_split(bundle, 2):
            some = rows.iloc[places]
            if len(some):
                splits = some["split"].to_numpy()
                collector.add(batch_of(some), splits.astype(np.int8), splits.astype(np.int64), some.index.to_numpy())
        if collector.profile is not None:
            total = combine.add_input(total, pickled(collector.profile))
    assert isinstance(total, LeakageProfile)
    return json.loads(json.dumps(find(total, watched())))


def batch_of(rows: pd.DataFrame) -> pa.RecordBatch:
    strings = {name: [value.encode() for value in rows[name]] for name in ("id", "city", "late")}
    numbers = {
        name: rows[of].to_numpy(np.float32) for name, of in (("age", "age"), ("point", ["x0", "x1"]), ("copy", "copy"))
    }
    return pa.RecordBatch.from_pydict({name: column_of(values) for name, values in (strings | numbers).items()})


DRAWN = 3000


def sampled(labels: np.ndarray, numbers: list[np.ndarray], codes: list[np.ndarray]) -> SampledRows:
    rows = len(labels)
    fitting = np.random.default_rng(9).integers(0, 2, rows).astype(bool)
    matrix = np.stack(numbers, axis=1).astype(np.float32) if numbers else np.empty((rows, 0), np.float32)
    strings = np.stack(codes, axis=1).astype(np.uint64) if codes else np.empty((rows, 0), np.uint64)
    return SampledRows(labels, matrix, strings, fitting)


def told(rows: SampledRows) -> dict[str, LabelSignal]:
    numbers = [f"n{i}" for i in range(rows.numbers.shape[1])]
    strings = [f"s{i}" for i in range(rows.codes.shape[1])]
    return {signal.name: signal for signal in label_signals(rows, numbers, strings)}


@pytest.mark.parametrize("separation", [0.0, 0.5, 2.0, 6.0])
def test_the_auc_of_numbers_is_scikit_learns(separation: float) -> None:
    """Of a feature that rises with the label, of one that falls, of one with many ties."""
    drawn = np.random.default_rng(1)
    y = drawn.integers(0, 2, DRAWN)
    x = drawn.normal(size=DRAWN) + separation * y
    found = told(sampled(y, [x, -x, np.round(x)], []))
    expected = [max(a, 1 - a) for a in (roc_auc_score(y, v.astype(np.float32)) for v in (x, -x, np.round(x)))]
    # A score of bins, which is judged on half of the rows, may be larger by chance.
    assert [found[f"n{i}"].value for i in range(3)] == pytest.approx(expected, abs=0.02)
    assert all(found[f"n{i}"].value >= expected[i] - 1e-12 for i in range(3))


@pytest.mark.parametrize(
    ("shares", "means", "scale"), [([0.5, 0.3, 0.15, 0.05], [0, 1, 2, 3], 0.3), ([0.9, 0.08, 0.02], [0, 1, 3], 1.0)]
)
def test_the_auc_of_classes_is_that_of_one_against_the_rest(shares, means, scale) -> None:
    drawn = np.random.default_rng(2)
    y = drawn.choice(len(shares), DRAWN, p=shares)
    x = np.array(means)[y] + drawn.normal(scale=scale, size=DRAWN)
    signal = told(sampled(y, [x], []))["n0"]
    of_class = np.array([roc_auc_score(y == c, x.astype(np.float32)) for c in range(len(shares))])
    best = np.maximum(of_class, 1 - of_class)
    assert signal.value == pytest.approx(best.max(), abs=0.01)
    assert signal.of in np.flatnonzero(best > best.max() - 0.01)


def test_strings_are_judged_on_rows_that_they_were_not_fitted_to() -> None:
    drawn = np.random.default_rng(4)
    y = drawn.integers(0, 2, DRAWN)
    copy, noise, unique = 7 + 3 * y, drawn.integers(1, 30, DRAWN), np.arange(1, DRAWN + 1)
    found = told(sampled(y, [], [copy, noise, unique]))
    assert found["s0"].value == 1
    assert found["s1"].value == pytest.approx(0.5, abs=0.05)
    assert found["s2"].value == pytest.approx(0.5, abs=0.01)  # a name for each row tells nothing


def test_numbers_that_tell_in_another_way_than_by_their_order() -> None:
    drawn = np.random.default_rng(5)
    y = drawn.integers(0, 2, DRAWN)
    beyond = np.where(y == 1, drawn.choice([-1, 1], DRAWN) * drawn.uniform(2, 3, DRAWN), drawn.uniform(-1, 1, DRAWN))
    missing = np.where(y == 1, np.nan, drawn.normal(size=DRAWN))  # written for one class only
    some = np.where(drawn.random(DRAWN) < 0.5, np.nan, drawn.normal(size=DRAWN))
    found = told(sampled(y, [beyond, missing, some], []))
    assert found["n0"].value > 0.99
    assert (found["n1"].value, found["n1"].rows) == (1, DRAWN)
    assert found["n2"].value < 0.56


def test_a_copy_of_the_label_with_blanks_is_judged_on_the_rows_that_have_a_value() -> None:
    drawn = np.random.default_rng(10)
    y = drawn.integers(0, 3, DRAWN)
    gone = drawn.random(DRAWN) < 0.3
    found = told(sampled(y, [np.where(gone, np.nan, 7.0 - y)], [np.where(gone, 0, y + 5)]))
    for each in found.values():
        assert (each.overall, each.rows) == (1.0, int(np.count_nonzero(~gone)))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "b"], "alone it predicts late with an AUC of 1.0000"),
        ([f"{v / 7:.4f}" for v in range(1, 300)], "its correlation with late is 1.00000"),
    ],
    ids=["classes", "numbers"],
)
def test_the_warning_says_how_many_rows_have_a_value(labels: list[str], message: str) -> None:
    """A feature that is the logarithm of the label, or a number for each class, and missing in a fifth of the rows."""
    numbers = len(labels) > 2
    schema = SCHEMA.replace("late, kind: category", "late, kind: numeric") if numbers else SCHEMA
    places = np.random.default_rng(3).integers(0, len(labels), 1000)
    told_by = np.where(np.arange(1000) % 5 == 0, np.nan, np.log1p(places)).astype(np.float32)
    late = [float(labels[i]) if numbers else labels[i].encode() for i in places]
    point = np.zeros((1000, 2), np.float32)
    profile = collected(
        1000, watched(schema), point=point, copy=told_by, late=np.array(late, np.float32) if numbers else late
    )
    found = find(profile, watched(schema))
    assert found["label"]["features"][0]["rows"] == 800
    (warning,) = warnings(found)
    assert warning.message.startswith(
        f"copy: {message} in the train split, among the 800 of 1,000 sampled rows that have a value. If it is not"
    )
    assert "features that tell the label: copy (among 800 rows with a value)" in list(lines(found))


def test_a_column_of_a_table_is_judged_as_if_it_were_alone() -> None:
    """Columns of few values, of many, of one, with and without missing ones."""
    drawn = np.random.default_rng(8)
    y = drawn.integers(0, 3, DRAWN)
    x = drawn.normal(size=(24, DRAWN)) + y * drawn.random((24, 1))
    x[::2] = np.round(x[::2], 1)
    x[::3] = np.round(x[::3])
    x[::4, drawn.random(DRAWN) < 0.2] = np.nan
    x[5], x[7] = 1, np.nan
    of_all = told(sampled(y, list(x), []))
    of_each = {f"n{i}": found for i, column in enumerate(x) for found in told(sampled(y, [column], [])).values()}
    assert of_all.keys() == of_each.keys() == {f"n{i}" for i in range(24)} - {"n5", "n7"}
    for name, found in of_all.items():
        assert (found.value, found.overall) == pytest.approx((of_each[name].value, of_each[name].overall), abs=1e-12)


@pytest.mark.parametrize(("rows", "expected"), [(LEAST - 1, []), (LEAST, [1])])
def test_too_few_rows_are_not_judged(rows: int, expected: list[float]) -> None:
    y = np.repeat([0, 1], [1000, rows])
    assert [found.value for found in told(sampled(y, [y.astype(float)], [])).values()] == expected


def test_correlations_are_those_of_pandas() -> None:
    drawn = np.random.default_rng(6)
    label = drawn.gamma(2, size=DRAWN)
    columns = [label, np.exp(label), -label + drawn.normal(scale=0.5, size=DRAWN), drawn.normal(size=DRAWN)]
    columns = [column.astype(np.float32).astype(np.float64) for column in columns]
    found = {each.name: each.value for each in label_signals(sampled(label, columns, []), ["a", "b", "c", "d"], [])}
    for name, column in zip("abcd", columns, strict=True):
        both = pd.DataFrame({"column": column, "label": label})
        pearson, spearman = (both.corr(method).loc["column", "label"] for method in ("pearson", "spearman"))
        assert found[name] == pytest.approx(max(abs(pearson), abs(spearman)), abs=1e-9)


def test_correlation_of_strings_and_of_what_is_mostly_missing() -> None:
    drawn = np.random.default_rng(7)
    groups = drawn.integers(1, 50, DRAWN)
    label = groups * 2.5
    gone = np.where(drawn.random(DRAWN) < 0.9, np.nan, np.log(label))
    codes = np.where(drawn.random(DRAWN) < 0.5, 0, groups)  # of strings, 0 is a missing one
    every = np.full(DRAWN, np.nan)
    rows = sampled(label, [gone, every], [groups, np.arange(DRAWN), codes])
    found = {each.name: each for each in label_signals(rows, ["gone", "every"], ["s", "id", "codes"])}
    assert found["s"].value == pytest.approx(1)
    assert found["id"].value < 0.1
    assert found["gone"].value == pytest.approx(1)
    assert found["gone"].rows == int(np.isfinite(gone).sum())
    assert found["codes"].value == pytest.approx(1)
    assert found["codes"].rows == int(np.count_nonzero(codes))
    assert "every" not in found
    assert list(label_signals(sampled(np.ones(DRAWN), [label], []), ["a"], [])) == []


WIDTH = 8 + 1 + 8 + 8  # bytes of a trace of a key


def keys(values: np.ndarray, splits: np.ndarray, budget: int, first: int = 0) -> RecordHashes:
    found = RecordHashes(KEYS, budget=budget)
    offsets = np.arange(first, first + len(values))
    found.add({HASH: values, SPLIT: splits, "file": np.zeros(len(values), np.int64), "offset": offsets})
    return found


@given(st.lists(st.integers(1, 400), min_size=1, max_size=6), st.integers(0, 2**32), st.randoms())
def test_what_is_kept_depends_on_the_records_alone(sizes: list[int], seed: int, order) -> None:
    drawn = np.random.default_rng(seed)
    values = drawn.integers(0, 2**64, sum(sizes), np.uint64, endpoint=False)
    splits = drawn.integers(0, 3, len(values)).astype(np.int8)
    budget = 100 * WIDTH
    whole = keys(values, splits, budget)
    starts = np.cumsum([0, *sizes])
    parts = [keys(values[start:end], splits[start:end], budget, start) for start, end in itertools.pairwise(starts)]
    order.shuffle(parts)
    merged = RecordHashes(KEYS, budget=budget)
    for part in parts:
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert (merged.records, merged.zeros) == (whole.records, whole.zeros) == (len(values), whole.zeros)
    assert duplicates.ordered(merged.table, "offset").equals(duplicates.ordered(whole.table, "offset"))
    assert whole.table.num_rows <= 100
    assert (np.asarray(whole.table.column(HASH)) >> np.uint64(64 - whole.zeros) == 0).all() if whole.zeros else True


def test_equal_records_of_a_sample_are_found_together() -> None:
    """Of 100,000 values in two splits, a sixteenth is looked at, and all of these are known to be equal."""
    values = np.random.default_rng(1).integers(0, 2**64, 100_000, np.uint64, endpoint=False)
    both = keys(np.concatenate([values, values]), np.repeat([0, 1], 100_000).astype(np.int8), budget=16_000 * WIDTH)
    assert both.share == 1 / 16
    table = both.table
    splits = np.asarray(table.column(SPLIT))
    (found,) = duplicates.shared(np.asarray(table.column(HASH)), splits, duplicates.counts(splits))
    assert found.records == found.of == table.num_rows // 2
    assert found.of == pytest.approx(100_000 / 16, rel=0.05)


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 9), max_size=60))
def test_rows_that_occur_twice_are_those_of_a_loop(values: list[int]) -> None:
    table = keys(np.array(values, np.uint64), np.zeros(len(values), np.int8), budget=2**20).table
    places = duplicates.occurring_twice(table).column("offset").to_pylist()
    assert places == [place for place, value in enumerate(values) if values.count(value) > 1]
    assert duplicates.repeated(np.array(values, np.uint64)) == len(values) - len(set(values))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=60))
def test_shared_values_are_those_of_a_loop(records: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in records], np.uint64)
    splits = np.array([split for _, split in records], np.int8)
    found = {each.splits: each for each in duplicates.shared(values, splits, duplicates.counts(splits))}
    for first, second in itertools.combinations(range(3), 2):
        theirs = {value for value, split in records if split == first}
        expected = sum(value in theirs for value, split in records if split == second)
        each = found.get((SPLITS[first], SPLITS[second]))
        assert (each.records if each else 0) == expected
        for a, b in each.pairs if each else ():
            assert records[a][0] == records[b][0]
            assert (records[a][1], records[b][1]) == (first, second)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_values_with_two_labels_are_those_of_a_loop(records: list[tuple[int, int]]) -> None:
    values, labels = (np.array([record[i] for record in records]) for i in (0, 1))
    count, pairs = duplicates.with_two_labels(values.astype(np.uint64), labels.astype(np.int64))
    by_value: dict[int, set[int]] = {}
    for value, label in records:
        by_value.setdefault(value, set()).add(label)
    assert count == sum(len(labels) > 1 for labels in by_value.values())
    for a, b in pairs:
        assert records[a][0] == records[b][0]
        assert records[a][1] != records[b][1]


SIZE = 160


def brute_force(across: np.ndarray, down: np.ndarray) -> dict[tuple[int, int], int]:
    """The near pairs, by comparing all with all."""
    words = [int(a) << 64 | int(b) for a, b in zip(across, down, strict=True)]
    bits = {(i, j): (words[i] ^ words[j]).bit_count() for i, j in itertools.combinations(range(len(words)), 2)}
    return {pair: count for pair, count in bits.items() if count <= MAX_BITS}


def test_near_pairs_are_those_of_comparing_all_with_all() -> None:
    drawn = np.random.default_rng(3)
    words = drawn.integers(0, 2**64, (150, 2), np.uint64, endpoint=False)
    copies = words[:120].copy()
    for i, copy in enumerate(copies):
        for bit in drawn.choice(128, i % 12, replace=False):
            copy[bit // 64] ^= np.uint64(1) << np.uint64(bit % 64)
    across, down = np.concatenate([words, copies]).T
    found = pairs_of(across.copy(), down.copy())
    expected = brute_force(across, down)
    assert found.items() <= expected.items()
    missed = [n for pair, n in expected.items() if pair not in found]
    assert not [n for n in missed if n <= 7]
    assert len(missed) <= 0.1 * sum(n > 7 for n in expected.values())


def pairs_of(across: np.ndarray, down: np.ndarray) -> dict[tuple[int, int], int]:
    return {
        (a, b): n
        for chunk in similar_pairs(across, down)
        for a, b, n in zip(*(part.tolist() for part in chunk), strict=True)
    }


def test_images_alike_are_those_of_comparing_all_with_all() -> None:
    """Looks with few bits, so that many are equal or near; digests of which some are equal, whose looks are, too."""
    drawn = np.random.default_rng(5)
    digests = drawn.integers(0, 60, 90).astype(np.uint64)
    halves = [np.array([[0, 1, 3, 7, 0xFFFFFFFF][drawn.integers(5)] for _ in range(60)], np.uint64) for _ in range(2)]
    across, down = (half[digests.astype(int)] for half in halves)
    splits = drawn.integers(0, 3, 90).astype(np.int8)
    near = brute_force(across, down)
    found = {each.splits: each for each in find_near_duplicates(digests, across, down, splits)}
    for first, second in itertools.combinations_with_replacement(range(3), 2):
        expected = 0
        for i in np.flatnonzero(splits == second).tolist():
            others = [j for j in np.flatnonzero(splits == first).tolist() if j != i]
            like = [j for j in others if digests[j] != digests[i] and (min(i, j), max(i, j)) in near]
            equal = first != second and any(digests[j] == digests[i] for j in others)
            expected += bool(like) and not equal
        each = found.get((SPLITS[first], SPLITS[second]))
        assert (each.records if each else 0) == expected
        for a, b in each.pairs if each else ():
            assert digests[a] != digests[b]
            assert (splits[a], splits[b]) == (first, second)
            assert (min(a, b), max(a, b)) in near


def test_very_many_images_of_one_look() -> None:
    """Half of them files of their own, as frames of a film are."""
    digests = np.arange(100_000, dtype=np.uint64) // 2
    splits = (np.arange(100_000) // 3 % 2).astype(np.int8)
    looks = np.zeros(100_000, np.uint64)
    found = {each.splits: each.records for each in find_near_duplicates(digests, looks, looks, splits)}
    assert found["train", "train"] == int((splits == 0).sum())
    equal = np.isin(digests[splits == 1], digests[splits == 0])
    assert found["train", "eval"] == int((~equal).sum())


def test_plain_and_tiny_images_have_no_look() -> None:
    assert not difference_hash(np.full((64, 64, 3), 200, np.uint8)).clear
    half = np.zeros((64, 64, 3), np.uint8)
    half[:, 32:] = 255
    assert not difference_hash(half).clear
    assert difference_hash(np.zeros((8, 300, 3), np.uint8)) == NO_HASH
    assert difference_hash(np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)).clear


@pytest.mark.parametrize(
    "shape", [(9, 9, 3), (71, 200, 3), (72, 90, 3), (143, 300, 3), (144, 35, 3), (257, 31, 3), (500, 11, 3)]
)
def test_a_look_is_which_cells_are_darker_than_their_neighbours(shape: tuple[int, int, int]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)
    rows = pixels[:: max(1, len(pixels) // 72)]  # about 72 of them are looked at
    bands = [rows[i * len(rows) // 9 : (i + 1) * len(rows) // 9] for i in range(9)]
    width = shape[1]
    cells = [[band[:, j * width // 9 : (j + 1) * width // 9].mean() for j in range(9)] for band in bands]
    across = "".join(str(int(cells[i][j] < cells[i][j + 1])) for i in range(8) for j in range(8))
    down = "".join(str(int(cells[i][j] < cells[i + 1][j])) for i in range(8) for j in range(8))
    found = difference_hash(pixels)
    assert (f"{found.across:064b}", f"{found.down:064b}") == (across, down)


def photos(folder: Path) -> list[PIL.Image.Image]:
    cats_dogs = sorted(folder.glob("images/*/*"))[:120]
    faces = [sorted(person.iterdir())[0] for person in sorted(folder.glob("lfw/*"))]
    return [PIL.Image.open(path).convert("RGB") for path in (*cats_dogs, *faces)]


def look(image: PIL.Image.Image) -> DifferenceHash:
    return difference_hash(np.asarray(image.convert("RGB").resize((SIZE, SIZE), PIL.Image.Resampling.BICUBIC)))


def recompressed(image: PIL.Image.Image) -> PIL.Image.Image:
    data = io.BytesIO()
    image.save(data, "JPEG", quality=40)
    return PIL.Image.open(data)


COPIES = {
    "resized": lambda image: image.resize((image.width // 2, image.height // 2), PIL.Image.Resampling.LANCZOS),
    "recompressed": recompressed,
    "brightened": lambda image: ImageEnhance.Brightness(image).enhance(1.15),
    "grey": lambda image: image.convert("L"),
}


def arrays(looks: list[DifferenceHash]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([x.across for x in looks], np.uint64), np.array([x.down for x in looks], np.uint64)


@pytest.mark.parametrize("change", COPIES.values(), ids=COPIES)
def test_copies_of_photos_are_found_and_different_photos_are_not(real_data: Path, change) -> None:
    images = photos(real_data)
    looks = [look(image) for image in images]
    assert all(each.clear for each in looks)
    assert pairs_of(*arrays(looks)) == {}  # all are different
    found = set(pairs_of(*arrays([*looks, *(look(change(image)) for image in images)])))
    own = {(i, i + len(images)) for i in range(len(images))}
    assert found <= own
    assert len(found) >= 0.97 * len(images)
