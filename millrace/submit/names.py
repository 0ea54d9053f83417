"""Names and labels that the platforms take, and the name of a job."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Mapping

from schemas.errors import UsageError

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
