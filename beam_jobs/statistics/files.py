"""The files of a run that hold its statistics."""

from __future__ import annotations

import json
from typing import Any

from beam_jobs.statistics.describe import describe
from beam_jobs.statistics.proto import to_proto
from beam_jobs.statistics.state import Statistics
from schemas.dataset import layout
from schemas.storage import folders


def place(run_dir: str, statistics: Statistics, sketches: bytes) -> dict[str, Any]:
    """Writes the statistics to a run, for programs (JSON, protobuf) and for merging (the sketches).

    `sketches` are the bytes of `statistics`. Processes that commit the same run write the same bytes. Returns the
    values of `statistics.json`.
    """
    described = describe(statistics)
    for name, data in (
        (layout.STATISTICS_SKETCHES, sketches),
        (layout.STATISTICS_PB, to_proto(statistics).SerializeToString(deterministic=True)),
        (layout.STATISTICS_JSON, json.dumps(described, allow_nan=False).encode() + b"\n"),
    ):
        folders.create(layout.join(run_dir, name), data)
    return described
