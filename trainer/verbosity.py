"""How much TensorFlow says: by default nothing but errors. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator

from schemas.quick_import import quick_import


def start_tensorflow(*, verbose: bool) -> None:
    """Imports TensorFlow, and finds its devices. Its logs, and Estimator's, are of errors only, unless `verbose`.

    A few lines come all the same: its C++ libraries write them before they read any setting.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "2")
    quick_import("tensorflow", "trainer.estimator")  # the latter settles which Keras tf.keras is, before it is used
    import tensorflow as tf

    tf.config.list_logical_devices()
    _set_level(logging.INFO if verbose else logging.ERROR)


@contextlib.contextmanager
def quiet_logs(*, verbose: bool) -> Iterator[None]:
    """The same levels while its block runs, in a process that is not only this project's."""
    import tensorflow as tf

    importlib.import_module("trainer.estimator")
    before = tf.compat.v1.logging.get_verbosity(), logging.getLogger("absl").level
    _set_level(logging.INFO if verbose else logging.ERROR)
    try:
        yield
    finally:
        tf.compat.v1.logging.set_verbosity(before[0])
        logging.getLogger("absl").setLevel(before[1])


def _set_level(level: int) -> None:
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity(level)
    logging.getLogger("absl").setLevel(level)
