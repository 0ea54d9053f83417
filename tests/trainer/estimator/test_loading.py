"""Importing trainer.estimator: which Keras it settles on, what it refuses, and the threads of its sessions.

What comes after an import of TensorFlow runs in processes that are forked from one that has imported it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


CHECK = """
import tf_keras
from tensorflow.keras.layers import Dense
assert tf.keras.Model is tf.compat.v1.keras.Model is tf_keras.Model, tf.keras.Model
assert tf.optimizers.legacy.Adam is tf_keras.optimizers.legacy.Adam
assert Dense is tf_keras.layers.Dense
"""
FIRST = """
import sys, trainer.estimator, tensorflow as tf
assert "apache_beam" not in sys.modules and "tensorflow_transform" not in sys.modules
"""
AFTER_TENSORFLOW = {
    "after TensorFlow": "import tensorflow as tf, trainer.estimator" + CHECK,
    "after tensorflow_transform": "import tensorflow as tf, tensorflow_transform, trainer.estimator" + CHECK,
    "after Keras 3 was used": "import tensorflow as tf; tf.keras.Model; import trainer.estimator",
}
FORKING = """
import json, os, sys, tempfile, traceback, warnings
import tensorflow
for program in sys.argv[1:]:
    with tempfile.TemporaryFile("w+") as said:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads, such as NumPy's: the programs do not use them
            child = os.fork()
        if not child:
            os.dup2(said.fileno(), 2)
            status = 0
            try:
                exec(program, {})
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        print(json.dumps([status, said.read()]), flush=True)
"""


def _python(program: str, *arguments: str, keras: str | None) -> subprocess.CompletedProcess[str]:
    """Runs a program in a fresh process with TF_USE_LEGACY_KERAS as given."""
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    if keras is not None:
        environment["TF_USE_LEGACY_KERAS"] = keras
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def forked() -> dict[str, Any]:
    """The exit code and standard error of each program of AFTER_TENSORFLOW."""
    run = _python(FORKING, *AFTER_TENSORFLOW.values(), keras=None)
    assert run.returncode == 0, run.stderr[-3000:]
    return dict(zip(AFTER_TENSORFLOW, map(json.loads, run.stdout.splitlines()), strict=True))


@pytest.mark.parametrize(
    ("keras", "program"),
    [(None, FIRST), ("True", "import tensorflow as tf; tf.keras.Model; import trainer.estimator")],
    ids=["first", "after Keras 2 was used"],
)
def test_tf_keras_is_keras_2(keras: str | None, program: str) -> None:
    run = _python(program + CHECK, keras=keras)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.parametrize("when", ["after TensorFlow", "after tensorflow_transform"])
def test_tf_keras_is_keras_2_where_tensorflow_was_imported(forked: dict[str, Any], when: str) -> None:
    code, stderr = forked[when]
    assert code == 0, stderr[-3000:]


def _is_refused(code: int, stderr: str, message: str) -> None:
    assert code == 1
    assert message in stderr.splitlines()[-1]
    assert "UsageError" in stderr.splitlines()[-1]


def test_keras_3_is_refused_by_the_environment() -> None:
    run = _python("import trainer.estimator", keras="0")
    _is_refused(
        run.returncode, run.stderr, "TF_USE_LEGACY_KERAS=0 in the environment: Estimator needs Keras 2 (the package"
    )


def test_keras_3_is_refused_by_an_earlier_import(forked: dict[str, Any]) -> None:
    code, stderr = forked["after Keras 3 was used"]
    _is_refused(code, stderr, "tf.keras was used, as Keras 3, before trainer.estimator was imported")


PROGRAM = """\
import json, os, sys
from schemas.libraries import quick_import
quick_import("tensorflow", "trainer.estimator")
import tensorflow as tf
from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.strategies.run_config import with_threads
from trainer.start import start_tensorflow

def answer(threads):
    start_tensorflow(verbose=False, **threads)
    config = with_threads(tf_estimator.RunConfig("m"), **threads)
    try:
        with_threads(tf_estimator.RunConfig("m"), inter_op=11, intra_op=13)
        refusal = None
    except UsageError as error:
        refusal = str(error)
    session = config.session_config
    return {
        "process": [tf.config.threading.get_inter_op_parallelism_threads(),
                    tf.config.threading.get_intra_op_parallelism_threads()],
        "session": None if session is None else [session.inter_op_parallelism_threads,
                                                 session.intra_op_parallelism_threads, session.allow_soft_placement],
        "refusal": refusal,
    }

for line in sys.argv[1:]:
    child = os.fork()
    if not child:
        print(json.dumps(answer(json.loads(line))), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


CASES: list[tuple[dict[str, int | None], list[int], list[int | bool] | None]] = [
    ({"inter_op": None, "intra_op": None}, [0, 0], None),
    ({"inter_op": 3, "intra_op": 5}, [3, 5], [3, 5, True]),
    ({"inter_op": None, "intra_op": 1}, [0, 1], [0, 1, True]),
]


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    command = [sys.executable, "-c", PROGRAM, *(json.dumps(threads) for threads, _, _ in CASES)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_sessions_have_the_threads_that_were_asked_for(answers, case):
    found = answers[case]
    assert (found["process"], found["session"]) == CASES[case][1:]
    assert "TensorFlow has started its threads in this process" in found["refusal"]
