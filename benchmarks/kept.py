"""Stores the figures of a measurement in a file next to the code, with the machine and the versions."""

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
    """Stored figures; `machine` is from `benchmarks.machine`, with the `load` average at the start."""

    machine: Mapping[str, str]
    figures: Any

    def told(self) -> str:
        """A sentence under a table: the time, the inputs and the load."""
        inputs = "the real files" if self.machine["real_data"] == "true" else "synthetic samples"
        return f"Measured on {self.machine['date']} on {inputs}, at a load average of {self.machine['load']}."


def conditions(*, real_data: bool) -> dict[str, str]:
    """The conditions of a measurement that begins now."""
    return {**machine.describe(real_data=real_data), "load": f"{os.getloadavg()[0]:.1f}"}


def save(name: str, kept: Kept) -> None:
    """Writes `name`.json."""
    (FOLDER / f"{name}.json").write_text(json.dumps(dataclasses.asdict(kept), indent=1) + "\n", encoding="utf-8")


def load(name: str) -> Kept | None:
    """The stored figures; None if there are none."""
    path = FOLDER / f"{name}.json"
    return Kept(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None
