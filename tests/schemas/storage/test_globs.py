"""Patterns over an object's name mean what they mean on local disk."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import pytest

from schemas.storage import globs

NAMES = ["a.csv", "b.csv", ".hidden.csv", "x/a.csv", "x/y/a.csv", "x/.y/a.csv", "x/{a,b}.csv", "x/[a].csv", "x/a.txt"]
PATTERNS = ["*.csv", "*/*", "**/*.csv", "x/**", "x/**/a.csv", "**", "?.csv", "[!a].csv", "[ab].csv", ".*", "a.csv"]
PATTERNS += ["*/{a,b}.csv", "x/[[]a].csv", "*/.y/*", "**/y/*", "x*", "x/*.c[rs]v", "[a-z].csv", "*.CSV", "**/**/a.*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_names_that_it_matches_on_local_disk(tmp_path: Path, monkeypatch, pattern: str) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    on_disk = {path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path)}
    assert {name for name in NAMES if globs.matches(name, pattern)} == on_disk
    assert all(name.startswith(globs.literal_prefix(pattern)) for name in on_disk)
