"""What trials have imported when they begin: importing this, in the process that they are forked from, imports it all.

Libraries print some lines while they are imported, which belong to no trial. Nothing runs here: TensorFlow starts its
threads, and looks for devices, when a trial first asks it for something.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from schemas.quick_import import quick_import


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
with _silence():
    quick_import("tensorflow", "trainer.estimator", "trainer.loop.train", "trainer.model_dir.failures", "trainer.task")
