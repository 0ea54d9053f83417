"""How much TensorFlow says: by default nothing but errors. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os

from schemas.quick_import import quick_import
from schemas.quiet_start import quiet_start


def start_tensorflow(*, verbose: bool) -> None:
    """Imports TensorFlow, and finds its devices, with or without what they write to standard error meanwhile.

    Its C++ libraries say which instructions they were built for and which drivers are not there, before any setting of
    theirs is heard. Its Python log, and Estimator's, is of errors only, unless `verbose`.
    """
    if verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0")
    with contextlib.nullcontext() if verbose else quiet_start():
        quick_import("tensorflow", "trainer.estimator")  # the latter settles which Keras tf.keras is, before it is used
        import tensorflow as tf

        tf.config.list_logical_devices()
    level = logging.INFO if verbose else logging.ERROR
    tf.compat.v1.logging.set_verbosity(level)
    logging.getLogger("absl").setLevel(level)
