"""Imports what every trial needs, in the process from which trials are forked.

Libraries print some lines while they are imported, which belong to no trial. Nothing runs here: TensorFlow starts its
threads, and looks for devices, when a trial first asks it for something.
"""

from __future__ import annotations

import os

from schemas.libraries import LOG_LEVEL, quick_import, without_log

os.environ.setdefault(LOG_LEVEL, "2")
with without_log():
    quick_import(
        "tensorflow", "trainer.estimator", "trainer.loop.train", "trainer.model_dir.checkpoints", "trainer.task"
    )
