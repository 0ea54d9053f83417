"""The walls of the house: which package imports which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def imports(path: Path) -> set[str]:
    """The top-level packages that a file imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize(
    ("package", "forbidden"),
    [
        ("schemas", {"beam_jobs", "trainer", "apache_beam", "tensorflow", "tensorflow_transform", "tfx_bsl"}),
        ("beam_jobs", {"trainer", "tensorflow_estimator"}),
        ("trainer", {"beam_jobs", "apache_beam"}),
    ],
)
def test_no_package_imports_what_it_must_not(package, forbidden):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    found = {str(f.relative_to(ROOT)): imports(f) & forbidden for f in files if imports(f) & forbidden}
    # Stored records are decoded in C++: a quarter of a second to import, and neither TensorFlow nor Beam with it.
    found.get("schemas/record_check.py", set()).discard("tfx_bsl")
    assert {path: names for path, names in found.items() if names} == {}


def test_one_module_knows_the_estimator_package():
    users = [f.name for f in (ROOT / "trainer").rglob("*.py") if "tensorflow_estimator" in imports(f)]
    assert set(users) <= {"estimator.py", "estimator_shims.py"}
