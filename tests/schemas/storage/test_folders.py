"""Moves and walks on local disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import MillraceError
from schemas.storage import folders


@pytest.mark.parametrize("target", ["here.txt", "new/folder/there.txt"])
def test_a_file_moves_to_a_name_with_or_without_a_folder(tmp_path: Path, monkeypatch, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("source.txt").write_text("x")
    folders.move("source.txt", target)
    assert Path(target).read_text() == "x"
    assert not Path("source.txt").exists()


def test_walk_names_every_file_by_its_path_below_the_folder(tmp_path: Path) -> None:
    for name in ("b/2", "a", "b/c/3"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert list(folders.walk(str(tmp_path))) == ["a", "b/2", "b/c/3"]


def test_removing_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    folders.remove(str(tmp_path / "nowhere"))


def test_a_file_that_another_process_is_writing_may_vanish_while_a_folder_is_flushed(tmp_path: Path) -> None:
    (tmp_path / f".schema.yaml.{'0' * 32}.tmp").symlink_to("vanished")
    folders.flush(str(tmp_path))
    (tmp_path / "schema.yaml").symlink_to("vanished")
    with pytest.raises(MillraceError, match="No such file"):
        folders.flush(str(tmp_path))
