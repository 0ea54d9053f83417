"""The code for other machines: this package as a source distribution, staged, and the command that installs it.

Names and labels that the platforms take, and the name of a job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import importlib.util
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.source_distribution import archive_name, source_distribution

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?")  # room for -evaluator-0 in the 63 characters of a host's name


def job_name(given: str | None) -> str:
    """The job's name, or one made of the time and four random hex digits.

    Raises:
      UsageError: hosts and objects cannot be called so.
    """
    if given is None:
        return f"millrace-{dt.datetime.now(dt.timezone.utc):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if not _NAME.fullmatch(given):
        raise UsageError(
            f"--job_name {given}: expected a letter, then letters, digits and hyphens, all in lower case, 40 at most"
        )
    return given


def check_labels(labels: Mapping[str, str], key: re.Pattern[str], value: re.Pattern[str], expected: str) -> None:
    """Checks labels against what a platform takes.

    Raises:
      UsageError: it refuses one.
    """
    for name, held in labels.items():
        if not key.fullmatch(name) or not value.fullmatch(held):
            raise UsageError(f"--labels {name}={held}: expected {expected}")


def check_variables(variables: Mapping[str, str], own: frozenset[str]) -> None:
    """Checks the names of environment variables.

    Raises:
      UsageError: a name that is none, or that is set by the platform or by this command.
    """
    for name in variables:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise UsageError(f"--env {name}=...: is no name of an environment variable")
        if name in own:
            raise UsageError(f"--env {name}=...: is set for each process; it cannot be given")


FOLDER = "millrace-submit"


@dataclasses.dataclass(frozen=True)
class Packages:
    """What the other machines install, in order.

    Attributes:
      folder: where they are staged.
      own: the user's packages: path by file name.
    """

    folder: str
    own: Mapping[str, Path]

    @property
    def urls(self) -> tuple[str, ...]:
        """Where they lie once staged."""
        return tuple(storage.join(self.folder, name) for name in (archive_name(), *self.own))

    def stage(self) -> None:
        """Makes this package's source distribution and writes all of them to their place.

        Raises:
          MillraceError: a file cannot be written.
        """
        storage.write_bytes(self.urls[0], source_distribution())
        for url, path in zip(self.urls[1:], self.own.values(), strict=True):
            storage.write_bytes(url, path.read_bytes())

    def remove(self) -> None:
        """Removes what was staged, as far as that is possible."""
        for url in self.urls:
            with contextlib.suppress(MillraceError):
                storage.delete(url)

    def command(self, args: Sequence[str]) -> list[str]:
        """The command that installs them in a container and trains there."""
        return [*bootstrap(), *self.urls, "--", *args]


def own_packages(files: Sequence[str]) -> dict[str, Path]:
    """The files of `--package` by name.

    Raises:
      UsageError: a file is missing, or is no wheel and no sdist, or two have one name.
    """
    found: dict[str, Path] = {}
    for file in files:
        path = Path(file)
        if not path.name.endswith((".whl", ".tar.gz")):
            raise UsageError(f"--package {file}: expected a wheel (.whl) or an sdist (.tar.gz)")
        if not path.is_file():
            raise UsageError(f"--package {file}: no such file")
        if path.name in (*found, archive_name()):
            raise UsageError(f"--package {file}: another package has this file name")
        found[path.name] = path
    return found


def bootstrap() -> list[str]:
    """`python -c` with the text of `millrace.submit.bootstrap`."""
    spec = importlib.util.find_spec("millrace.submit.bootstrap")
    assert spec is not None and spec.origin is not None  # noqa: S101, PT018 - a module of this package
    return ["python", "-c", Path(spec.origin).read_text()]
