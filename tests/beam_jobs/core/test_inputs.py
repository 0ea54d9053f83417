"""The inputs of a job: found by their keys, and each file once, however often it is named."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from beam_jobs import preprocess
from beam_jobs.core.inputs import InputFile, stage_inputs
from beam_jobs.core.options import JobOptions
from beam_jobs.images import pipeline
from beam_jobs.images.source import ImageSource
from beam_jobs.runs.job import check_inputs
from schemas.dataset.manifest import read_manifest
from schemas.errors import MillraceError, UsageError
from schemas.rejects import Reject
from schemas.storage import file_key
from tests.support.image_files import write_folders
from tests.support.people import LEAN_SCHEMA, people_csv


@pytest.fixture(autouse=True)
def of_ten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of some ten files each."""
    monkeypatch.setattr("beam_jobs.core.inputs.FILES_A_PART", 10)


def inputs(count: int) -> list[InputFile]:
    files = [InputFile(file_key(f"file {i}\udcff"), f"file {i}\udcff", i, f"v{i}", i or None) for i in range(count)]
    return sorted(files, key=lambda file: file.key)


@pytest.mark.parametrize(("count", "parts"), [(0, 1), (1, 1), (10, 1), (11, 2), (95, 10)])
def test_every_input_is_in_the_part_that_its_key_says(tmp_path, count, parts):
    files = inputs(count)
    staged = stage_inputs(str(tmp_path), iter(files), count=count)
    assert staged.parts == parts
    assert [file for part in range(parts) for file in staged.read(part)] == files
    for file in files:
        assert file in staged.read(staged.part_of(file.key))
        assert staged.path_of(file.key) == file.path


def test_a_key_of_no_input(tmp_path):
    staged = stage_inputs(str(tmp_path), inputs(5), count=5)
    with pytest.raises(MillraceError, match="no input has the key 3"):
        staged.path_of(3)


FOLDERS = "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}}\n"
LISTED = "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, listing: csv, root: raw}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def options(schema: str, *inputs: str) -> JobOptions:
    Path("schema.yaml").write_text(schema)
    return JobOptions(schema="schema.yaml", input=inputs, output="out", quiet=True)


def test_a_csv_file_under_five_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.csv").write_text(people_csv(300))
    Path("soft.csv").symlink_to("x.csv")
    os.link("x.csv", "hard.csv")
    names = ["x.csv", "./x.csv", str(folder / "x.csv"), "soft.csv", "hard.csv", "x*"]
    Path("schema.yaml").write_text(LEAN_SCHEMA)
    assert preprocess.main(["--schema", "schema.yaml", "--output", "out", "--quiet", "--input", *names]) == 0
    manifest = read_manifest("out")
    assert [file.path for file in manifest.inputs] == ["x.csv"]
    assert manifest.read == 300
    out, err = capsys.readouterr()
    for other in names[1:5]:
        assert f"x.csv and {other} are the same file; it is read once\n" in err
        assert f"note       x.csv and {other} are the same file; it is read once\n" in f"{out}\n"


def test_images(capsys: pytest.CaptureFixture[str]) -> None:
    write_folders(Path("raw"), per_class=5)
    image = sorted(Path("raw/disc").iterdir())[0]
    (image.parent / "again.png").symlink_to(image.name)
    inputs = check_inputs(options(FOLDERS, "raw/*/*", "./raw/disc/*"))
    assert isinstance(inputs, ImageSource)
    paths = [path for bundle in inputs.bundles() for path in bundle.paths]
    assert len(paths) == len(set(map(os.path.realpath, paths)))
    assert "are the same file; it is read once" in capsys.readouterr().err


def test_an_image_in_the_folders_of_two_labels_is_refused() -> None:
    write_folders(Path("raw"), per_class=5)
    disc, *other_folders = sorted(Path("raw").iterdir())
    image = sorted(disc.iterdir())[0]
    os.link(image, other_folders[0] / image.name.replace(".", "-again."))
    with pytest.raises(
        UsageError, match=f"the same file in the folders of two labels, '{disc.name}' and '{other_folders[0].name}'"
    ):
        check_inputs(options(FOLDERS, "raw/*/*"))


def test_lines_of_a_listing_that_name_an_image_again_are_records() -> None:
    write_folders(Path("raw"), per_class=5)
    names = [str(path.relative_to("raw")) for path in sorted(Path("raw").glob("*/*"))]
    lines = [f"{name},{name.split('/')[0]}\n" for name in names]
    Path("list.csv").write_text("".join([*lines, lines[0], f"./{lines[1]}"]))
    inputs = check_inputs(options(LISTED, "list.csv"))
    assert isinstance(inputs, ImageSource)
    assert inputs.total == len(names) + 2
    late = [Reject("list.csv", place, "encode", "x", None, "", b"") for place in (3, 0)]
    pipeline.stage_images("staging", inputs.bundles())
    described = inputs.described(inputs.stage("staging"))
    assert described.raw_bytes(late) == [lines[3].strip().encode(), lines[0].strip().encode()]


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: Path(path).symlink_to("nowhere"), lambda p: Path(p).touch()])
def test_an_output_that_is_no_folder_is_refused(make) -> None:
    Path("x.csv").write_text(people_csv(10))
    make("out")
    before = os.lstat("out")
    with pytest.raises(UsageError, match="--output out: is not a folder"):
        check_inputs(options(LEAN_SCHEMA, "x.csv"))
    assert os.path.samestat(os.lstat("out"), before)


def test_a_manifest_that_is_a_link_is_refused_before_the_work() -> None:
    Path("x.csv").write_text(people_csv(10))
    Path("out").mkdir()
    Path("out/manifest.json").symlink_to("../precious.json")
    with pytest.raises(UsageError, match=r"manifest\.json: is a link"):
        check_inputs(options(LEAN_SCHEMA, "x.csv"))
