"""How much TensorFlow says: by default nothing but errors. Importing this imports no TensorFlow."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator


def start_tensorflow(*, verbose: bool) -> None:
    """Imports TensorFlow, and finds its devices, with or without what they write to standard error meanwhile.

    Its C++ libraries say which instructions they were built for and which drivers are not there, before any setting of
    theirs is heard. Its Python log, and Estimator's, is of errors only, unless `verbose`.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "2")
    with contextlib.nullcontext() if verbose else standard_error_closed():
        import tensorflow as tf

        import trainer.estimator  # noqa: F401  (settles which Keras tf.keras is, before it is used)

        tf.config.list_logical_devices()
    level = logging.INFO if verbose else logging.ERROR
    tf.compat.v1.logging.set_verbosity(level)
    logging.getLogger("absl").setLevel(level)


@contextlib.contextmanager
def standard_error_closed() -> Iterator[None]:
    """What this process writes to file descriptor 2 goes nowhere; exceptions come through as they are."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
