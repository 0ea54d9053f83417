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

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas import command
from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from schemas.interrupts import how_ended, interruptible
from trainer.promotion.options import PromoteOptions, RollbackOptions

if TYPE_CHECKING:
    from trainer.promotion.gate import Decision


PROG = "millrace promote"


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    description, exit_codes = (__doc__ or "").replace(PROG, "%(prog)s").split("\n\nExit codes: ")
    result = command.Parser(prog=prog, description=description, epilog=f"Exit codes: {exit_codes}")
    add = result.add_argument
    add("--from", dest="export", metavar="DIR", help="an export, or a folder of exports, such as model/export/best")
    add("--to", required=True, metavar="DIR", help="the folder that is served: a folder for each version")
    add("--data_dir", metavar="DIR", help="dataset whose rows decide (default: that of the training)")
    add("--split", default="eval", choices=("eval", "test", "train"), help="split of these rows (default: eval)")
    add(
        "--eval_input",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="files of raw rows, labels included, in place of the dataset's inputs; rows of the split are scored",
    )
    add("--schema", metavar="FILE", help="schema file whose key `promote` decides (default: the export's own)")
    add(
        "--metric",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="metrics that are compared (default: accuracy, and auc for two classes; for numbers "
        "root_mean_squared_error); those with a threshold are compared, too",
    )
    add(
        "--margin",
        nargs="+",
        action="extend",
        default=[],
        metavar="[NAME=]X",
        help="how much worse a metric may be: a difference, of losses and errors a share (default: 0.01)",
    )
    add(
        "--if_undecided",
        choices=("refuse", "accept"),
        default="refuse",
        help="what to do where the rows are too few to tell (default: refuse)",
    )
    add("--force", action="store_true", help="promote an export that is refused; the record says so")
    add("--rollback", action="store_true", help="put the version before the one in service in service again")
    add("--to_version", type=int, metavar="N", help="with --rollback: return to this version")
    add("--keep_versions", type=int, default=10, metavar="N", help="versions that stay in --to (default: %(default)s)")
    add("--trust", action="store_true", help=TRUST_HELP)
    add("--quiet", action="store_true", help=command.QUIET_HELP)
    add("--verbose", action="store_true", help=command.VERBOSE_HELP)
    add("--json", action="store_true", help=command.JSON_HELP)
    return result


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses, decides, prints what was measured and what came of it, and returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    given = parser(prog).parse_args(argv)
    try:
        with interruptible(sigterm=True):
            decision = _decide(given)
    except KeyboardInterrupt as error:
        how, code = how_ended(error)
        raise command.Interrupted(f"{how}; what was in service stays there", code) from None
    code = 0 if decision.in_service else 1
    return command.Report("\n".join(decision.lines()), decision.record(), code)


def _decide(given: argparse.Namespace) -> Decision:
    from trainer.promotion.promote import promote, roll_back

    if given.rollback:
        if given.export is not None:
            raise UsageError("--rollback returns to a version in --to; give it, or --from")
        return roll_back(RollbackOptions(to=given.to, version=given.to_version, keep=given.keep_versions))
    if given.export is None:
        raise UsageError("--from: give the export to promote, such as model/export/best; or --rollback")
    if given.to_version is not None:
        raise UsageError("--to_version: belongs to --rollback; a promotion takes the next number")
    margin, margins = _margins(given.margin)
    options = PromoteOptions(
        export=given.export,
        to=given.to,
        data_dir=given.data_dir,
        split=given.split,
        eval_input=tuple(given.eval_input),
        schema=given.schema,
        metrics=tuple(given.metric),
        margin=margin,
        margins=margins,
        if_undecided=given.if_undecided,
        force=given.force,
        keep=given.keep_versions,
        trust=given.trust,
        verbose=given.verbose,
    )
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


if __name__ == "__main__":
    sys.exit(main())
