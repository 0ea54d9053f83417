"""What pip installs: the four packages whole, with their schemas and types, and nothing else of the checkout."""

from __future__ import annotations

import configparser
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "beam_jobs", "trainer", "millrace")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, made without a network as Dataflow's --setup_file does."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "setup.py", "--quiet"]
    command += ["egg_info", "--egg-base", str(folder), "build", "--build-base", str(folder / "build")]
    command += ["sdist", "-d", str(folder), "bdist_wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """The wheel's files by name."""
    (path,) = built.glob("millrace-*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def package_files() -> set[str]:
    """The files of the checkout that belong to an installed package."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".yaml") or path.name == "py.typed"
    }


def test_a_wheel_holds_every_module_schema_and_type_marker(wheel: dict[str, bytes]) -> None:
    metadata = {name for name in wheel if name.split("/")[0].endswith(".dist-info")}
    assert wheel.keys() - metadata == package_files()
    assert {f"{package}/py.typed" for package in PACKAGES} <= wheel.keys()
    assert {"schemas/covertype.yaml", "schemas/census.yaml"} <= wheel.keys()
    assert any(name.endswith("/LICENSE") for name in metadata)


def test_a_wheel_installs_one_command(wheel: dict[str, bytes]) -> None:
    (name,) = (name for name in wheel if name.endswith("/entry_points.txt"))
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel[name].decode())
    assert dict(scripts["console_scripts"]) == {"millrace": "millrace.cli:main"}


def test_a_source_distribution_holds_all_that_a_build_needs(built: Path) -> None:
    (path,) = built.glob("millrace-*.tar.gz")
    with tarfile.open(path) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CONTRIBUTING.md", "constraints.txt"}
    assert package_files() | wanted <= packed
    assert {name for name in packed if name.split("/")[0] in ("tests", "benchmarks", "tools", "docs")} == set()
