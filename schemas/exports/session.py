"""Configures sessions that run a graph as it is, and what TensorFlow logs. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from schemas.libraries import starting_tensorflow


def plain_session(*, threads: int = 0) -> Any:
    """Returns the configuration of a session that runs a graph as it is, without Grappler.

    Optimizing the graph of an image export takes two seconds for each signature, and no batch is quicker for it: 64
    images through a SqueezeNext take 0.15 s either way, 1,024 rows through a dnn 7 ms.

    Args:
      threads: that an op is divided among; 0: as many as there are cores.
    """
    import tensorflow as tf

    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=threads, gpu_options={"allow_growth": True})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def set_log_level(level: int) -> None:
    """Sets the level of `logging` from which TensorFlow's Python code and absl log."""
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity(level)
    logging.getLogger("absl").setLevel(level)


@contextlib.contextmanager
def quiet_logs(*, verbose: bool = False) -> Iterator[None]:
    """Logs only errors in the `with` block, unless `verbose`, in a process that is not only this project's.

    Starts TensorFlow there.
    """
    with starting_tensorflow(verbose=verbose, own_process=False):
        import tensorflow as tf
    before = tf.compat.v1.logging.get_verbosity(), logging.getLogger("absl").level
    set_log_level(logging.INFO if verbose else logging.ERROR)
    try:
        yield
    finally:
        tf.compat.v1.logging.set_verbosity(before[0])
        logging.getLogger("absl").setLevel(before[1])
