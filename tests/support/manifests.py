"""The manifests that `millrace submit kubernetes` writes, and what Kubernetes makes of a pod's variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from millrace.cli import main

TRAIN = ["train", "--data_dir", "gs://b/data", "--model_dir", "gs://b/model"]
IMAGE = ["--image", "us-docker.pkg.dev/p/r/millrace:1"]
EVERYTHING = [
    *("--namespace", "forest", "--workers", "2", "--ps", "1", "--cpu", "500m", "--memory", "2Gi", "--gpus", "1"),
    *(
        "--env",
        "A=$(B)",
        "--labels",
        "team=forest",
        "empty=",
        "--service_account",
        "trainer",
        "--volume",
        "data=/mnt/data",
    ),
]


def documents(folder: Path, *flags: str, train: Sequence[str] = TRAIN) -> list[dict[str, Any]]:
    """Those of a job with the name trees."""
    path = folder / "jobs.yaml"
    argv = ["submit", "kubernetes", *IMAGE, "--job_name", "trees", "--output", str(path), *flags, "--", *train]
    assert main(argv) == 0
    return list(yaml.safe_load_all(path.read_text()))


def variables(container: dict[str, Any], index: int) -> dict[str, str]:
    """The variables of a pod, as Kubernetes makes them: `$(NAME)` is an earlier one's value, `$$(` stands for `$(`."""
    values: dict[str, str] = {}
    for variable in container["env"]:
        if "valueFrom" in variable:
            path = variable["valueFrom"]["fieldRef"]["fieldPath"]
            assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            values[variable["name"]] = str(index)
        else:
            put = re.sub(r"(?<!\$)\$\((\w+)\)", lambda match: values.get(match[1], match[0]), variable["value"])
            values[variable["name"]] = put.replace("$$", "$")
    return values
