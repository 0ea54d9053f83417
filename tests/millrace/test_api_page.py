"""docs/api.md: every example on the page is run, in the page's order, and answers what the page says."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_every_example_on_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Markdown's fences would be read as expected output, had each block not an empty line at its end.
    results = doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False, encoding="utf-8")
    assert results.failed == 0, capsys.readouterr().out
    assert results.attempted > 30
