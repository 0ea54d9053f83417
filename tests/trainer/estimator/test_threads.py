"""Threads of the model, in processes of their own: TensorFlow starts them once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """\
import json, os, sys
from trainer.verbosity import start_tensorflow
threads = json.loads(sys.argv[1])
start_tensorflow(verbose=False, **threads)
import tensorflow as tf
from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.estimator.threads import with_threads
config = with_threads(tf_estimator.RunConfig("m"), **threads)
try:
    with_threads(tf_estimator.RunConfig("m"), inter_op=11, intra_op=13)
    refusal = None
except UsageError as error:
    refusal = str(error)
session = config.session_config
print(json.dumps({
    "process": [tf.config.threading.get_inter_op_parallelism_threads(),
                tf.config.threading.get_intra_op_parallelism_threads()],
    "session": None if session is None else [session.inter_op_parallelism_threads,
                                             session.intra_op_parallelism_threads, session.allow_soft_placement],
    "refusal": refusal,
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "process", "session"),
    [
        ({"inter_op": None, "intra_op": None}, [0, 0], None),
        ({"inter_op": 3, "intra_op": 5}, [3, 5], [3, 5, True]),
        ({"inter_op": None, "intra_op": 1}, [0, 1], [0, 1, True]),
    ],
)
def test_are_those_that_were_asked_for(threads, process, session):
    command = [sys.executable, "-c", PROGRAM, json.dumps(threads)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert (found["process"], found["session"]) == (process, session)
    assert "TensorFlow has started its threads in this process" in found["refusal"]
