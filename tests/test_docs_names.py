"""Pages link to files that are there; those for contributors name files, modules and attributes that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("CONTRIBUTING.md", "docs/architecture.md")
TOPS = "schemas|beam_jobs|trainer|millrace|benchmarks|tools|tests|docs"
FILE = re.compile(rf"`((?:{TOPS})/[\w/.]*)`")
LINK = re.compile(r"\]\((?!\w+:|#)([^)#]+)")
DOTTED = re.compile(rf"`((?:{TOPS})(?:\.\w+)+)`")


def exists(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name that is defined at the top of one."""
    path = ROOT / dotted.replace(".", "/")
    if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
        return True
    module, _, name = dotted.rpartition(".")
    file = ROOT / (module.replace(".", "/") + ".py")
    file = file if file.is_file() else file.with_suffix("") / "__init__.py"
    return file.is_file() and name in defined(file)


def defined(file: Path) -> set[str]:
    """The names at the top of a module, imported ones included."""
    return set(names_in(ast.parse(file.read_text()).body))


def names_in(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))


@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    files, dotted = set(FILE.findall(text)), set(DOTTED.findall(text))
    assert len(files) > 10
    assert sorted(path for path in files if not (ROOT / path).exists()) == []
    assert sorted(name for name in dotted if not exists(name)) == []


def test_the_map_has_every_room() -> None:
    named = set(DOTTED.findall((ROOT / "docs/architecture.md").read_text()))
    rooms = {
        f"{package}.{path.parent.name}"
        for package in ("schemas", "beam_jobs", "trainer", "millrace")
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert rooms - named == set()


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_lead_to_files(page: Path) -> None:
    """What they lead to in a page, and every page's place in the navigation, are checked by `make docs`."""
    assert [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []
