"""Statistics of splits, against NumPy, however rows are distributed over batches and bundles."""

from __future__ import annotations

import collections
import itertools
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_jobs.profiles import MergeProfiles
from schemas.errors import MillraceError
from schemas.profile.columns import ProfiledColumn, columns_of
from schemas.profile.profiles import Profiles
from schemas.profile.statistics import RANKS, Statistics, describe
from schemas.spec.table import SPLITS
from tests.support.csv_reading import table_schema
from tests.support.people import SCHEMA
from tests.support.samples import column_of

NUMBER = ProfiledColumn("x", "numbers", "numeric", "feature", ("x",))
WORD = ProfiledColumn("s", "strings", "category", "label", ("s",), missing=("?", ""))
PET = ProfiledColumn("pet", "one_hot", "one_hot", "feature", ("pet",), values=("cat", "dog", "eel"))
PIXELS = ProfiledColumn("pixels", "numbers", "numeric", "feature", ("pixels[0]", "pixels[1]"))
COLUMNS = (NUMBER, WORD, PET, PIXELS)


def batch(rows: int, seed: int) -> tuple[pa.RecordBatch, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = np.where(draw.random(rows) < 0.2, np.nan, draw.integers(0, 50, rows)).astype(np.float32)[:, None]
    words = [[b" Oslo", b"Oslo ", b"?", b"", b"Rom"][i] for i in draw.integers(0, 5, rows)]
    pets = np.eye(3, dtype=np.float32)[draw.integers(0, 3, rows)]
    whole = draw.integers(0, 256, (rows, 2)).astype(np.float32)
    columns: dict[str, Any] = {"x": x, "s": words, "pet": pets, "pixels": whole}
    record_batch = pa.RecordBatch.from_pydict({name: column_of(values) for name, values in columns.items()})
    return record_batch, draw.choice([0, 2], rows).astype(np.int8)  # the split eval is empty


def collected(
    batches: list[tuple[pa.RecordBatch, np.ndarray]], columns: tuple[ProfiledColumn, ...] = COLUMNS
) -> Statistics:
    statistics = Statistics(columns)
    for record_batch, splits in batches:
        statistics.add(record_batch, splits)
    return statistics


def test_bundles_and_batches_make_no_difference() -> None:
    """In whatever grouping a pipeline merges them."""
    batches = [batch(100 + i, i) for i in range(12)]
    whole = describe(collected(batches))
    for item in whole["features"]:
        for description in item["splits"].values():
            description |= {
                name: pytest.approx(description[name], rel=1e-12) for name in {"mean", "std"} & description.keys()
            }

    def parts() -> list[Statistics]:
        return [pickle.loads(pickle.dumps(collected(batches[i : i + 3]))) for i in range(0, 12, 3)]

    combine = MergeProfiles()
    total = combine.create_accumulator()
    for part in parts():
        total = combine.add_input(total, part)
    first, *later_parts = parts()
    alone = combine.add_input(combine.create_accumulator(), first)
    rest = combine.merge_accumulators(later_parts)
    other_total = combine.merge_accumulators([combine.create_accumulator(), rest, alone])
    for merged in (combine.extract_output(total), combine.extract_output(other_total)):
        assert isinstance(merged, Statistics)
        assert sum(merged.rows.values()) == sum(100 + i for i in range(12))
        assert describe(merged) == whole
    assert combine.extract_output(combine.create_accumulator()) is None


def test_the_bytes_hold_everything() -> None:
    statistics = collected([batch(500, 3)])
    again = Statistics.from_bytes(statistics.to_bytes())
    assert describe(again) == describe(statistics)
    assert again.columns == statistics.columns
    assert again.to_bytes() == statistics.to_bytes()
    again.merge(statistics)
    assert again.rows == {split: 2 * rows for split, rows in statistics.rows.items()}


@pytest.mark.parametrize("units", [(300,), (0, 300, 0, 7, 5000, 0)])
def test_profiles_of_units_are_merged_in_order_and_empty_ones_left_out(tmp_path: Path, units: tuple[int, ...]) -> None:
    def unit(rows: int, seed: int) -> Profiles:
        profiles = Profiles(COLUMNS, None)
        if rows:
            profiles.add(*batch(rows, seed), np.zeros(rows, np.int64), np.arange(rows))
        return profiles

    here, there = Profiles(COLUMNS, None), Profiles(COLUMNS, None)
    for number, rows in enumerate(units):
        here.merge(unit(rows, number))
        unit(rows, number).write(str(tmp_path / "unit"))
        there.merge(Profiles.read(str(tmp_path / "unit")))
    assert here.rows == there.rows == sum(units)
    bytes_here, bytes_there = (profiles.statistics.to_bytes() for profiles in (here, there) if profiles.statistics)
    assert bytes_here == bytes_there  # whether they stay in memory or come from files
    assert os.listdir(tmp_path) == ["unit"]


def test_many_columns_in_bounded_bytes() -> None:
    draw = np.random.default_rng(5)
    vector = ProfiledColumn("v", "numbers", "numeric", "feature", tuple(f"v[{i}]" for i in range(300)))
    matrix = draw.normal(size=(2000, 300)).astype(np.float32)
    splits = draw.integers(0, 3, 2000).astype(np.int8)
    statistics = collected([(pa.RecordBatch.from_pydict({"v": column_of(matrix)}), splits)], (vector,))
    assert len(statistics.to_bytes()) < 3 * 300 * 20_000
    description = describe(statistics)
    assert [item["name"] for item in description["features"]][::200] == ["v[0]", "v[200]"]
    for i in (0, 7, 299):
        for split, rows in ((name, splits == j) for j, name in enumerate(SPLITS)):
            item = description["features"][i]["splits"][split]
            assert item["mean"] == pytest.approx(matrix[rows, i].mean(dtype=float))
            assert item["max"] == matrix[rows, i].max()


def test_a_vector_of_very_many_columns_is_described_as_one() -> None:
    schema = SCHEMA.replace("columns: [p0, p2]", "columns: [p0, p9999]")
    point = next(column for column in columns_of(table_schema(schema)) if column.name == "point")
    assert point.names == ("point",)
    matrix = np.arange(20_000, dtype=np.float32).reshape(2, -1)
    matrix[0, :5] = np.nan
    statistics = collected([(pa.RecordBatch.from_pydict({"point": column_of(matrix)}), np.zeros(2, np.int8))], (point,))
    item = describe(statistics)["features"][0]["splits"]["train"]
    assert (item["count"], item["missing"], item["min"], item["max"]) == (19_995, 5, 5, 19_999)


CELLS = st.sampled_from([0.0, -0.0, 1, 2, 254, 255, 256, 0.5, -1, np.nan])
ROW = st.tuples(st.sampled_from([0, 2]), CELLS, CELLS, CELLS)
VECTOR = ProfiledColumn("v", "numbers", "numeric", "feature", ("v[0]", "v[1]", "v[2]"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ROW, min_size=1, max_size=9), min_size=1), st.booleans())
def test_vectors_are_those_of_a_loop(lists: list[list[tuple[float, ...]]], small: bool) -> None:
    """Small whole numbers, which are counted, and others, which are sorted, in whatever batches and parts."""
    tables = [np.array(rows) for rows in lists]
    for table in tables if small else ():
        table[:, 1:] = np.where(np.isnan(table[:, 1:]), 3, abs(table[:, 1:]) // 1 % 256)
    batches = [
        (pa.RecordBatch.from_pydict({"v": column_of(table[:, 1:].astype(np.float32))}), table[:, 0].astype(np.int8))
        for table in tables
    ]
    statistics, other = (collected(batches[i::2], (VECTOR,)) for i in (0, 1))
    statistics.merge(other)
    description, every = describe(statistics), np.concatenate(tables)
    for (name, split), place in itertools.product(description["splits"].items(), range(3)):
        column = every[every[:, 0] == SPLITS.index(name), place + 1] + 0.0
        values, summary = column[~np.isnan(column)], description["features"][place]["splits"][name]
        counts = collections.Counter(values.tolist())
        assert (split["rows"], summary["count"], summary["missing"]) == (
            len(column),
            len(values),
            np.isnan(column).sum(),
        )
        if len(values):
            assert (summary["min"], summary["max"], summary["zeros"]) == (values.min(), values.max(), counts[0])
            assert (summary["mean"], summary["std"]) == pytest.approx(
                (values.mean(), values.std()), rel=1e-12, abs=1e-12
            )
            assert (summary["distinct"], summary["distinct_exact"]) == (len(counts), True)
            assert {top["value"]: top["count"] for top in summary["top_values"]} == counts
            assert summary["quantiles"]["values"] == np.quantile(values, RANKS, method="inverted_cdf").tolist()


def test_sketches_of_another_format_version_are_refused() -> None:
    data = collected([batch(9, 1)]).to_bytes()
    other = data.replace(b'"version": 1', b'"version": 2')
    with pytest.raises(MillraceError, match=r"statistics\.arrow: is of format version 2; this release reads version 1"):
        Statistics.from_bytes(other)
