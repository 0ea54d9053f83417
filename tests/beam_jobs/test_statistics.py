"""The statistics that jobs and replays write, against pandas on the raw files."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from schemas.dataset import OpenDataset, layout
from schemas.dataset.manifest import read_manifest
from schemas.dataset.statistics import read_statistics
from schemas.errors import UsageError
from schemas.profile.statistics import Statistics
from tests.support.datasets import Folder, accounts_hold, as_good, folder_of_people
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.written_records import examples


@pytest.fixture(scope="module")
def raw(all_kinds: OpenDataset) -> pd.DataFrame:
    """The rows with their splits, which the records' keys tell."""
    rows = pd.read_csv(
        Path(all_kinds.path).parent / "people.csv", dtype=str, keep_default_na=False, na_values=["?", ""]
    )
    splits = {e["id"][0].decode(): split for split in all_kinds.splits for e in examples(all_kinds, split)}
    return rows.assign(split=rows["id"].map(splits))


def test_numbers_are_those_of_the_raw_file(all_kinds: OpenDataset, raw: pd.DataFrame) -> None:
    features = {item["name"]: item for item in read_statistics(all_kinds.path)["features"]}
    for name, column in {"age": "age", "pay": "pay", "steps": "steps", "point[p1]": "p1", "w": "w"}.items():
        for split, rows in raw.groupby("split"):
            split_statistics, expected = features[name]["splits"][split], pd.to_numeric(rows[column])
            assert (split_statistics["count"], split_statistics["missing"]) == (expected.count(), expected.isna().sum())
            assert split_statistics["mean"] == pytest.approx(expected.mean(), rel=1e-12)
            assert split_statistics["std"] == pytest.approx(expected.std(ddof=0), rel=1e-12)
            assert (split_statistics["min"], split_statistics["max"]) == (expected.min(), expected.max())
            assert split_statistics["zeros"] == (expected == 0).sum()
            assert (split_statistics["distinct"], split_statistics["distinct_exact"]) == (expected.nunique(), True)
            quantiles = dict(
                zip(split_statistics["quantiles"]["ranks"], split_statistics["quantiles"]["values"], strict=True)
            )
            assert quantiles[0.5] == expected.quantile(0.5, interpolation="lower")


def test_strings_are_those_of_the_raw_file(all_kinds: OpenDataset, raw: pd.DataFrame) -> None:
    features = {item["name"]: item for item in read_statistics(all_kinds.path)["features"]}
    assert [features[name]["role"] for name in ("id", "w", "y", "city")] == ["key", "weight", "label", "feature"]
    for name in ("city", "grade", "member", "words", "bag", "y"):
        for split, rows in raw.groupby("split"):
            split_statistics, expected = features[name]["splits"][split], rows[name].str.strip().replace("TRUE", "True")
            expected = expected.replace("?", None).replace("yes!", "yes") if name in ("city", "y") else expected
            assert (split_statistics["count"], split_statistics["missing"]) == (expected.count(), expected.isna().sum())
            tops = {top["value"]: top["count"] for top in split_statistics["top_values"]}
            assert tops == expected.value_counts().to_dict()
            assert split_statistics["length"]["mean"] == pytest.approx(expected.str.len().mean())
    for split, rows in raw.groupby("split"):
        split_statistics = features["pet"]["splits"][split]
        tops = {top["value"]: top["count"] for top in split_statistics["top_values"]}
        assert tops == {name: (rows[name] == "1").sum() for name in ("pet0", "pet1", "pet2")}


def test_the_files_are_part_of_the_dataset(all_kinds: OpenDataset) -> None:
    """So verify reads them, and prune keeps them."""
    assert {Path(file.path).name for file in all_kinds.manifest.files} >= layout.STATISTICS
    rows = {name: split.rows for name, split in all_kinds.manifest.splits.items()}
    sketches = Statistics.from_bytes(Path(all_kinds.run_dir, layout.STATISTICS_SKETCHES).read_bytes())
    assert sketches.rows == rows


def test_records_that_the_transform_rejects_are_not_described(tmp_path: Path, people_once: Folder) -> None:
    job = folder_of_people(
        tmp_path,
        LEAN_SCHEMA.replace(
            "{name: size, kind: numeric, transform: none", "{name: size, kind: numeric, transform: log"
        ),
    )
    lines = people_csv(60).splitlines()
    fields = [line.split(",") for line in lines]
    size = fields[0].index("size")
    for row in (5, 30, 31):
        fields[row][size] = "-77"
    job.raw.write_text("\n".join(map(",".join, fields)) + "\n")
    dataset = job.run(max_rejects=3)
    assert dataset.manifest.rejected == 3
    statistics = read_statistics(dataset.path)
    assert {name: split_statistics["rows"] for name, split_statistics in statistics["splits"].items()} == {
        name: split.rows for name, split in dataset.manifest.splits.items()
    }
    sizes = next(item for item in statistics["features"] if item["name"] == "size")["splits"]
    assert sum(split_statistics["count"] for split_statistics in sizes.values()) == 57
    assert min(split_statistics["min"] for split_statistics in sizes.values()) >= 0


def test_a_job_without_statistics(people: Folder, people_once: Folder) -> None:
    dataset = people.run(statistics=False, transform_from=str(people_once.output))
    assert not {Path(file.path).name for file in dataset.manifest.files} & layout.STATISTICS
    accounts_hold(dataset)
    with pytest.raises(
        UsageError, match=r"out: has no statistics\. It was written with --no_statistics; write it again"
    ):
        read_statistics(dataset.path)


def test_a_replay_on_a_dataset_without_statistics_adds_none(rejecting: OpenDataset, folder: Folder) -> None:
    without_statistics(rejecting)
    folder.replay(folder.correct(rejecting, as_good))
    manifest = read_manifest(rejecting.path)
    assert manifest.rejected == 0
    assert not {Path(file.path).name for file in manifest.files} & layout.STATISTICS


def without_statistics(dataset: OpenDataset) -> None:
    """Takes a dataset's statistics away, as if it had been written with --no_statistics."""
    manifest = dataset.manifest
    remaining_files = tuple(file for file in manifest.files if Path(file.path).name not in layout.STATISTICS)
    for file in set(manifest.files) - set(remaining_files):
        Path(dataset.path, file.path).unlink()
    changed = manifest.model_copy(update={"files": remaining_files})
    Path(dataset.path, layout.MANIFEST).write_bytes(changed.to_json())
