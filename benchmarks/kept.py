"""Figures of one measurement, kept in a file beside the code, with the machine and the versions that they are of."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine

FOLDER = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Kept:
    """What was measured; `machine` is of `benchmarks.machine`, with the `load` average as the measurement began."""

    machine: Mapping[str, str]
    figures: Any

    def told(self) -> str:
        """A sentence under a table: when, on which inputs, beside how much other work."""
        inputs = "the real files" if self.machine["real_data"] == "true" else "synthetic samples"
        return f"Measured on {self.machine['date']} on {inputs}, at a load average of {self.machine['load']}."


def conditions(*, real_data: bool) -> dict[str, str]:
    """Of a measurement that begins now."""
    return {**machine.describe(real_data=real_data), "load": f"{os.getloadavg()[0]:.1f}"}


def save(name: str, kept: Kept) -> None:
    """Writes `name`.json."""
    (FOLDER / f"{name}.json").write_text(json.dumps(dataclasses.asdict(kept), indent=1) + "\n", encoding="utf-8")


def load(name: str) -> Kept | None:
    """What was kept; None where nothing was."""
    path = FOLDER / f"{name}.json"
    return Kept(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
