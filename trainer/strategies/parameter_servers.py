"""When a worker of a cluster with parameter servers begins: as soon as the chief has initialized the variables.

Estimator lets a worker wait some seconds for each worker before it. One that finds the variables uninitialized all the
same looks again only after 30 s, in which the others may have done all the steps.
"""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from schemas import interrupts

EVERY_SECS = 0.5
ANSWER_MS = 5000  # of a parameter server that may not have started yet


def wait_for_chief(config: Any) -> None:
    """Returns when the variables on the parameter servers are initialized.

    Args:
      config: the `RunConfig` of a worker in a cluster with parameter servers.
    """
    addresses = config.cluster_spec.as_dict().get("ps", [])
    while addresses and not initialized(addresses[0]):
        interrupts.check()
        time.sleep(EVERY_SECS)


def initialized(address: str) -> bool:
    """Whether the first parameter server, which has the global step, has a value for it."""
    settings = tf.compat.v1.ConfigProto(device_filters=["/job:ps"], operation_timeout_in_ms=ANSWER_MS)
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
        step = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[], shared_name=tf.compat.v1.GraphKeys.GLOBAL_STEP)
        initialized = tf.raw_ops.VarIsInitializedOp(resource=step)
        try:
            with tf.compat.v1.Session(f"grpc://{address}", config=settings) as session:
                return bool(session.run(initialized))
        except (tf.errors.UnavailableError, tf.errors.DeadlineExceededError):
            return False
