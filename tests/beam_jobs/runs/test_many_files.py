"""Jobs of more files than a manifest lists, than one part of the staging has, and than the launcher opens."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.core import inputs
from beam_jobs.core.options import JobOptions
from beam_jobs.engines import runner
from beam_jobs.preprocess import main
from beam_jobs.rows import ranges, source
from schemas import storage
from schemas.dataset import OpenDataset, layout, manifest
from schemas.dataset.manifest import read_inputs
from schemas.dataset.show import describe, render
from schemas.dataset.verify import verify_dataset
from schemas.errors import MillraceError
from schemas.samples import command
from tests.support.datasets import BAD, FEW, FEW_HEADER, Folder, as_good, contents, rejects_of, written

pytestmark = pytest.mark.long
SCALE_PAGE = Path(__file__).parents[3] / "docs" / "scale.md"


def twenty_files(path: Path) -> Folder:
    """Of two rows each, four of the rows invalid."""
    made = Folder(path)
    for i in range(0, 40, 2):
        made.write(f"raw/{i:02d}.csv", [FEW_HEADER, *BAD[i : i + 2]])
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return twenty_files(tmp_path)


def limit(patch: pytest.MonkeyPatch) -> None:
    """As if twenty files were a million."""
    patch.setattr(manifest, "INLINE", 3)
    patch.setattr(inputs, "FILES_A_PART", 4)
    patch.setattr(ranges, "FILES_AT_ONCE", 2)
    patch.setattr(source, "SAMPLED_HERE", 3)


def run(folder: Folder) -> OpenDataset:
    return folder.job(FEW, str(folder.path / "raw/*.csv"), max_rejects=4)


@pytest.fixture(scope="session")
def many(share) -> Folder:
    """The dataset of twenty files as if they were a million, written once. Not to be changed."""

    def build(path: Path) -> None:
        with pytest.MonkeyPatch.context() as patch:
            limit(patch)
            run(twenty_files(path))

    return Folder(share("many_files", build))


@pytest.fixture
def dataset(many: Folder, tmp_path: Path) -> OpenDataset:
    """The same: a copy of its own for each test."""
    shutil.copytree(many.output, tmp_path / "out")
    return Folder(tmp_path).dataset


class TestOfManyFiles:
    @pytest.fixture(autouse=True)
    def _limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limit(monkeypatch)

    def test_the_manifest_names_files_that_hold_the_inputs(self, many):
        dataset = many.dataset
        manifest = dataset.manifest
        assert (manifest.inputs, manifest.counts, manifest.headers) == ((), (), ())
        assert (manifest.number_of_inputs, manifest.read, manifest.rejected) == (20, 40, 4)
        assert len(manifest.input_files) == 5
        assert set(manifest.input_files) <= {file.path for file in manifest.files}
        assert verify_dataset(dataset.path) == []
        parts = list(read_inputs(dataset.path, manifest))
        files = {file.path: (part, file) for part in parts for file in part.inputs}
        assert sorted(files) == sorted(map(str, (many.path / "raw").glob("*.csv")))
        for part, file in files.values():
            assert (file.read, file.written + file.rejected, file.encoding) == (2, 2, "utf-8")
            assert part.header_of(file) == tuple(FEW_HEADER.split(","))
        assert sum(total.rows for total in manifest.totals if total.outcome == "rejected") == 4

    def test_the_records_are_those_of_a_manifest_that_lists_them(self, many, tmp_path, monkeypatch):
        monkeypatch.undo()
        few = written(tmp_path, FEW, str(many.path / "raw/*.csv"), max_rejects=4)
        assert len(few.manifest.inputs) == 20
        assert contents(few) == contents(many.dataset)
        rejects = [sorted(reject.to_json() for reject in rejects_of(dataset)) for dataset in (few, many.dataset)]
        assert rejects[0] == rejects[1]

    def test_show_says_where_they_are_listed(self, many):
        shown = describe(many.dataset.path)
        assert (shown["input_count"], shown["inputs"], len(shown["input_files"])) == (20, [], 5)
        assert "20 inputs, listed in " in render(shown)
        assert sum(reject["rows"] for reject in shown["rejects"]) == 4

    def test_corrected_rejects_are_replayed_and_replayed_again(self, dataset, tmp_path):
        folder = Folder(tmp_path)
        first = rejects_of(dataset)[0].raw
        assert folder.replay(folder.correct(dataset, lambda r: as_good(r) if r.raw == first else None)).added == 1
        assert folder.replay(folder.correct(folder.dataset, as_good)).added == 3
        after = folder.dataset
        assert (after.manifest.written, after.manifest.rejected) == (40, 0)
        assert verify_dataset(after.path) == []
        assert [total.outcome for total in after.manifest.totals] == ["written"] * len(after.splits)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda part: part["inputs"][0].update(read=9), r"9 records read, \d written"),
            (lambda part: part["inputs"].pop(), "is not an input of this dataset"),
            (lambda part: part["inputs"].append(part["inputs"][0]), "names the input .* 2 times"),
            (lambda part: part["counts"][0].update(rows=-1), r"counts\.0\.rows.* greater than or equal to 0"),
        ],
    )
    def test_a_changed_file_of_inputs_is_found(self, dataset, change: Callable[[Any], None], message: str):
        path = Path(dataset.path) / next(name for name in dataset.manifest.input_files)
        part = json.loads(path.read_text())
        change(part)
        path.write_text(json.dumps(part))
        messages = [issue.message for issue in verify_dataset(dataset.path)]
        assert any(re.search(message, text) for text in messages), messages

    def test_a_file_that_does_not_match_the_schema_is_named_although_it_was_not_sampled(self, folder, capsys):
        paths = sorted((folder.path / "raw").glob("*.csv"))
        keys = sorted(paths, key=lambda path: storage.file_key(str(path)))
        keys[-1].write_text("id,age,y\nk1,2,no\n")  # the last in the order of the sample
        folder.write("schema.yaml", [FEW])
        arguments = ["--schema", str(folder.path / "schema.yaml"), "--input", f"{folder.path}/raw/*.csv"]
        assert main([*arguments, "--output", str(folder.output), "--quiet"]) == 2
        line = capsys.readouterr().err.strip()
        assert str(keys[-1]) in line
        assert "city" in line
        assert not (folder.output / layout.MANIFEST).exists()


def test_a_file_that_changes_after_it_was_listed_fails_the_job(folder, monkeypatch):
    path = folder.path / "raw/00.csv"
    started = runner.started

    def later(*arguments: Any) -> Any:
        path.write_text(path.read_text() + "k99,21,a,no\n")
        return started(*arguments)

    monkeypatch.setattr(runner, "started", later)
    with pytest.raises(MillraceError, match=r"00.csv: changed while it was being read"):
        run(folder)


def test_the_pipeline_of_a_cluster_is_as_large_for_many_files_as_for_one(folder, monkeypatch):
    """Of images, and of rows in large files: ranges are cut by the workers."""
    import apache_beam as beam

    sizes: list[int] = []

    class Built(Exception):
        pass

    def build_only(_: JobOptions, build: Callable[[beam.Pipeline], None], last: Any) -> None:
        pipeline = beam.Pipeline()
        build(pipeline)
        sizes.append(len(pipeline.to_runner_api().SerializeToString()))
        raise Built

    monkeypatch.setattr(runner, "started", build_only)
    schema = folder.write("schema.yaml", [FEW])
    for pattern, range_mb in (("raw/00.csv", 8.0), ("raw/*.csv", 8.0), ("raw/*.csv", 1e-6)):
        with pytest.raises(Built):
            folder.run(schema=schema, input=(f"{folder.path}/{pattern}",), range_mb=range_mb, runner="PrismRunner")
    assert max(sizes) - min(sizes) < 300  # bytes: numbers of other lengths
    command.main(["covertype", f"{folder.path}/covertype.csv", "--rows", "500"])
    with pytest.raises(Built):
        folder.run(schema="covertype", input=(f"{folder.path}/covertype.csv",), runner="PrismRunner")
    (stated,) = re.findall(r"([\d,]+) bytes for 1,000 CSV files", SCALE_PAGE.read_text())
    assert sizes[-1] == pytest.approx(
        int(stated.replace(",", "")), rel=0.1
    )  # versions of Python and Beam differ a little
