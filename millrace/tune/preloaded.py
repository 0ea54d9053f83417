"""Imports what every trial needs. The processes of trials are forked from the process that imports this module.

The lines that libraries print while they are imported are suppressed. Nothing is computed here: TensorFlow starts its
threads and looks for devices only when a trial first uses it.
"""

from __future__ import annotations

import os

from schemas.libraries import LOG_LEVEL, quick_import, without_log

os.environ.setdefault(LOG_LEVEL, "2")
with without_log():
    quick_import(
        "tensorflow", "trainer.estimator", "trainer.loop.train", "trainer.model_dir.checkpoints", "trainer.task"
    )
