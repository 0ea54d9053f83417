"""What a job imports before it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, os, sys
del os.environ["TF_USE_LEGACY_KERAS"]
from beam_jobs.runtime.job import load_libraries
load_libraries()
assert gc.isenabled() and gc.get_freeze_count() > 100_000, gc.get_freeze_count()
assert {"tensorflow", "apache_beam", "tensorflow_transform.beam", "tf_keras"} <= set(sys.modules)
assert "keras" not in sys.modules
"""


@pytest.mark.slow
def test_the_collector_is_spared_the_libraries_and_one_keras_is_enough():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)
