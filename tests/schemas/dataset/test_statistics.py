"""Reading, choosing and showing the statistics of a dataset, and what is said if there are none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from schemas.dataset import layout
from schemas.dataset.command import main
from schemas.dataset.manifest import read_manifest
from schemas.dataset.statistics import chosen, read_statistics, render
from schemas.dataset.tables import table
from schemas.errors import MillraceError, UsageError
from tests.support.built_once import built_once
from tests.support.dataset_faults import write_csv


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    return built_once(tmp_path_factory, "statistics", write_csv) / "out"


@pytest.fixture
def copy(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "out")
    return tmp_path / "out"


def statistics_file(data_dir: Path) -> Path:
    return data_dir / read_manifest(str(data_dir)).run / layout.STATISTICS_JSON


def test_the_command_prints_a_line_for_each_feature_and_split(
    written: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stats", str(written)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    rows = {name: split.rows for name, split in read_manifest(str(written)).splits.items()}
    assert lines[0] == ", ".join(f"{name}: {count:,} records" for name, count in rows.items())
    assert [line.split()[0] for line in lines if " train " in line and "records" not in line] == [
        *("age", "size", "point[p0]", "point[p1]", "point[p2]"),
        *("id", "y"),
    ]
    age = next(line for line in lines if line.startswith("age "))
    assert age.split()[:3] == ["age", "train", f"{found(written, 'age')['count']:,}"]
    assert "y (label)  train" in out
    assert "~" not in out  # few rows: all is exact


def found(data_dir: Path, name: str) -> dict:
    features = read_statistics(str(data_dir))["features"]
    return next(item for item in features if item["name"] == name)["splits"]["train"]


def test_json_of_one_split_and_one_feature(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(written), "--split", "eval", "--feature", "point", "y", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["splits"]) == ["eval"]
    assert [item["name"] for item in told["features"]] == ["point[p0]", "point[p1]", "point[p2]", "y"]
    assert {split for item in told["features"] for split in item["splits"]} == {"eval"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "evil"], "--split evil: is no split of this dataset; it has train, eval, test"),
        (["--feature", "agee"], "--feature agee: is no feature of this dataset; there are age, id, point, size, y"),
    ],
)
def test_names_that_are_not_there(written: Path, capsys: pytest.CaptureFixture[str], arguments, message) -> None:
    assert main(["stats", str(written), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_damaged_statistics_are_one_line(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = statistics_file(copy)
    path.write_text('{"format_version": 1, "spl')
    assert main(["stats", str(copy)]) == 1
    err = capsys.readouterr().err
    assert f"{path}: cannot be read" in err
    assert "write the dataset again" in err
    assert main(["verify", str(copy), "--quiet"]) == 1  # the manifest has its checksum
    assert layout.STATISTICS_JSON in capsys.readouterr().out
    path.write_text('{"format_version": 2}')
    with pytest.raises(MillraceError, match=r"is of format version 2; this release reads version 1"):
        read_statistics(str(copy))


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a dataset directory"):
        read_statistics(str(tmp_path))


def test_estimates_missing_values_and_odd_characters_are_shown_as_such() -> None:
    number = {
        "count": 9_000,
        "missing": 1_000,
        "mean": 1.5,
        "std": 0.25,
        "min": -1e30,
        "max": 1e30,
        "zeros": 0,
        "distinct": 5_000,
        "distinct_exact": False,
        "top_values": [],
        "top_values_error": 8,
        "quantiles": {"ranks": [0.25, 0.5, 0.75], "values": [1, 1.5, 2], "exact": False},
    }
    string = {
        "count": 4,
        "missing": 0,
        "distinct": 3,
        "distinct_exact": True,
        "top_values_error": 1,
        "length": {"mean": 2, "min": 1, "max": 40},
        "top_values": [{"value": "東京", "count": 2}, {"value": "a\nb", "count": 1}, {"value": "x" * 40, "count": 1}],
    }
    nothing = {"count": 0, "missing": 4}
    statistics = {
        "sketches": {"rank_error": 0.0068, "distinct_values": 1024, "frequent_values": 1024},
        "splits": {"train": {"rows": 10_000}},
        "features": [
            {"name": "n", "feature": "n", "role": "feature", "type": "number", "splits": {"train": number}},
            {"name": "m", "feature": "m", "role": "feature", "type": "number", "splits": {"train": nothing}},
            {"name": "s", "feature": "s", "role": "label", "type": "string", "splits": {"train": string}},
        ],
    }
    lines = render(chosen(statistics)).splitlines()
    assert next(line for line in lines if line.startswith("n ")).split() == [
        *("n", "train", "9,000", "1,000", "(10.0%)", "1.5", "0.25", "-1e+30"),
        *("~1", "~1.5", "~2", "1e+30", "~5,000"),
    ]
    assert next(line for line in lines if line.startswith("m ")).split() == ["m", "train", "0", "4", "(100.0%)"]
    word = next(line for line in lines if line.startswith("s (label)"))
    assert word.endswith(f"1-40  東京 >=50.0%, a\\nb >=25.0%, {'x' * 21}... >=25.0%")
    assert "0.7%" in lines[-1]
    assert "3.1%" in lines[-1]


def test_tables_are_aligned_by_the_width_of_characters() -> None:
    lines = list(table(("name", "rows", "x"), [("東京", "7", "left"), ("e\u0301", "1,000", "l")], last_left=True))
    assert lines == ["name   rows  x", "東京      7  left", "e\u0301     1,000  l"]
