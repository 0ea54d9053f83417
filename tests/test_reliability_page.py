"""docs/reliability.md names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.engines.test_same_everywhere import ENGINES
from tests.support.drawn_datasets import KINDS

TESTS = Path(__file__).parent
PAGE = TESTS.parent / "docs" / "reliability.md"
NAMED = re.compile(r"`([\w/]*\.py)?(?:::(\w+))?(?:\[\.\.\.\])?`")


def named_tests(text: str) -> list[tuple[str, str]]:
    """The (file, name) that a text names in backticks. A bare `::name` is of the file before."""
    tests, file = [], ""
    for path, name in NAMED.findall(text):
        file = path or file
        if path or name:
            tests.append((file, name))
    return tests


def defined(path: Path) -> set[str]:
    """The functions and classes at a file's top."""
    return {n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def test_every_test_that_the_page_names_is_there() -> None:
    named = named_tests(PAGE.read_text())
    assert len(named) > 40
    missing = [
        (file, name)
        for file, name in named
        if not (TESTS / file).is_file() or (name and name not in defined(TESTS / file))
    ]
    assert missing == []


def test_the_page_names_every_kind_and_engine_of_the_test_that_compares_them() -> None:
    _, _, section = PAGE.read_text().partition("## On every runner")
    assert [name for name in (*KINDS, *ENGINES) if f"`{name}`" not in section] == []
