"""The options of a promotion, and of a roll-back."""

from __future__ import annotations

import dataclasses
from typing import Literal

from schemas import storage
from schemas.errors import UsageError
from schemas.exports.notes import EXPORT_HELP
from schemas.graphs.check import TRUST_HELP
from schemas.options import QUIET_HELP, VERBOSE_HELP, Options, option
from trainer.spec.options import SPLITS


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromoteOptions(Options):
    """What is promoted, or rolled back, and what decides.

    Raises:
      UsageError: an option is out of its range, or does not go with another one.
    """

    export: str | None = option(EXPORT_HELP, None, name="--from", metavar="DIR", check=storage.check_addresses)
    to: str = option("the folder that is served: a folder for each version", metavar="DIR")
    data_dir: str | None = option("dataset whose rows decide (default: that of the training)", None, metavar="DIR")
    split: str = option("split of these rows (default: eval)", "eval", choices=SPLITS)
    eval_input: tuple[str, ...] = option(
        "files of raw rows, labels included, in place of the dataset's inputs; rows of the split are scored",
        (),
        metavar="FILE",
    )
    schema: str | None = option(
        "schema file whose key `promote` decides (default: the export's own)", None, metavar="FILE"
    )
    metrics: tuple[str, ...] = option(
        "metrics that are compared (default: accuracy, and auc for two classes; for numbers "
        "root_mean_squared_error); those with a threshold are compared, too",
        (),
        name="--metric",
        metavar="NAME",
    )
    margin: tuple[str, ...] = option(
        "how much worse a metric may be: a difference, of losses and errors a share (default: 0.01)",
        (),
        metavar="[NAME=]X",
    )
    if_undecided: Literal["refuse", "accept"] = option(
        "what to do where the rows are too few to tell (default: refuse)", "refuse"
    )
    force: bool = option("promote an export that is refused; the record says so", False)
    rollback: bool = option("put the version before the one in service in service again", False)
    to_version: int | None = option("with --rollback: return to this version", None)
    keep: int = option("versions that stay in --to (default: %(default)s)", 10, name="--keep_versions")
    trust: bool = option(TRUST_HELP, False)
    quiet: bool = option(QUIET_HELP, False)
    verbose: bool = option(VERBOSE_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rollback and self.export is not None:
            raise UsageError("--rollback returns to a version in --to; give it, or --from")
        if not self.rollback and self.export is None:
            raise UsageError("--from: give the export to promote, such as model/export/best; or --rollback")
        if not self.rollback and self.to_version is not None:
            raise UsageError("--to_version: belongs to --rollback; a promotion takes the next number")
        margins = {} if self.rollback else self.margins
        storage.check_scheme(self.to, "--to ")
        if not storage.is_local(self.to):
            raise UsageError(
                f"--to {self.to}: an object store cannot rename a folder in one step, so a server could load half an "
                "export; give a local folder, and copy the version that is in service to the bucket afterwards "
                "(docs/promote.md)"
            )
        if not self.rollback and self.keep < 2:
            raise UsageError(
                f"--keep_versions {self.keep}: must be 2 or more: the version in service, and one to return to"
            )
        for name, value in margins.items():
            if not 0 <= value < float("inf"):
                raise UsageError(f"--margin {name + '=' if name else ''}{value}: must be 0 or more")

    @property
    def margins(self) -> dict[str, float]:
        """The margins of single metrics by their names; '' is the one of all others."""
        margins: dict[str, float] = {}
        for text in self.margin:
            name, _, value = text.rpartition("=")
            try:
                margins[name] = float(value)
            except ValueError:
                raise UsageError(f"--margin {text}: expected a number, or NAME=NUMBER such as accuracy=0.005") from None
        return margins
