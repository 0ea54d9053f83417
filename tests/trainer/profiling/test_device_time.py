"""How long a device computes, by TensorFlow's traces.

No GPU was there to trace. Its traces are written here by hand, with the names that TensorFlow's
`xplane_to_step_stats.cc` gives to a GPU's streams and copies.
"""

from __future__ import annotations

import pytest
import tensorflow as tf

from trainer.profiling.device_time import busy_seconds, full_trace

HOST = "/job:localhost/replica:0/task:0/device:"


def trace(**nodes: list[tuple[int, int]]) -> tf.compat.v1.RunMetadata:
    """Of each device when operations ran, in microseconds."""
    stats = tf.compat.v1.RunMetadata().step_stats
    for device, times in nodes.items():
        added = stats.dev_stats.add(device=HOST + device.replace("__", "/").replace("_", ":"))
        for begin, end in times:
            added.node_stats.add(all_start_micros=1000, op_start_rel_micros=begin, op_end_rel_micros=end)
    return stats


def test_kernels_that_overlap_count_once_and_copies_do_not() -> None:
    kernels = [(0, 100), (50, 150), (60, 70), (400, 500)]
    first = trace(GPU_0=[(0, 900)], GPU_0__stream_all=kernels, GPU_0__memcpy=[(200, 300)], GPU_1__stream_all=[(0, 9)])
    assert busy_seconds([first], "/device:GPU:0") == pytest.approx(250e-6)
    assert busy_seconds([first, trace(GPU_0__stream_all=[(0, 50)])], "/device:GPU:0") == pytest.approx(150e-6)


def test_a_trace_without_kernels_tells_nothing() -> None:
    assert busy_seconds([trace(GPU_0=[(0, 900)])], "/device:GPU:0") is None


def test_tensorflow_traces_a_step() -> None:
    """On the CPU, whose operations are told under its own name."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        product = tf.linalg.matmul(tf.random.normal([200, 200]), tf.random.normal([200, 200]))
        metadata = tf.compat.v1.RunMetadata()
        session.run(product, options=full_trace(), run_metadata=metadata)
    busy = busy_seconds([metadata.step_stats], "/device:CPU:0")
    assert busy is not None
    assert busy > 0
