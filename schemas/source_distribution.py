"""Makes a source distribution of this package for other machines, such as the workers of a cluster.

It consists of the modules that run here, and pins the version of every dependency that is installed here. So the other
machines run the same code with the same dependencies. It is made in memory: it needs no checkout, and leaves no files
in one.
"""

from __future__ import annotations

import gzip
import importlib.metadata
import importlib.util
import io
import shlex
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

NAME = "millrace-ml"  # `millrace` on PyPI is another project
PACKAGES = ("schemas", "beam_jobs", "trainer", "millrace")
_SUFFIXES = (".py", ".yaml", ".html", "py.typed")

_PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "{version}"
requires-python = "=={python}.*"
dependencies = [
{dependencies}
]

[tool.setuptools.packages.find]
include = [{packages}]

[tool.setuptools.package-data]
"*" = ["py.typed", "*.yaml", "*.html"]
"""


def source_distribution() -> bytes:
    """Returns the archive, a `.tar.gz`. The same code in the same environment gives the same bytes."""
    root = archive_name().removesuffix(".tar.gz")
    pyproject = _PYPROJECT.format(
        name=NAME,
        version=version(),
        python=".".join(map(str, sys.version_info[:2])),
        dependencies="\n".join(f'    "{pin}",' for pin in pins()),
        packages=", ".join(f'"{package}", "{package}.*"' for package in PACKAGES),
    )
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\n".encode(),
        "pyproject.toml": pyproject.encode(),
        "setup.py": b"from setuptools import setup\n\nsetup()\n",
    }
    files |= {name: path.read_bytes() for name, path in _modules()}
    out = io.BytesIO()
    without_time = gzip.GzipFile(filename="", fileobj=out, mode="wb", mtime=0)
    with without_time as compressed, tarfile.open(fileobj=compressed, mode="w") as archive:
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{root}/{name}")
            member.size, member.mode = len(data), 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def pins() -> list[str]:
    """Returns the exact versions of all packages that this one needs, directly or not: `name==version`, sorted."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    versions: dict[str, str] = {}
    done: set[tuple[str, str]] = set()
    # Follows the requirements from package to package. An entry is a package and one of its extras ('': without extra).
    waiting = [(NAME, "")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        try:
            version_here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # an optional package that is not installed here, so nobody needs it
        if name != NAME:
            versions[name] = version_here
        for text in importlib.metadata.requires(name) or ():
            needs = Requirement(text)
            if needs.marker is None or needs.marker.evaluate({"extra": extra}):
                below = canonicalize_name(needs.name)
                waiting += [(below, ""), *((below, requested_extra) for requested_extra in needs.extras)]
    return sorted(f"{name}=={version_here}" for name, version_here in versions.items())


def how_to_install(extra: str) -> str:
    """Returns the shell command that installs the packages of an extra, such as `pip install 'pillow>=10'`."""
    try:
        required = importlib.metadata.requires(NAME) or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        required = []
    needed = [text.partition(";")[0].strip() for text in required if text.endswith(f'extra == "{extra}"')]
    return shlex.join(["pip", "install", *(needed or [f".[{extra}]"])])


def version() -> str:
    """Returns the version of this package; "0" if it is not installed."""
    try:
        return importlib.metadata.version(NAME)
    except importlib.metadata.PackageNotFoundError:
        return "0"


def archive_name() -> str:
    """Returns the file name of the archive."""
    return f"{NAME.replace('-', '_')}-{version()}.tar.gz"


def _modules() -> Iterator[tuple[str, Path]]:
    """Yields (name in the archive, path) of every file of the packages."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in folder.rglob("*"):
                if path.name.endswith(_SUFFIXES):
                    yield f"{package}/{path.relative_to(folder).as_posix()}", path
