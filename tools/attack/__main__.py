"""Attacks the project for some minutes. See the package."""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.attack.ground import Children
from tools.attack.rounds import Round, Tally

KINDS = {  # and what plays a round of it
    "fuzz": "fuzz_csv:play",
    "damage": "damage:play",
    "kill": "kill:play",
    "serve": "serve:play",
    "serve_images": "serve_images:play",
    "wire": "serve:play_clients",
    "predict": "fuzz_csv:play_predictions",
    "images": "fuzz_images:play",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Parses, attacks, reports. Returns the exit code: 0 no fault, 1 faults, 2 invalid usage."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack", description="Fuzzes, kills and damages.")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long; default: %(default)g")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn; default: %(default)s")
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of attack; default: %(default)s")
    parser.add_argument("--work", help="where to work and keep faults; default: a new temporary folder")
    parser.add_argument("--rounds", type=int, help="stop after so many rounds of each kind")
    given = parser.parse_args(argv)
    kinds = given.only.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or given.minutes <= 0:
        parser.error(f"--only {given.only}: the kinds are {', '.join(KINDS)}; --minutes must be more than 0")
    work = Path(given.work or tempfile.mkdtemp(prefix="attack-")).absolute()
    work.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tally = Tally(work / "faults")
    try:
        attack(kinds, work, tally, seconds=given.minutes * 60, seed=given.seed, rounds=given.rounds)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(tally.table())
    if not given.work and not tally.faults:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if tally.faults else 0


def attack(kinds: Sequence[str], work: Path, tally: Tally, *, seconds: float, seed: int, rounds: int | None) -> None:
    """Rounds of all kinds until the time is over, the kind that has had the least time next."""
    begun = told = time.monotonic()
    spent = dict.fromkeys(kinds, 0.0)
    done = dict.fromkeys(kinds, 0)
    with Children(work / "tmp") as children:
        while time.monotonic() - begun < seconds:
            open_kinds = [k for k in kinds if rounds is None or done[k] < rounds]
            if not open_kinds:
                return
            kind = min(open_kinds, key=spent.__getitem__)
            name = f"{seed}:{kind}:{done[kind]}"
            folder = work / "round"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            started = time.monotonic()
            now = Round(kind, random.Random(name), children, folder, tally, name)
            try:
                module, _, play = KINDS[kind].partition(":")
                getattr(importlib.import_module(f"tools.attack.{module}"), play)(now)
            except Exception as error:  # the attack goes on, and this counts
                now.fault(f"the attack itself: {type(error).__name__}", repr(error))
            now.tell()
            spent[kind] += time.monotonic() - started
            done[kind] += 1
            now.count("rounds")
            if time.monotonic() - told > 30:
                told = time.monotonic()
                print(f"{told - begun:6.0f} s  {done}  {tally.faults.total()} faults", flush=True)
            shutil.rmtree(work / "tmp", ignore_errors=True)
            (work / "tmp").mkdir()
    shutil.rmtree(work / "round", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
