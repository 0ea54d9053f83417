"""The files of a model directory, and where it is."""

from __future__ import annotations

import os

import pytest

from schemas import storage
from trainer.model_dir.model_json import MODEL_JSON, model_dir_of


@pytest.mark.parametrize(
    ("path", "looked_at"),
    [
        ("gs://b/m/export/best/17", ["b/m/export/best/17", "b/m/export/best", "b/m/export", "b/m"]),
        ("gs://b/serving/1/", ["b/serving/1/", "b/serving", "b"]),
        ("gs://b", ["b"]),
        ("/models/1", ["/models/1", "/models", "/"]),
        ("/", ["/"]),
        ("1", ["1", "", "..", "../.."]),
    ],
)
def test_a_model_directory_is_looked_for_three_folders_up_and_in_no_more_than_there_are(
    path: str, looked_at: list[str], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("deep")
    monkeypatch.chdir(folder)
    checked_paths: list[str] = []

    def is_not_there(path: str) -> bool:
        checked_paths.append(path)
        return False

    monkeypatch.setattr(storage, "exists", is_not_there)
    assert model_dir_of(path) is None
    scheme = path[: path.find("://") + 3] if "://" in path else ""
    expected = [scheme + parent for parent in looked_at]
    if not scheme and not path.startswith("/"):
        expected = [path, *(os.path.normpath(folder / parent) for parent in looked_at[1:])]
    assert checked_paths == [storage.join(parent, MODEL_JSON) for parent in expected]
