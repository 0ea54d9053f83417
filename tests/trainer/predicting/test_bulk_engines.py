"""Bulk inference on other runners and in buckets: the same predictions, rejects and counts as on this machine."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from schemas.predictions.manifest import Predictions
from schemas.storage import folders
from tests.support import prism as prisms
from tests.support.predicted import Row, assert_whole, by_the_job, rejects_of, rows_of

pytestmark = pytest.mark.long

Run = Callable[[Path, Path, str], tuple[list[Row], list[str], Predictions]]  # of an export, on files of a folder

ENGINES = {
    "prism_disk": pytest.mark.engines,
    "local_bucket": pytest.mark.cloud,
    "prism_bucket": pytest.mark.cloud,
    "dataflow_bucket": pytest.mark.cloud,
}
SMALL = ("--range_mb", "0.02", "--batch_size", "64", "--max_rejects", "20")  # several bundles
Result = tuple[list[Row], list[str], Predictions]


def result(output: Path, manifest: Predictions) -> Result:
    """Predictions and rejects, by the names of the files alone."""
    rows = sorted(
        ({**row, "source": Path(row["source"]).name} for row in rows_of(output, manifest)),
        key=lambda row: (row["source"], row["offset"]),
    )
    rejects = sorted(
        f"{Path(r.source).name} {r.offset} {r.reason} {r.raw.rpartition(b'/')[2]!r}"
        for r in rejects_of(output, manifest)
    )
    return rows, rejects, manifest


@pytest.fixture(params=[pytest.param(name, marks=mark) for name, mark in ENGINES.items()])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Predicts on an engine. What it reads from a bucket is copied there, and what it writes is copied back."""
    runner, _, store = request.param.partition("_")
    ask = request.getfixturevalue
    with contextlib.ExitStack() as stack:
        bucket = ask("running_cloud").new_bucket() if store == "bucket" else ""
        more: tuple[str, ...] = SMALL
        if runner == "prism":
            prism = ask("prism") if store == "disk" else None
            if prism is None:  # of its own: its workers are to have the cloud's environment
                (tmp_path / "prism").mkdir()
                prism = stack.enter_context(prisms.running(tmp_path / "prism"))
            more += ("--runner", "PortableRunner", *prism.beam_args)
        elif runner == "dataflow":
            more += ("--runner", "DataflowRunner", *ask("dataflow").beam_args(bucket, setup_file=ask("setup_file")))

        def run(export: Path, files: Path, pattern: str) -> Result:
            output = tmp_path / "out"
            if not bucket:
                return result(output, by_the_job(export, output, files / pattern, more=more))
            folders.copy(str(export), f"{bucket}/export/7")
            folders.copy(str(files), f"{bucket}/in")
            manifest = in_bucket(bucket, pattern, output, more)
            return result(output, manifest)

        yield run


def in_bucket(bucket: str, pattern: str, output: Path, more: tuple[str, ...]) -> Predictions:
    """Predicts in a bucket, and copies the predictions to a folder."""
    from beam_jobs import predict as bulk
    from schemas.predictions.manifest import read_predictions

    argv = ["--saved_model", f"{bucket}/export/7", "--input", f"{bucket}/in/{pattern}", "--output", f"{bucket}/out"]
    assert bulk.main([*argv, "--quiet", *more]) == 0
    folders.copy(f"{bucket}/out", str(output))
    manifest = read_predictions(str(output))
    assert_whole(output, manifest)
    return manifest


def assert_same(found: Result, expected: Result) -> None:
    """The same records; predictions of other batches within the tolerance of `verify`."""
    for one, other in zip(found[0], expected[0], strict=True):
        here, there = (np.array(list(row.pop("probabilities").values())) for row in (one, other))
        np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-6)
        assert one == other
    assert found[1] == expected[1]
    counts = [(i.read, i.written, i.rejected) for i in sorted(found[2].inputs, key=lambda i: Path(i.path).name)]
    assert counts == [(i.read, i.written, i.rejected) for i in expected[2].inputs]


def test_rows(engine, titanic_model, titanic_csv, tmp_path):
    (tmp_path / "in").mkdir()
    header, *lines = titanic_csv.read_text().splitlines(keepends=True)
    (tmp_path / "in" / "a.csv").write_text("".join([header, *lines[:600], "too,few\n"]))
    (tmp_path / "in" / "b.csv").write_text("".join([header, *lines[600:]]))
    here = by_the_job(titanic_model.export, tmp_path / "here", tmp_path / "in" / "*.csv")
    found = engine(Path(titanic_model.export), tmp_path / "in", "*.csv")
    assert_same(found, result(tmp_path / "here", here))
    assert found[2].read == 1001


def test_images(engine, stripes_model, stripes, tmp_path):
    (tmp_path / "in").mkdir()
    for path in sorted((Path(stripes.path).parent / "raw").glob("*/*"))[:20]:
        shutil.copy(path, tmp_path / "in" / f"{path.parent.name}-{path.name}")
    (tmp_path / "in" / "none.jpg").write_text("no image")
    here = by_the_job(stripes_model.export, tmp_path / "here", tmp_path / "in" / "*")
    found = engine(Path(stripes_model.export), tmp_path / "in", "*")
    assert_same(found, result(tmp_path / "here", here))
    assert found[2].rejected == 1
