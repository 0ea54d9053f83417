"""The options of joining labels to stored requests."""

from __future__ import annotations

import dataclasses

from millrace.store.options import LABELLED
from schemas import command, storage
from schemas.command import Options, option
from schemas.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions(Options):
    """What is joined."""

    store: str = option("the stored requests: the --store of a server", metavar="DIR")
    join: tuple[str, ...] = option("CSV files with labels", metavar="FILE")
    on: str | None = option(
        "column that says which request a label is of (default: _id, or the key)", None, metavar="COLUMN"
    )
    output: str = option("folder for the labelled rows", metavar="DIR")
    name: str = option("name of a new file there; {} is its number (default: %(default)s)", LABELLED)
    quiet: bool = option(command.QUIET_HELP, False)

    def __post_init__(self) -> None:
        if "{}" not in self.name or "/" in self.name:
            raise UsageError(f"--name {self.name}: a file name in which {{}} stands for the number, such as {LABELLED}")
        for path in (self.store, self.output):
            if not storage.is_local(path):
                raise UsageError(f"{path}: must be on local disk")
