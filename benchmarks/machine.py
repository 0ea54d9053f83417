"""Describes the machine and the versions of a measurement, without which its figures mean nothing."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path

PACKAGES = (
    "tensorflow",
    "tensorflow-transform",
    "apache-beam",
    "tfx-bsl",
    "pyarrow",
    "numpy",
    "pandas",
    "pillow",
    "tensorflow-datasets",
    "webdataset",
)


def describe(*, real_data: bool) -> dict[str, str]:
    """The processor, the cores that may be used, the memory, the versions, the time, and whether inputs are real."""
    machine = {
        "processor": _first(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        "real_data": str(real_data).lower(),
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    return machine | {name: importlib.metadata.version(name) for name in PACKAGES}


def alike(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether figures of both may be combined in a median: only the date may differ."""
    return {**one, "date": ""} == {**other, "date": ""}


def _first(path: Path, key: str) -> str:
    """The value of the first line that begins with the key, or ''."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")


def peak_bytes(pid: int | str = "self") -> int | None:
    """The peak memory of a process so far; None if it has ended, or the system does not provide it.

    It is the kernel's figure for the program, because `ru_maxrss` includes the memory of the parent process.
    """
    found = _first(Path(f"/proc/{pid}/status"), "VmHWM:").split()
    return int(found[0]) << 10 if found else None


def cpu_seconds(pid: int | None) -> float:
    """The CPU time of another process so far; 0 if it has ended, or the system does not provide it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
