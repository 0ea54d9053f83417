"""Puts an export in service if it is no worse than the one that is, and says why or why not.

    millrace promote --from model/export/best --to serving/
    millrace promote --rollback --to serving/

The export's files, its graph and its predictions on the dataset's parity records are checked first. Then it and the
export in service are scored on the same raw rows: those of the dataset's newest eval split, read again from its inputs,
so that both can be compared whatever transform they were trained with. It is refused

- if a metric has surely fallen by more than --margin,
- if a metric is on the wrong side of its threshold in the schema (the key `promote`),
- if a metric on a slice has surely fallen by more than the schema's `slice_margin`,
- or if the rows are too few to tell (--if_undecided).

Otherwise it appears as the next version in --to, in one step. Beside it, <version>.json says why; decisions.jsonl
holds every decision, of refused exports too.

Exit codes: 0 in service, 1 refused or failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from schemas import command
from schemas.command import Options, option
from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from schemas.interrupts import interruptible
from trainer.promotion.options import PromoteOptions, RollbackOptions
from trainer.spec.options import SPLITS

if TYPE_CHECKING:
    from trainer.promotion.gate import Decision


PROG = "millrace promote"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromoteFlags(Options):
    """What is promoted, or rolled back, and what decides."""

    export: str | None = option(
        "an export, or a folder of exports, such as model/export/best", None, name="--from", metavar="DIR"
    )
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
    quiet: bool = option(command.QUIET_HELP, False)
    verbose: bool = option(command.VERBOSE_HELP, False)


def _run(given: PromoteFlags, prog: str) -> command.Report:
    with command.when_interrupted("what was in service stays there"), interruptible(sigterm=True):
        decision = _decide(given)
    code = 0 if decision.in_service else 1
    return command.Report("\n".join(decision.lines()), decision.record(), code)


def _decide(given: PromoteFlags) -> Decision:
    from trainer.promotion.promote import promote, roll_back

    if given.rollback:
        if given.export is not None:
            raise UsageError("--rollback returns to a version in --to; give it, or --from")
        return roll_back(RollbackOptions(to=given.to, version=given.to_version, keep=given.keep))
    if given.export is None:
        raise UsageError("--from: give the export to promote, such as model/export/best; or --rollback")
    if given.to_version is not None:
        raise UsageError("--to_version: belongs to --rollback; a promotion takes the next number")
    margin, margins = _margins(given.margin)
    decided = {"margin": margin, "margins": margins, "export": given.export}
    options = PromoteOptions(**{**command.only(vars(given), PromoteOptions), **decided})
    return promote(options) if given.quiet else promote(options, say=_say)


def _margins(texts: Sequence[str]) -> tuple[float | None, dict[str, float]]:
    """The margin of all metrics, and those of single ones."""
    margins: dict[str, float] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        try:
            margins[name] = float(value)
        except ValueError:
            raise UsageError(f"--margin {text}: expected a number, or NAME=NUMBER such as accuracy=0.005") from None
    return margins.pop("", None), margins


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


COMMAND = command.Command(prog=PROG, options=PromoteFlags, work=_run, description=__doc__ or "")
parser, main = COMMAND.parser, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
