"""What a worker on another machine has: the project's dependencies, and of the project only the staged package."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import site
import subprocess
import sys
import tarfile
import threading
import venv
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class WorkerEnvironment:
    """A Python environment that holds the dependencies without the project, and the packages installed for its workers.

    Attributes:
      folder: holds the environment and the installed packages.
    """

    folder: Path
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def install(self, packages: Mapping[str, bytes]) -> Path:
        """Installs archives (sdists, wheels) without their dependencies.

        Args:
          packages: the archives by name.

        Returns:
          The folder to import from. Archives of the same files are installed once.
        """
        digest = hashlib.sha256("".join(map(contents_digest, packages.values())).encode()).hexdigest()[:12]
        target = self.folder / f"site-{digest}"
        with self._lock:
            if not target.exists():
                archives = self.folder / f"archives-{digest}"
                archives.mkdir(exist_ok=True)
                for name, data in packages.items():
                    (archives / name).write_bytes(data)
                building = self.folder / f"building-{digest}"
                pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                pip += ["--no-index", "--no-build-isolation", "--target", str(building)]
                environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
                subprocess.run(
                    [*pip, *(str(archives / name) for name in packages)],
                    env=environment,
                    cwd=self.folder,
                    check=True,
                    timeout=300,
                )
                building.rename(target)
        return target


def contents_digest(archive: bytes) -> str:
    """A digest of an archive's files; an sdist's own bytes differ with each build."""
    if archive[:2] != b"\x1f\x8b":
        return hashlib.sha256(archive).hexdigest()
    digest = hashlib.sha256()
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in sorted(files.getmembers(), key=lambda member: member.name):
            file = files.extractfile(member)
            digest.update(f"{member.name}\0".encode() + (b"" if file is None else file.read()))
    return digest.hexdigest()


def make(folder: Path) -> WorkerEnvironment:
    """Makes the environment in an empty folder.

    A path in a .pth file is added to `sys.path`, but the .pth files in that folder are not read. One of those is what
    makes an editable install of the project importable.
    """
    made = WorkerEnvironment(folder)
    venv.create(folder / "venv", symlinks=True)
    ask = [str(made.python), "-c", "import site; print(site.getsitepackages()[0])"]
    own = subprocess.run(ask, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    (Path(own) / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for module, found in (("apache_beam", True), ("beam_jobs", False)):
        look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        code = subprocess.run([str(made.python), "-c", look], cwd=folder, env=environment, check=False).returncode
        assert (code == 0) == found, f"{made.python}: {module} must {'' if found else 'not '}be importable"
    return made
