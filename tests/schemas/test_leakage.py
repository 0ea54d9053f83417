"""What is found among rows and images, against pandas, scikit-learn and comparing all with all."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from beam_jobs.profiles import MergeProfiles
from schemas.dataset.leakage import lines
from schemas.profile.columns import EncodedBatch
from schemas.profile.duplicates import HASH, ROWS, SPLIT, RecordHashes
from schemas.profile.leakage import LeakageProfile, RowLeakage, WatchedRows, watched_rows
from schemas.profile.leakage_findings import find, shared_values, warnings, with_two_labels
from schemas.spec.table import SPLITS
from tests.support.csv_reading import table_schema
from tests.support.samples import column_of

COUNT = 100_000
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
    profile = collected(7, watched(), age=ages, city=cities, point=np.zeros((7, 2), np.float32))
    hashes = np.asarray(profile.hashes["rows"].table.column("hash"))
    assert hashes[0] == hashes[1]
    assert hashes[2] == hashes[5] == hashes[6]
    assert len(set(hashes.tolist())) == 4


def test_hundred_thousand_rows_against_pandas_and_scikit_learn() -> None:
    drawn = np.random.default_rng(1)
    rows = frame(drawn)
    findings = found_in(rows, drawn.permutation(np.arange(0, COUNT, 7_321))[:9])
    features = ["age", "city", "x0", "x1", "copy"]

    train = rows[rows["split"] == 0]
    assert findings["rows"]["records"] == COUNT
    assert findings["rows"]["share"] == 1
    assert findings["rows"]["repeated"]["records"] == int(train.duplicated([*features, "late"]).sum())
    for second, first in ((1, 0), (2, 0), (2, 1)):
        theirs, ours = rows[rows["split"] == second], rows[rows["split"] == first]
        between = (SPLITS[first], SPLITS[second])
        assert of(findings["rows"]["equal"], between) == in_other(theirs, ours, [*features, "late"]).sum() > 0
    for overlap in findings["rows"]["equal"]:
        for record, other_record in overlap["examples"]:
            here, there = rows.loc[record["offset"]], rows.loc[other_record["offset"]]
            assert here[[*features, "late"]].equals(there[[*features, "late"]])
            assert [SPLITS[here["split"]], SPLITS[there["split"]]] == overlap["splits"]
            assert [record["file"], other_record["file"]] == [here["split"], there["split"]]

    for second, first in ((1, 0), (2, 0), (2, 1)):
        ids = set(rows[rows["split"] == first]["id"])
        between = (SPLITS[first], SPLITS[second])
        assert of(findings["keys"]["in_two_splits"], between) == rows[rows["split"] == second]["id"].isin(ids).sum()

    signals = {signal["name"]: signal for signal in findings["label"]["features"]}
    assert [name for name, signal in signals.items() if signal["leaks"]] == ["copy"]
    for name in ("age", "x0", "x1", "copy"):
        present = train[train[name].notna()]
        area = roc_auc_score(present["late"] == "yes", present[name])
        assert signals[name if name[0] != "x" else f"point[{name}]"]["auc"] == pytest.approx(
            max(area, 1 - area), abs=0.03
        )


def test_the_same_is_found_in_any_order() -> None:
    rows = frame(np.random.default_rng(2)).iloc[:30_000]
    cuts: tuple[list[int], ...] = ([], [9, 20_000], [3_000 * i for i in range(1, 10)])
    findings = [found_in(rows, np.array(cut, int), backwards=bool(i % 2)) for i, cut in enumerate(cuts)]
    assert findings[0] == findings[1] == findings[2]


def test_the_sample_is_bounded_and_a_class_of_a_few_of_its_rows_is_not_judged() -> None:
    rows = frame(np.random.default_rng(3))
    rows["late"] = np.where(np.arange(COUNT) % 500 == 0, "yes", "no")
    findings = found_in(rows, np.array([], int))
    assert findings["label"]["rows"] == 8192
    assert (findings["label"]["judged"], findings["label"]["rare_classes"]) == (False, 2)


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
    label_findings = found_in(rows, np.array([], int))["label"]
    assert (label_findings["judged"], label_findings["because"]) == (False, because)


def test_thousands_of_columns_are_judged_on_fewer_rows() -> None:
    schema = SCHEMA.replace("columns: [x0, x1]", "columns: [c0, c2999]")
    wide = watched(schema)
    drawn = np.random.default_rng(6)
    labels = drawn.integers(0, 2, 600)
    values = drawn.normal(size=(600, 3_000)).astype(np.float32)
    values[:, 77] = labels
    profile = collected(600, wide, point=values, late=[b"ny"[i : i + 1] for i in labels])
    assert len(pickle.dumps(profile)) < 24 * 2**20
    label_findings = find(profile)["label"]
    assert [feature["name"] for feature in label_findings["features"] if feature["leaks"]] == ["point[c77]"]
    assert label_findings["rows"] == 256


def collected(rows: int, of: WatchedRows, **columns: Any) -> RowLeakage:
    """The profile of rows of the train split that are alike but for their ids and these columns."""
    plain = np.zeros(rows, np.float32)
    same = {"age": plain, "city": [b"Oslo"] * rows, "copy": plain, "late": [b"no"] * rows}
    values = {"id": [b"%d" % i for i in range(rows)], **same, **columns}
    profile = RowLeakage(of)
    batch = pa.RecordBatch.from_pydict({name: column_of(cells) for name, cells in values.items()})
    profile.add(EncodedBatch(batch), np.zeros(rows, np.int8), np.zeros(rows, np.int64), np.arange(rows))
    return profile


def watched(text: str = SCHEMA) -> WatchedRows:
    return watched_rows(table_schema(text))


def frame(drawn: np.random.Generator) -> pd.DataFrame:
    """Rows of which many are equal, in one split or in two; `copy` tells the label but for a few."""
    values = {
        "age": np.where(drawn.random(COUNT) < 0.05, np.nan, drawn.integers(0, 40, COUNT)).astype(np.float32),
        "city": drawn.choice(["Oslo", "Bern", "Rome", ""], COUNT),
        "x0": drawn.integers(0, 6, COUNT).astype(np.float32),
        "x1": (drawn.integers(0, 20, COUNT) / 8).astype(np.float32),
    }
    rows = pd.DataFrame(values)
    late = drawn.random(COUNT) < 0.1
    rows["copy"] = np.where(drawn.random(COUNT) < 0.004, ~late, late).astype(np.float32)
    rows["late"] = np.where(late, "yes", "no")
    rows["split"] = drawn.choice(3, COUNT, p=[0.8, 0.1, 0.1])
    rows["id"] = [f"k{i}" for i in drawn.integers(0, 150_000, COUNT)]
    return rows


def of(overlaps: list[dict], splits: tuple[str, str]) -> int:
    """The records that two splits share."""
    return sum(overlap["records"] for overlap in overlaps if tuple(overlap["splits"]) == splits)


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
        profile = RowLeakage(watched())
        for places in np.array_split(bundle, 2):
            batch_rows = rows.iloc[places]
            if len(batch_rows):
                splits = batch_rows["split"].to_numpy()
                raw = EncodedBatch(batch_of(batch_rows))
                profile.add(raw, splits.astype(np.int8), splits.astype(np.int64), batch_rows.index.to_numpy())
        total = combine.add_input(total, pickled(profile))
    assert isinstance(total, LeakageProfile)
    return json.loads(json.dumps(find(total)))


def batch_of(rows: pd.DataFrame) -> pa.RecordBatch:
    strings = {name: [value.encode() for value in rows[name]] for name in ("id", "city", "late")}
    numbers = {
        name: rows[of].to_numpy(np.float32) for name, of in (("age", "age"), ("point", ["x0", "x1"]), ("copy", "copy"))
    }
    return pa.RecordBatch.from_pydict({name: column_of(values) for name, values in (strings | numbers).items()})


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
    findings = find(profile)
    assert findings["label"]["features"][0]["rows"] == 800
    (warning,) = warnings(findings)
    assert warning.message.startswith(
        f"copy: {message} in the train split, among the 800 of 1,000 sampled rows that have a value. If it is not"
    )
    assert "features that tell the label: copy (among 800 rows with a value)" in list(lines(findings))


WIDTH = 8 + 1 + 8 + 8  # bytes of a trace of a key


def keys(values: np.ndarray, splits: np.ndarray, budget: int, first: int = 0) -> RecordHashes:
    record_hashes = RecordHashes(ROWS, budget=budget)
    offsets = np.arange(first, first + len(values))
    record_hashes.add({HASH: values, SPLIT: splits, "file": np.zeros(len(values), np.int64), "offset": offsets})
    return record_hashes


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
    merged = RecordHashes(ROWS, budget=budget)
    for part in parts:
        merged.merge(pickle.loads(pickle.dumps(part)))
    assert (merged.records, merged.zeros) == (whole.records, whole.zeros) == (len(values), whole.zeros)
    assert merged.table.sort_by("offset").equals(whole.table.sort_by("offset"))
    assert whole.table.num_rows <= 100
    assert (np.asarray(whole.table.column(HASH)) >> np.uint64(64 - whole.zeros) == 0).all() if whole.zeros else True


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=60))
def test_shared_values_are_those_of_a_loop(records: list[tuple[int, int]]) -> None:
    values = np.array([value for value, _ in records], np.uint64)
    splits = np.array([split for _, split in records], np.int8)
    counts = np.bincount(splits, minlength=3)
    overlaps = {
        tuple(overlap["splits"]): overlap
        for overlap in shared_values(values, splits, counts, lambda place: {"place": place})
    }
    for first, second in itertools.combinations(range(3), 2):
        theirs = {value for value, split in records if split == first}
        expected = sum(value in theirs for value, split in records if split == second)
        overlap = overlaps.get((SPLITS[first], SPLITS[second]))
        assert (overlap["records"] if overlap else 0) == expected
        for a, b in ([example["place"] for example in pair] for pair in (overlap["examples"] if overlap else ())):
            assert records[a][0] == records[b][0]
            assert (records[a][1], records[b][1]) == (first, second)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_values_with_two_labels_are_those_of_a_loop(records: list[tuple[int, int]]) -> None:
    values, labels = (np.array([record[i] for record in records]) for i in (0, 1))
    count, pairs = with_two_labels(values.astype(np.uint64), labels.astype(np.int64))
    by_value: dict[int, set[int]] = {}
    for value, label in records:
        by_value.setdefault(value, set()).add(label)
    assert count == sum(len(labels) > 1 for labels in by_value.values())
    for a, b in pairs:
        assert records[a][0] == records[b][0]
        assert records[a][1] != records[b][1]
