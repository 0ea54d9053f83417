"""The metric for Vertex AI's tuner, in the file that Google's cloudml-hypertune writes.

One JSON object a line, the latest 100 evaluations, numbers as strings; the file is written as a whole each time.
"""

from __future__ import annotations

import collections
import json
import os
import time
from pathlib import Path

FILE, TRIAL = "CLOUD_ML_HP_METRIC_FILE", "CLOUD_ML_TRIAL_ID"  # variables that Vertex AI sets in a trial
DEFAULT_FILE = "/tmp/hypertune/output.metrics"  # noqa: S108 - where Vertex AI looks
_KEPT = 100

_reported: collections.deque[dict[str, str | float]] = collections.deque(maxlen=_KEPT)


def report(metric: str, value: float, global_step: int) -> None:
    """Reports an evaluation, if this process is in a trial of a tuner.

    Args:
      metric: the metric's name, for the tuner's `metricId`.
      value: its value.
      global_step: the step that was evaluated.
    """
    if not (os.environ.get(FILE) or os.environ.get(TRIAL)):
        return
    _reported.append(
        {
            "timestamp": time.time(),
            "trial": os.environ.get(TRIAL, "0"),
            metric: str(float(value)),
            "global_step": str(global_step),
            "checkpoint_path": "",
        }
    )
    path = Path(os.environ.get(FILE) or DEFAULT_FILE)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry, sort_keys=True) + "\n" for entry in _reported))
