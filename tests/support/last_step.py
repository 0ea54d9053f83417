"""The last step of a job that `tests.support.forking` has left to its stub of a cluster, run as a command."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from schemas.errors import MillraceError


def save(last: Callable[[], None], output: str) -> None:
    """Keeps the step, as a cluster does, beside the folder that it commits to."""
    _path(output).write_bytes(pickle.dumps(last))


def main(argv: Sequence[str]) -> int:
    """Takes the step. `argv`: the folder that it commits to."""
    last = pickle.loads(_path(argv[0]).read_bytes())
    try:
        last()
    except MillraceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _path(output: str) -> Path:
    return Path(output).parent / "last-step.pickle"
