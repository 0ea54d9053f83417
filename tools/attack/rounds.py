"""A round, and what was tried and found in all of them: counts, and for each fault a folder that reproduces it."""

from __future__ import annotations

import collections
import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

from tools.attack.ground import Answer, Ask, Children, Ground, ground
from tools.attack.oracle_dataset import Found

KEPT = 3  # reproductions of one kind of fault; more are only counted


@dataclasses.dataclass
class Tally:
    """The counts of an attack, by kind and then by what is counted, and its faults by title.

    `folder` is where reproductions go.
    """

    folder: Path
    counts: dict[str, collections.Counter[str]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    faults: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)

    def count(self, kind: str, what: str, number: int = 1) -> None:
        """Adds to a count."""
        self.counts[kind][what] += number

    def fault(self, kind: str, title: str, detail: str, *, keep: Path | None = None, **told: Any) -> None:
        """Notes a fault, and copies `keep`, with all that it takes to see it again, into a folder of its own.

        Args:
          kind: the attack that found it.
          title: the kind of fault, the same for all of its instances.
          detail: what was expected and what was found.
          keep: a folder of inputs and outputs.
          told: the seed, the commands, and what else `fault.json` is to say.
        """
        name = f"{kind}: {title}"
        self.faults[name] += 1
        number = self.faults[name]
        if number > KEPT:
            return
        lines = detail.strip().splitlines() or [""]
        print(f"FAULT {name}: {lines[0][:300]}" + (f" ... {lines[-1][:300]}" if len(lines) > 1 else ""), flush=True)
        slug = "".join(c if c.isalnum() else "-" for c in name)[:80]
        folder = self.folder / f"{slug}-{number}"
        if keep is not None and keep.exists():
            shutil.copytree(keep, folder / "files", dirs_exist_ok=True, symlinks=True, ignore_dangling_symlinks=True)
        folder.mkdir(parents=True, exist_ok=True)
        notes = {"kind": kind, "title": title, "detail": detail, **told}
        (folder / "fault.json").write_text(json.dumps(notes, indent=1, default=str) + "\n")

    def table(self) -> str:
        """The counts and the faults, for people."""
        lines = []
        for kind, counts in self.counts.items():
            for what, number in sorted(counts.items()):
                lines.append(f"{kind:<12} {what:<44} {number:>12,}")
        lines += [f"{'FAULTS':<12} {title:<44} {number:>12,}" for title, number in self.faults.most_common()]
        total = self.faults.total()
        return "\n".join([*lines, f"{total:,} faults" + (f"; reproductions in {self.folder}" if total else "")])


@dataclasses.dataclass
class Round:
    """A round of one kind of attack.

    Attributes:
      kind: which.
      draw: draws all that is drawn.
      children: run the commands.
      folder: an empty one, which is kept with each fault.
      tally: where counts and faults are told.
      seed: of the round.
      told: what `fault.json` says of all its faults.
      found: what differs, which is told at the end of the round.
    """

    kind: str
    draw: random.Random
    children: Children
    folder: Path
    tally: Tally
    seed: str
    told: dict[str, Any] = dataclasses.field(default_factory=dict)
    found: Found = dataclasses.field(default_factory=Found)

    def ground(self, *kinds: str) -> Ground:
        """One of these grounds."""
        return ground(self.draw.choice(kinds), self.children, self.folder.parent / "ground")

    def run(self, *asks: Ask) -> list[Answer]:
        """Runs commands, and notes the first and what it printed."""
        answers = self.children.run(*asks)
        self.told |= {"command": asks[0].command, "output": answers[0].output}
        return answers

    def count(self, what: str, number: int = 1) -> None:
        """Adds to a count."""
        self.tally.count(self.kind, what, number)

    def fault(self, title: str, detail: str, *, keep: Path | None = None, **told: Any) -> None:
        """Notes a fault at once, with the folder as it is now."""
        self.tally.fault(self.kind, title, detail, keep=keep or self.folder, seed=self.seed, **{**self.told, **told})

    def tell(self) -> None:
        """Notes what was found."""
        for title, examples in self.found.examples.items():
            self.fault(title, f"{self.found.counts[title]} times: {'; '.join(examples)}")

    def verify(self, data: Path) -> None:
        """The dataset has to be whole, as `verify` sees it."""
        verified = self.children.one("schemas.dataset.command", "verify", str(data))
        if verified.status:
            self.found.add("verify does not say whole", verified.output[-1500:])
