"""How long an accelerator computes in a training step, from TensorFlow's own trace of the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

TRACED_STEPS = 5
_KERNELS = "/stream:all"  # of a GPU: the kernels of all its streams; /memcpy has the copies


def full_trace() -> Any:
    """The options of a step of which TensorFlow records when each operation ran, and where."""
    return tf.compat.v1.RunOptions(trace_level=tf.compat.v1.RunOptions.FULL_TRACE)


def busy_seconds(traces: Sequence[Any], device: str) -> float | None:
    """The mean time of a step in which a device computed; copies to and from it do not count.

    Args:
      traces: the `StepStats` of steps, or their `RunMetadata.step_stats`.
      device: the end of the device's name, such as /device:GPU:0.

    Returns:
      Seconds of a step; None if no trace tells of the device.
    """
    found = [_kernels(trace, device) for trace in traces]
    if not any(found):
        return None
    return sum(_covered(kernels) for kernels in found) / len(found) / 1e6


def _kernels(trace: Any, device: str) -> list[tuple[int, int]]:
    """When kernels began and ended, in microseconds: of a GPU those on its streams, of a CPU all operations."""
    devices = {stats.device: stats.node_stats for stats in trace.dev_stats}
    names = [name for name in devices if name.endswith(device + _KERNELS)]
    names = names or [name for name in devices if name.endswith(device) and "CPU" in device]
    nodes = (node for name in names for node in devices[name])
    return [
        (node.all_start_micros + node.op_start_rel_micros, node.all_start_micros + node.op_end_rel_micros)
        for node in nodes
    ]


def _covered(intervals: Iterable[tuple[int, int]]) -> int:
    """The length of the union of intervals."""
    covered, reached = 0, 0
    for begin, end in sorted(intervals):
        covered += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return covered
