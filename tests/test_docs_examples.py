"""The examples in docstrings print what they show, and the pages of the site link to each other."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tools import docs_site

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "beam_jobs", "trainer", "millrace", "tools")
WITH_EXAMPLES = sorted(
    path.relative_to(ROOT)
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=str)
def test_an_example_in_a_docstring_prints_what_it_shows(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = doctest.testmod(importlib.import_module(".".join(path.with_suffix("").parts)))
    assert results.attempted > 0
    assert results.failed == 0, capsys.readouterr().out


def test_the_site_has_every_page_and_names_source_files_without_a_link(tmp_path: Path) -> None:
    docs_site.gather(tmp_path)
    pages = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.md")}
    assert {"contributing.md", "changelog.md", "index.md", "tutorials/table.md", "api/index.md"} <= pages
    contributing = (tmp_path / "contributing.md").read_text()
    assert "[docs/architecture.md](architecture.md#ten-invariants), and `tests/test_walls.py` holds it" in contributing
