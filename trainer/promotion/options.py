"""The options of a promotion."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from schemas import storage
from schemas.errors import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromoteOptions:
    """What is promoted, where to, and what decides.

    Attributes:
      export: an export, or a folder of exports such as model/export/best.
      to: the folder that is served: a folder for each version.
      data_dir: the dataset whose raw rows both exports are scored on; None: that of the training.
      split: which of its splits.
      eval_input: files of raw rows in place of the dataset's inputs.
      schema: a schema file whose key `promote` is taken in place of the export's own.
      metrics: what is compared; empty: see `trainer.promotion.gate.metrics_of`.
      margin: in place of the schema's.
      margins: of single metrics.
      if_undecided: what to do where the rows are too few to tell.
      force: promote what the gate refuses.
      keep: how many versions stay.
      trust: load graphs even if they can do more than compute.
      verbose: also show TensorFlow's log.

    Raises:
      UsageError: an option is out of its range.
    """

    export: str
    to: str
    data_dir: str | None = None
    split: str = "eval"
    eval_input: tuple[str, ...] = ()
    schema: str | None = None
    metrics: tuple[str, ...] = ()
    margin: float | None = None
    margins: Mapping[str, float] = dataclasses.field(default_factory=dict)
    if_undecided: Literal["refuse", "accept"] = "refuse"
    force: bool = False
    keep: int = 10
    trust: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        if not storage.is_local(self.to):
            raise UsageError(
                f"--to {self.to}: an object store cannot rename a folder in one step, so a server could load half an "
                "export; promote to a folder of this machine, and copy it there"
            )
        if self.keep < 2:
            raise UsageError(
                f"--keep_versions {self.keep}: must be 2 or more: the version in service, and one to return to"
            )
        for name, value in {"": self.margin, **self.margins}.items():
            if value is not None and not 0 <= value < float("inf"):
                raise UsageError(f"--margin {name + '=' if name else ''}{value}: must be 0 or more")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RollbackOptions:
    """Which version to return to: None is the one before that in service. `keep`: how many versions stay."""

    to: str
    version: int | None = None
    keep: int = 10
