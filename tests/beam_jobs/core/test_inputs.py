"""Inputs as files in the staging folder, which are read part by part."""

from __future__ import annotations

import pytest

from beam_jobs.core.inputs import InputFile, stage_inputs
from schemas.errors import MillraceError
from schemas.storage import file_key


def inputs(count: int) -> list[InputFile]:
    files = [InputFile(file_key(f"file {i}\udcff"), f"file {i}\udcff", i, f"v{i}", i or None) for i in range(count)]
    return sorted(files, key=lambda file: file.key)


@pytest.mark.parametrize(("count", "parts"), [(0, 1), (1, 1), (10, 1), (11, 2), (95, 10)])
def test_every_input_is_in_the_part_that_its_key_says(tmp_path, count, parts):
    files = inputs(count)
    staged = stage_inputs(str(tmp_path), iter(files), count=count, files_a_part=10)
    assert staged.parts == parts
    assert [file for part in range(parts) for file in staged.read(part)] == files
    for file in files:
        assert file in staged.read(staged.part_of(file.key))
        assert staged.path_of(file.key) == file.path


def test_what_the_pipeline_holds_does_not_grow(tmp_path):
    few, many = (
        stage_inputs(str(tmp_path / name), inputs(n), count=n, files_a_part=10) for name, n in (("a", 9), ("b", 900))
    )
    assert len(repr(many)) < len(repr(few)) + 10


def test_a_key_of_no_input(tmp_path):
    staged = stage_inputs(str(tmp_path), inputs(5), count=5)
    with pytest.raises(MillraceError, match="no input has the key 3"):
        staged.path_of(3)
