"""How much TensorFlow says: by default nothing but errors. Importing this imports no TensorFlow."""

from __future__ import annotations

import logging
import os

from schemas.quick_import import quick_import


def start_tensorflow(*, verbose: bool) -> None:
    """Imports TensorFlow, and finds its devices. Its logs, and Estimator's, are of errors only, unless `verbose`.

    A few lines come all the same: its C++ libraries write them before they read any setting.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "2")
    quick_import("tensorflow", "trainer.estimator")  # the latter settles which Keras tf.keras is, before it is used
    import tensorflow as tf

    tf.config.list_logical_devices()
    level = logging.INFO if verbose else logging.ERROR
    tf.compat.v1.logging.set_verbosity(level)
    logging.getLogger("absl").setLevel(level)
