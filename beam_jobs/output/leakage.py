"""What leakage a job found: its file in the run, and its warnings."""

from __future__ import annotations

import json
from typing import Any

from beam_jobs.core.inputs import StagedInputs
from beam_jobs.leakage.findings import with_paths
from beam_jobs.output.result import Result
from schemas.dataset import layout
from schemas.storage import folders


def place_leakage(run_dir: str, result: Result, inputs: StagedInputs) -> dict[str, Any] | None:
    """Writes what was found, with the names of the files that examples are in. None if nothing was looked for."""
    if not result.leakage:
        return None
    found = with_paths(result.leakage, inputs.path_of)
    folders.create(layout.join(run_dir, layout.LEAKAGE), json.dumps(found, allow_nan=False).encode() + b"\n")
    return found
