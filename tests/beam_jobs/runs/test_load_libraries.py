"""What a job imports before it starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, os, sys
del os.environ["TF_USE_LEGACY_KERAS"]
from beam_jobs.runs.run import load_libraries
load_libraries()
assert gc.isenabled() and gc.get_freeze_count() > 100_000, gc.get_freeze_count()
assert {"tensorflow", "apache_beam", "tensorflow_transform.beam", "tf_keras"} <= set(sys.modules)
assert "keras" not in sys.modules
"""


VERBOSE = """
import os
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
{start}(verbose={verbose})
import tensorflow as tf
print(os.environ["TF_CPP_MIN_LOG_LEVEL"], tf.get_logger().isEnabledFor(20))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "verbose", "told"),
    [
        ("from beam_jobs.runs.job import load_libraries as start; start", False, "2 False"),
        ("from trainer.start import start_tensorflow as start; start", False, "2 False"),
        ("from trainer.start import start_tensorflow as start; start", True, "0 True"),
    ],
)
def test_the_log_of_tensorflow_comes_with_verbose_and_nothing_without(start, verbose, told):
    code = VERBOSE.format(start=start, verbose=verbose)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=300)
    assert (done.stdout.strip(), bool(done.stderr)) == (told, verbose)


@pytest.mark.slow
def test_the_collector_is_spared_the_libraries_and_one_keras_is_enough():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=300)
