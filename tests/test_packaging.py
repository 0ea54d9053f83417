"""What pip installs: the four complete packages, with their schemas and types, and nothing else of the checkout."""

from __future__ import annotations

import ast
import configparser
import email
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from schemas.source_distribution import source_distribution

ROOT = Path(__file__).parent.parent
PACKAGES = ("schemas", "beam_jobs", "trainer", "millrace")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is built of the checkout."""
    return build(ROOT, tmp_path_factory.mktemp("dist"))


def build(source: Path, folder: Path) -> Path:
    """The folder, with the wheel and the source distribution: made without a network, as by Dataflow's --setup_file."""
    command = [sys.executable, "setup.py", "--quiet"]
    command += ["egg_info", "--egg-base", str(folder), "build", "--build-base", str(folder / "build")]
    command += ["sdist", "-d", str(folder), "bdist_wheel", "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, bytes]:
    """The wheel's files by name."""
    return files_of_wheel(built)


def files_of_wheel(built: Path) -> dict[str, bytes]:
    (path,) = built.glob("millrace_ml-*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def package_files() -> set[str]:
    """The files of the checkout that belong to an installed package."""
    return {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".yaml", ".html") or path.name == "py.typed"
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
    assert dict(scripts["console_scripts"]) == {"millrace": "millrace.__main__:main"}


def third_party_imports() -> set[str]:
    """Every module, and name of a module, of other projects that the installed packages import anywhere."""
    imports = set()
    for path in (ROOT / name for name in package_files() if name.endswith(".py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imports |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in imports if name.split(".")[0] not in {*PACKAGES, *sys.stdlib_module_names}}


def test_whatever_is_imported_is_a_declared_dependency(wheel: dict[str, bytes]) -> None:
    (name,) = (name for name in wheel if name.endswith("/METADATA"))
    declared = map(Requirement, email.message_from_bytes(wheel[name]).get_all("Requires-Dist", []))
    extras = ("serve", "trees", "tune")
    installed = [r.name for r in declared if r.marker is None or any(r.marker.evaluate({"extra": e}) for e in extras)]
    files = {str(file) for name in installed for file in importlib.metadata.files(name) or ()}

    def brought(module: str) -> bool:
        parts = module.split(".")
        paths = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        return any(f"{path}/__init__.py" in files or f"{path}.py" in files for path in paths)

    imports = third_party_imports()
    assert {"numpy", "google.cloud.storage"} <= imports
    assert sorted(module for module in imports if not brought(module)) == []


def test_a_source_distribution_holds_all_that_a_build_needs(built: Path) -> None:
    (path,) = built.glob("millrace_ml-*.tar.gz")
    with tarfile.open(path) as archive:
        packed = {name.partition("/")[2] for name in archive.getnames()}
    needed_files = {"setup.py", "pyproject.toml", "README.md", "LICENSE", "CONTRIBUTING.md", "constraints.txt"}
    assert package_files() | needed_files <= packed
    assert {name for name in packed if name.split("/")[0] in ("tests", "benchmarks", "tools", "docs")} == set()


def test_what_another_machine_installs_holds_the_same_files(tmp_path: Path) -> None:
    """A worker of Dataflow installs a distribution that is made of the modules that run here."""
    with tarfile.open(fileobj=io.BytesIO(source_distribution())) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    (tmp_path / "dist").mkdir()
    packed = files_of_wheel(build(source, tmp_path / "dist")).keys()
    assert {name for name in packed if name.split("/")[0] in PACKAGES} == package_files()


# Runs a command as if some distributions, and the modules of theirs, were not installed.
WITHOUT = """
import importlib.metadata, importlib.util, sys

distributions, modules = (argument.split() for argument in sys.argv[1:3])
version, find_spec = importlib.metadata.version, importlib.util.find_spec

def version_of(name):
    if name in distributions:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)

importlib.metadata.version = version_of
importlib.util.find_spec = lambda name, *rest: None if name in modules else find_spec(name, *rest)
sys.modules |= dict.fromkeys(modules)
from millrace.cli import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("absent", "argv", "message"),
    [
        (
            "uvloop orjson",
            "serve --model_dir .",
            "serving needs orjson, uvloop: pip install 'httptools>=0.6' 'orjson<4,>=3.10'",
        ),
        (
            "optuna",
            "tune --data_dir . --study study --space dropout=float:0:0.5",
            "needs Optuna: pip install 'optuna<6,>=5' 'sqlalchemy<3,>=2'",
        ),
        (
            "lightgbm",
            "train --data_dir . --model_dir model --model boosted_trees",
            "--model boosted_trees needs LightGBM: pip install 'lightgbm<5,>=4.6'",
        ),
    ],
)
def test_without_an_extra_an_error_says_which_requirements_to_install(
    absent: str, argv: str, message: str, tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", WITHOUT, absent, absent, *argv.split()]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_no_text_installs_this_package_from_an_index() -> None:
    """There, its old name is another project's."""
    texts = [path for path in ROOT.glob("*.*") if path.suffix in (".md", ".toml", ".txt", ".yaml", ".yml")]
    for folder in (*PACKAGES, "docs", "docker", "tools", "benchmarks", ".github"):
        texts += [
            path for path in (ROOT / folder).rglob("*.*") if path.suffix in (".md", ".py", ".txt", ".toml", ".yaml")
        ]
    installs = re.compile(r"pip install [^\n]*\bmillrace\b(?!/)|['\"`]millrace(-ml)?\[")
    install_lines = {
        str(path.relative_to(ROOT)): installs.findall(path.read_text()) for path in [*texts, ROOT / "Makefile"]
    }
    assert {path for path, lines in install_lines.items() if lines} - {"pyproject.toml"} == set()
