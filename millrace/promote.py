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

Otherwise it appears as the next version in --to, in one step. Beside it, decisions.jsonl holds every decision and its
reasons, of refused exports too.

Exit codes: 0 in service, 1 refused or failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import sys

from schemas import command
from schemas.interrupts import interruptible
from trainer.promotion.options import PromoteOptions

PROG = "millrace promote"


def _run(options: PromoteOptions, prog: str) -> command.Report:
    from trainer.promotion.promote import promote, roll_back

    with command.when_interrupted("what was in service stays there"), interruptible(sigterm=True):
        if options.rollback:
            decision = roll_back(options)
        else:
            decision = promote(options) if options.quiet else promote(options, say=_say)
    return command.Report("\n".join(decision.lines()), decision.record(), 0 if decision.in_service else 1)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


COMMAND = command.Command(prog=PROG, options=PromoteOptions, work=_run, description=__doc__ or "")
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
