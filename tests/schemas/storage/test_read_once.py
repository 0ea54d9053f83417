"""A file that is given under several names is read once, whatever the names; and nothing is put in place of no file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import storage
from schemas.errors import UsageError
from schemas.samples import command, tables


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file x.csv, and b.csv of the same content."""
    monkeypatch.chdir(tmp_path)
    for name in ("x.csv", "b.csv"):
        Path(name).write_text("a,b\n1,2\n")
    Path("sub").mkdir()
    Path("linked").symlink_to(".")
    Path("soft.csv").symlink_to("x.csv")
    os.link("x.csv", "sub/hard.csv")
    return tmp_path


@pytest.mark.parametrize(
    "other",
    ["./x.csv", "sub/../x.csv", "{0}/x.csv", "soft.csv", "sub/hard.csv", "linked/x.csv", "x.*", "*/hard.csv", "x.csv"],
)
def test_one_file_is_read_once_under_its_first_name(
    folder: Path, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = other.format(folder)
    assert storage.expand(["x.csv", other]) == ["x.csv"]
    told = (
        "x.csv is named more than once" if other in ("x.csv", "x.*") else f"x.csv and {other.replace('*', 'sub')} are"
    )
    err = capsys.readouterr().err
    assert err.startswith(told)
    assert err.endswith("it is read once\n")
    if other != "x.csv" and "*" not in other:
        assert storage.expand([other, "x.csv"]) == [other]


def test_globs_that_overlap(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert storage.expand(["*.csv", "./*.csv", f"{folder}/*/*.csv"]) == ["b.csv", "soft.csv"]
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 6
    assert err[-1] == "and 3 more"


def test_files_of_the_same_content_are_two(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert storage.expand(["x.csv", "b.csv"]) == ["b.csv", "x.csv"]
    assert capsys.readouterr().err == ""


def test_links_that_lead_nowhere_are_as_many_as_places_they_lead_to(folder: Path) -> None:
    for name in ("n1", "n2"):
        Path(name).symlink_to("gone")
    Path("n3").symlink_to("gone, too")
    assert storage.expand(["n?"]) == ["n1", "n3"]


def test_objects_of_a_bucket(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    storage.write_bytes(f"{bucket}/x.csv", b"")
    storage.write_bytes(f"{bucket}/./x.csv", b"")  # another object: names are no paths there
    patterns = [f"{bucket}/{name}" for name in ("x.csv", "*.csv", "./x.csv", "./*.csv")]
    assert storage.expand(patterns) == [f"{bucket}/./x.csv", f"{bucket}/x.csv"]
    said = [f"{path} is named more than once; it is read once" for path in (f"{bucket}/x.csv", f"{bucket}/./x.csv")]
    assert capsys.readouterr().err.splitlines() == said


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("put", [pipe, link, Path.mkdir])
@pytest.mark.parametrize(
    "write",
    [
        storage.check_output,
        lambda path: storage.write_bytes(path, b"x"),
        lambda path: tables.write_sample("covertype", path, rows=1, seed=1),
    ],
)
def test_no_file_is_put_in_place_of_what_is_none(
    tmp_path: Path, put: Callable[[Path], None], write: Callable[[str], None]
) -> None:
    path = tmp_path / "out.csv"
    put(path)
    before = path.lstat()
    with pytest.raises(
        UsageError, match=r"out\.csv: is a (folder|link|pipe, a socket or a device), which a file would"
    ):
        write(str(path))
    assert os.path.samestat(path.lstat(), before)
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_images_are_drawn_into_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link(tmp_path / "out")
    assert command.image_main([str(tmp_path / "out")]) == 2
    assert "out: is not a folder" in capsys.readouterr().err
