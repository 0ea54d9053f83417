"""What TF_CONFIG must name for each strategy. Importing this imports no TensorFlow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError

VARIABLE = "TF_CONFIG"


def check_cluster(strategy: str, environment: Mapping[str, str] = os.environ) -> None:
    """Compares a strategy with the cluster in the environment.

    Raises:
      UsageError: they do not fit, or TF_CONFIG cannot be read.
    """
    if strategy == "multi_worker":
        raise UsageError(
            "--strategy multi_worker: Estimator's part of all-reduce across machines left TensorFlow in 2.16 "
            "(tensorflow.python.distribute.estimator_training), and Millrace does not replace it. Train on one machine "
            "with --strategy mirrored, or on several with --strategy parameter_server."
        )
    jobs = _jobs(environment)
    if strategy == "parameter_server" and not {"chief", "ps"} <= jobs:
        found = f"names {', '.join(sorted(jobs))}" if jobs else "names no cluster"
        raise UsageError(
            f"--strategy parameter_server: {VARIABLE} {found}; expected a cluster of chief, ps and any number of "
            "workers (docs/strategies.md)"
        )
    if strategy == "mirrored" and jobs:
        raise UsageError(
            f"--strategy mirrored: replicas on one machine, but {VARIABLE} names a cluster; unset it, or train with "
            "--strategy parameter_server"
        )


def _jobs(environment: Mapping[str, str]) -> set[str]:
    """The kinds of tasks in the cluster; empty without one."""
    text = environment.get(VARIABLE, "")
    try:
        found: Any = json.loads(text) if text else {}
        return set(found.get("cluster") or {})
    except (json.JSONDecodeError, AttributeError, TypeError):
        raise UsageError(f'{VARIABLE}: expected a JSON object with "cluster" and "task", found {text[:80]!r}') from None
