"""What a server stored of a schema whose files have no header: compared with the dataset, labelled, appended to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs.compare import main as compare
from beam_jobs.core.options import AppendOptions, JobOptions
from beam_jobs.runs.append import run_append
from beam_jobs.runs.job import run_job
from millrace.label import command
from millrace.store.columns import ServedBatch
from schemas.dataset import open_dataset
from schemas.samples.tables import covertype_rows
from tests.conftest import built_once
from tests.support.stored_requests import write_store

SCHEMA = Path(__file__).parents[2] / "schemas" / "covertype.yaml"
ROWS, BATCH = 400, 100
Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return covertype_rows(ROWS, np.random.default_rng(1))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, rows: np.ndarray) -> Path:
    """A dataset of these rows. Not to be changed."""

    def build(folder: Path) -> None:
        preprocess(folder, "rows.csv", rows, "out")

    return built_once(tmp_path_factory, "covertype_served", build) / "out"


def preprocess(folder: Path, name: str, rows: np.ndarray, output: str) -> None:
    np.savetxt(folder / name, rows, fmt="%d", delimiter=",")
    run_job(JobOptions(schema=str(SCHEMA), input=(str(folder / name),), output=str(folder / output), quiet=True))


def store(folder: Path, rows: np.ndarray) -> Path:
    """Stores requests with these rows, whose ids are their places."""
    batches = []
    for start in range(0, len(rows), BATCH):
        some = rows[start : start + BATCH].astype(np.float32)
        ids = [f"r{start + i}" for i in range(len(some))]
        columns = {"terrain": some[:, :10], "wilderness_area": some[:, 10:14], "soil_type": some[:, 14:54]}
        outputs = {"class": np.full(len(some), b"1", object), "error": np.full(len(some), b"", object)}
        batches.append(ServedBatch(ids, [True] * len(some), columns, outputs, "7", [1.8e9] * len(some), 1.8e9))
    write_store(folder, SCHEMA.read_bytes(), *batches, classes=())
    return folder


def higher(rows: np.ndarray) -> np.ndarray:
    return rows + 300 * (np.arange(rows.shape[1]) == 0)


def one_area(rows: np.ndarray) -> np.ndarray:
    changed = rows.copy()
    changed[:, 10:14] = (0, 0, 0, 1)
    return changed


@pytest.mark.parametrize(
    ("change", "drifted"),
    [(np.copy, []), (higher, ["terrain[0]"]), (one_area, ["wilderness_area"])],
    ids=["the same rows", "a shifted number", "another share of a one-hot group"],
)
def test_compared_with_the_dataset(
    dataset: Path,
    rows: np.ndarray,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Change,
    drifted: list[str],
) -> None:
    folder = store(tmp_path / "store", change(rows))
    code = compare([str(dataset), str(folder / "*.csv"), "--drift", "0.1", "--json", "--quiet"])
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["raw"] == {"files": 1, "read": ROWS, "rejected": {}, "complete": True, "lacks": ["cover_type"]}
    (found,) = data["comparisons"]
    assert len(found["features"]) == 12
    assert [feature["name"] for feature in found["features"] if feature["verdict"] == "fail"] == drifted
    assert code == (1 if drifted else 0)


def test_rows_that_could_not_be_read_are_rejected_where_they_are_compared(
    dataset: Path, rows: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the job would reject them: they are no values of any feature."""
    folder = store(tmp_path / "store", rows)
    widths = {"terrain": 10, "wilderness_area": 4, "soil_type": 40}
    row = {name: [1] + [0] * (width - 1) for name, width in widths.items()}
    wrong = [{**row, "terrain": ["high", *row["terrain"][1:]]}, {**row, "soil_type": 1}, {"terrain": [0] * 10}, None]
    columns = {name: np.full((len(wrong), width), np.nan, np.float32) for name, width in widths.items()}
    outputs = {"class": np.full(len(wrong), b"", object), "error": np.full(len(wrong), b"wrong", object)}
    ids, times = list("abcd"), [1.8e9] * len(wrong)
    sent = {i: json.dumps(each).encode() for i, each in enumerate(wrong)}
    batch = ServedBatch(ids, [True] * len(wrong), columns, outputs, "7", times, 1.8e9, sent)
    write_store(folder, SCHEMA.read_bytes(), batch, classes=())
    assert compare([str(dataset), str(folder / "*.csv"), "--drift", "0.1", "--json", "--quiet"]) == 0
    raw: dict[str, Any] = json.loads(capsys.readouterr().out)["raw"]
    assert (raw["read"], sum(raw["rejected"].values())) == (ROWS + len(wrong), len(wrong))


def test_labelled_and_appended(rows: np.ndarray, tmp_path: Path) -> None:
    new = covertype_rows(BATCH, np.random.default_rng(2))
    preprocess(tmp_path, "rows.csv", rows, "out")
    store(tmp_path / "store", new)
    (tmp_path / "labels.csv").write_text("_id,cover_type\n" + "".join(f"r{i},{row[54]}\n" for i, row in enumerate(new)))
    places = {"store": "store", "join": "labels.csv", "output": "labelled"}
    assert command.main([arg for name, at in places.items() for arg in (f"--{name}", str(tmp_path / at))]) == 0
    labelled = tmp_path / "labelled" / "labelled-000001.csv"
    assert (np.loadtxt(labelled, delimiter=",", quotechar='"') == new).all()
    run_append(AppendOptions(append_to=str(tmp_path / "out"), input=(str(labelled),), quiet=True))
    grown = open_dataset(str(tmp_path / "out")).manifest
    assert (sum(split.rows for split in grown.splits.values()), grown.rejected) == (ROWS + BATCH, 0)
