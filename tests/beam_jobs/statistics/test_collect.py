"""Batches of raw columns to statistics by split: bundles, vectors, one-hot groups, many columns, and the bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from beam_jobs.profiles import MergeProfiles
from schemas.profile import statistics
from schemas.profile.columns import RAW, Column, columns_of, raw_apart
from schemas.profile.statistics import Statistics
from schemas.profile.statistics_files import describe
from schemas.spec.loader import load_schema
from schemas.spec.table import SPLITS
from tests.support.people import SCHEMA

NUMBER = Column("x", "numbers", "numeric", "feature", ("x",))
WORD = Column("s", "strings", "category", "label", ("s",), missing=("?", ""))
PET = Column("pet", "one_hot", "one_hot", "feature", ("pet",), values=("cat", "dog", "eel"))
COLUMNS = (NUMBER, WORD, PET)


def lists(values: np.ndarray | list[bytes]) -> pa.ListArray:
    width = values.shape[1] if isinstance(values, np.ndarray) else 1
    flat = pa.array(values.reshape(-1)) if isinstance(values, np.ndarray) else pa.array(values, pa.binary())
    return pa.ListArray.from_arrays(pa.array(np.arange(0, len(flat) + 1, width, dtype=np.int32)), flat)


def batch(rows: int, seed: int) -> tuple[pa.RecordBatch, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = np.where(draw.random(rows) < 0.2, np.nan, draw.integers(0, 50, rows)).astype(np.float32)[:, None]
    words = [[b" Oslo", b"Oslo ", b"?", b"", b"Rom"][i] for i in draw.integers(0, 5, rows)]
    pets = np.eye(3, dtype=np.float32)[draw.integers(0, 3, rows)]
    found = pa.RecordBatch.from_pydict({"x": lists(x), "s": lists(words), "pet": lists(pets)})
    return found, draw.choice([0, 2], rows).astype(np.int8)  # the split eval is empty


def collected(batches: list[tuple[pa.RecordBatch, np.ndarray]], columns: tuple[Column, ...] = COLUMNS) -> Statistics:
    statistics = Statistics(columns)
    for found, splits in batches:
        statistics.add(found, splits)
    return statistics


def test_every_split_has_the_statistics_of_its_rows() -> None:
    found, splits = batch(3000, 1)
    told = describe(collected([(found, splits)]))
    assert list(told["splits"]) == ["train", "test"]
    x, s, pet = told["features"]
    for i, name in ((0, "train"), (2, "test")):
        rows = np.flatnonzero(splits == i)
        values = np.asarray(found.column("x").flatten())[rows]
        assert told["splits"][name] == {"rows": len(rows)}
        assert x["splits"][name]["missing"] == np.isnan(values).sum()
        assert x["splits"][name]["mean"] == pytest.approx(np.nanmean(values.astype(float)))
        words = [found.column("s").flatten()[row].as_py().strip() for row in rows.tolist()]
        assert s["splits"][name]["missing"] == words.count(b"") + words.count(b"?")
        tops = {top["value"]: top["count"] for top in s["splits"][name]["top_values"]}
        assert tops == {"Oslo": words.count(b"Oslo"), "Rom": words.count(b"Rom")}
        pets = np.asarray(found.column("pet").flatten()).reshape(-1, 3)[rows].sum(0)
        tops = {top["value"]: top["count"] for top in pet["splits"][name]["top_values"]}
        assert tops == dict(zip(("cat", "dog", "eel"), pets.tolist(), strict=True))
    assert (s["role"], x["role"], pet["kind"]) == ("label", "feature", "one_hot")


def test_bundles_and_batches_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(100 + i, i) for i in range(12)]
    whole = describe(collected(batches))
    monkeypatch.setattr(statistics, "WAITING_BYTES", 3000)  # every second batch
    total = Statistics(COLUMNS)
    for i in range(0, 12, 3):
        total.merge(pickle.loads(pickle.dumps(collected(batches[i : i + 3]))))
    again = describe(total)
    for item in (*whole["features"], *again["features"]):
        for found in item["splits"].values():
            for name in {"mean", "std"} & found.keys():
                found[name] = pytest.approx(found[name], rel=1e-12)
    assert again == whole


def test_the_bytes_hold_everything() -> None:
    found = collected([batch(500, 3)])
    found.channels_of("train", "left/").add(np.array([4]), np.array([[1, 2, 3]]), np.array([[5, 6, 7]]))
    again = Statistics.from_bytes(found.to_bytes())
    assert describe(again) == describe(found)
    assert again.columns == found.columns
    assert again.channels == found.channels
    assert again.to_bytes() == found.to_bytes()
    again.merge(found)
    assert again.rows == {split: 2 * rows for split, rows in found.rows.items()}


def test_a_thousand_columns_in_bounded_bytes() -> None:
    draw = np.random.default_rng(5)
    vector = Column("v", "numbers", "numeric", "feature", tuple(f"v[{i}]" for i in range(1000)))
    matrix = draw.normal(size=(2000, 1000)).astype(np.float32)
    splits = draw.integers(0, 3, 2000).astype(np.int8)
    found = collected([(pa.RecordBatch.from_pydict({"v": lists(matrix)}), splits)], (vector,))
    assert len(found.to_bytes()) < 3 * 1000 * 8000
    told = describe(found)
    assert [item["name"] for item in told["features"]][::500] == ["v[0]", "v[500]"]
    for i in (0, 7, 999):
        for split, rows in ((name, splits == j) for j, name in enumerate(SPLITS)):
            item = told["features"][i]["splits"][split]
            assert item["mean"] == pytest.approx(matrix[rows, i].mean(dtype=float))
            assert item["max"] == matrix[rows, i].max()


def test_a_vector_of_very_many_columns_is_described_as_one() -> None:
    schema = SCHEMA.replace("columns: [p0, p2]", "columns: [p0, p9999]")
    point = next(column for column in columns_of(parsed(schema)) if column.name == "point")
    assert point.names == ("point",)
    matrix = np.arange(20_000, dtype=np.float32).reshape(2, -1)
    matrix[0, :5] = np.nan
    found = collected([(pa.RecordBatch.from_pydict({"point": lists(matrix)}), np.zeros(2, np.int8))], (point,))
    item = describe(found)["features"][0]["splits"]["train"]
    assert (item["count"], item["missing"], item["min"], item["max"]) == (19_995, 5, 5, 19_999)


def test_what_is_described_of_a_schema() -> None:
    found = {column.name: column for column in columns_of(parsed(SCHEMA))}
    assert "note" not in found  # ignored, and so not decoded
    assert "city_x_grade" not in found
    assert found["point"].names == ("point[p0]", "point[p1]", "point[p2]")
    assert found["pet"].values == ("pet0", "pet1", "pet2")
    assert [(found[name].role, found[name].reads) for name in ("id", "w", "y", "age")] == [
        ("key", "strings"),
        ("weight", "numbers"),
        ("label", "strings"),
        ("feature", "numbers"),
    ]


def test_the_columns_for_the_statistics_are_taken_apart_from_the_others() -> None:
    both = pa.RecordBatch.from_pydict({"x": [[1.0]], RAW + "x": [[7.0]]})
    rest, raw = raw_apart(both)
    assert rest.to_pydict() == {"x": [[1.0]]}
    assert raw.to_pydict() == {"x": [[7.0]]}


def parsed(text: str):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "schema.yaml")
        path.write_text(text)
        return load_schema(str(path))


def test_the_combine_merges_bundles_in_any_grouping() -> None:
    def parts() -> list[Statistics]:
        return [collected([batch(200 + i, i)]) for i in range(5)]

    combine = MergeProfiles()
    one = combine.create_accumulator()
    for part in parts():
        one = combine.add_input(one, part)
    first, *others = parts()
    alone = combine.add_input(combine.create_accumulator(), first)
    rest = combine.merge_accumulators(others)
    other = combine.merge_accumulators([combine.create_accumulator(), rest, pickle.loads(pickle.dumps(alone))])
    a, b = combine.extract_output(one), combine.extract_output(other)
    assert isinstance(a, Statistics)
    assert isinstance(b, Statistics)
    assert a.rows == b.rows
    assert sum(a.rows.values()) == sum(200 + i for i in range(5))
    for place, found in a.summaries.items():
        here, there = found.describe(20), b.summaries[place].describe(20)
        for name in {"mean", "std"} & here.keys():
            here[name] = pytest.approx(here[name], rel=1e-12)
        assert there == here
    assert combine.extract_output(combine.create_accumulator()) is None


def test_a_single_record_with_a_vector() -> None:
    vector = Column("v", "numbers", "numeric", "feature", ("v[0]", "v[1]", "v[2]"))
    values = lists(np.array([[7, np.nan, -1]], np.float32))
    told = describe(collected([(pa.RecordBatch.from_pydict({"v": values}), np.zeros(1, np.int8))], (vector,)))
    assert [item["splits"]["train"].get("max") for item in told["features"]] == [7, None, -1]
