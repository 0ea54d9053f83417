"""What TF_CONFIG must name for each strategy. Importing this imports no TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError
from schemas.storage.json_files import parse_json

VARIABLE = "TF_CONFIG"


def check_cluster(strategy: str, environment: Mapping[str, str] = os.environ) -> None:
    """Compares a strategy with the cluster in the environment.

    Raises:
      UsageError: they do not fit, or TF_CONFIG cannot be read.
    """
    jobs = set(_read(environment).get("cluster") or {})
    found = f"names {', '.join(sorted(jobs))}" if jobs else "names no cluster"
    if strategy == "parameter_server" and not {"chief", "ps"} <= jobs:
        raise UsageError(
            f"--strategy parameter_server: {VARIABLE} {found}; expected a cluster of chief, ps and any number of "
            "workers (docs/strategies.md)"
        )
    if strategy == "multi_worker" and jobs != {"chief", "worker"}:
        raise UsageError(
            f"--strategy multi_worker: {VARIABLE} {found}; expected a cluster of chief and worker, which take "
            "each step together (docs/strategies.md)"
        )
    if strategy == "mirrored" and jobs:
        raise UsageError(
            f"--strategy mirrored: replicas on one machine, but {VARIABLE} names a cluster; unset it, or train with "
            "--strategy parameter_server or multi_worker"
        )
    if strategy == "none" and {"chief", "worker"} <= jobs and "ps" not in jobs:
        raise UsageError(
            f"{VARIABLE} {found}, but no parameter servers that hold the variables; add ps, or train with --strategy "
            "multi_worker"
        )


def trains() -> bool:
    """Whether this process is one of those in the cluster that train, rather than an evaluator or parameter server."""
    return (_read(os.environ).get("task") or {}).get("type") in ("chief", "worker")


def _read(environment: Mapping[str, str]) -> dict[str, Any]:
    """TF_CONFIG; empty without one."""
    text = environment.get(VARIABLE, "")
    try:
        found: Any = parse_json(text) if text else {}
        set(found.get("cluster") or {}), (found.get("task") or {}).get("type")
        return dict(found)
    except (ValueError, AttributeError, TypeError):
        raise UsageError(f'{VARIABLE}: expected a JSON object with "cluster" and "task", found {text[:80]!r}') from None
