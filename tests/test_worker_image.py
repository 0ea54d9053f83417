"""The image of the workers: its versions are those of constraints.txt, and its steps make an environment that works."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import venv
from io import BytesIO
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from beam_jobs.flex_template import template_options
from schemas.source_distribution import PACKAGES, source_distribution

ROOT = Path(__file__).parents[1]
DOCKERFILE = ROOT / "docker" / "worker" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's instructions and their arguments, one line each."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in text.splitlines() if line.strip()]


def of(kind: str) -> list[str]:
    return [arguments for name, arguments in instructions() if name == kind]


def constraints() -> dict[str, str]:
    """The pinned versions for this Python, by canonical name."""
    lines = (line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#"))
    pins = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate()]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def copied_into(folder: Path) -> None:
    """Does what the COPY instructions do, and fails where one names nothing."""
    for arguments in of("COPY"):
        *sources, target = arguments.split()
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                shutil.copytree(path, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, folder / target)


def test_it_is_beams_own_image_of_the_pinned_release() -> None:
    arguments = dict(argument.split("=") for argument in of("ARG"))
    assert of("FROM") == ["apache/beam_python${PYTHON_VERSION}_sdk:${BEAM_VERSION}"]
    pins = [
        Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:12] == "apache-beam="
    ]
    (pinned,) = (pin for pin in pins if not pin.marker or pin.marker.evaluate({"python_version": "3.11"}))
    assert str(pinned.specifier) == f"=={arguments['BEAM_VERSION']}"
    assert arguments["PYTHON_VERSION"] == "3.11"
    assert [json.loads(entry) for entry in of("ENTRYPOINT")] == [["/opt/apache/beam/boot"]]


def test_every_package_is_pinned_and_no_tag_floats() -> None:
    (run,) = of("RUN")
    assert "--constraint constraints.txt" in run
    assert "latest" not in DOCKERFILE.read_text()


def test_what_it_copies_is_all_that_a_build_needs(tmp_path: Path) -> None:
    copied_into(tmp_path)
    missing = [
        name
        for package in PACKAGES
        for name in os.listdir(ROOT / package)
        if name != "__pycache__"
        if not (tmp_path / package / name).exists()
    ]
    assert missing == []


def test_its_variables_keep_beam_from_making_an_environment_at_every_start() -> None:
    (variables,) = of("ENV")
    assert "RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1" in variables.split()


@pytest.mark.figures
def test_its_steps_make_an_environment_of_the_pinned_versions(tmp_path: Path) -> None:
    """In a fresh virtual environment in place of Beam's image; downloads all dependencies."""
    context = tmp_path / "context"
    context.mkdir()
    copied_into(context)
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    (run,) = of("RUN")
    command = [str(python) if word == "python" else word for word in shlex.split(run)]
    subprocess.run(command, cwd=context, env=environment, check=True, timeout=1800)
    listing = [str(python), "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    packages = json.loads(subprocess.run(listing, env=environment, check=True, capture_output=True, text=True).stdout)
    pinned = constraints()
    wrong = {
        name: (version, pinned.get(name))
        for name, version in ((canonicalize_name(entry["name"]), entry["version"]) for entry in packages)
        if name not in ("millrace-ml", "pip", "setuptools", "wheel") and version != pinned.get(name)
    }
    assert wrong == {}
    subprocess.run([str(python), "-m", "pip", "check"], env=environment, check=True)
    imports = "import beam_jobs.records.result, tensorflow, apache_beam"
    subprocess.run([str(python), "-c", imports], cwd=tmp_path, env=environment, check=True)


class TestTheStagedPackage:
    """Without an image, the workers get a source distribution that the launcher makes of itself."""

    @pytest.fixture
    def files(self) -> dict[str, bytes]:
        with tarfile.open(fileobj=BytesIO(source_distribution())) as archive:
            members = {member.name: archive.extractfile(member) for member in archive.getmembers()}
            return {name.partition("/")[2]: file.read() for name, file in members.items() if file is not None}

    def test_it_pins_every_dependency_to_what_the_launcher_has(self, files: dict[str, bytes]) -> None:
        project = files["pyproject.toml"].decode()
        pins = dict(re.findall(r'^    "([^"=]+)==([^"=]+)",$', project, re.MULTILINE))
        assert len(pins) == project[project.index("dependencies") :].partition("]")[0].count('"') / 2
        pinned = constraints()
        assert {name: version for name, version in pins.items() if pinned.get(name) != version} == {}
        assert {"apache-beam", "tensorflow", "tensorflow-transform", "tfx-bsl", "grpcio"} <= pins.keys()
        assert f'requires-python = "=={sys.version_info[0]}.{sys.version_info[1]}.*"' in project

    def test_it_holds_every_module_that_runs_here_and_nothing_else(self, files: dict[str, bytes]) -> None:
        expected = {
            str(path.relative_to(ROOT))
            for package in PACKAGES
            for path in (ROOT / package).rglob("*")
            if path.suffix in (".py", ".yaml", ".html") or path.name == "py.typed"
        }
        assert files.keys() == expected | {"PKG-INFO", "pyproject.toml", "setup.py"}

    def test_the_same_code_gives_the_same_bytes(self) -> None:
        assert source_distribution() == source_distribution()


class TestTheFlexTemplate:
    """The files are not run on Google's service; these are the mistakes that can be found without it."""

    FOLDER = ROOT / "docker" / "flex_template"

    def test_every_parameter_is_an_option_and_the_needed_ones_are_not_optional(self) -> None:
        parameters = json.loads((self.FOLDER / "metadata.json").read_text())["parameters"]
        optional = {p["name"] for p in parameters if p.get("isOptional")}
        required = {p["name"] for p in parameters} - optional
        argv = [f"--{name}=1" for name in sorted(optional | required)]
        options = template_options([*argv, "--template_location=gs://b/t", "--job_name=once"])
        assert options.flex_template
        assert options.no_wait
        own = {field.name for field in dataclasses.fields(options)}
        assert optional <= own
        assert required - {"sdk_container_image"} == {"schema", "input", "output"}

    def test_input_may_name_several_patterns(self) -> None:
        argv = ["--schema=s", "--input=gs://b/a*.csv gs://b/c*.csv", "--output=gs://b/out"]
        options = template_options([*argv, "--template_location=gs://b/t", "--job_name=once"])
        assert options.input == ("gs://b/a*.csv", "gs://b/c*.csv")

    def test_the_image_runs_the_entry_that_is_copied_into_it(self) -> None:
        text = (self.FOLDER / "Dockerfile").read_text()
        assert "COPY main.py /template/main.py" in text
        assert "ENV FLEX_TEMPLATE_PYTHON_PY_FILE=/template/main.py" in text
        assert "from beam_jobs.flex_template import main" in (self.FOLDER / "main.py").read_text()
