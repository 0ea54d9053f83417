"""Collected resources leave a graph alone that is being built; sessions have the threads that were asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tensorflow as tf

from trainer.estimator import tf_estimator  # noqa: F401 - importing it is what puts this in place


class Table(tf.saved_model.experimental.TrackableResource):
    destroyed: ClassVar[list[str]] = []

    def _destroy_resource(self) -> None:
        self.destroyed.append("destroyed")
        tf.no_op()


@pytest.fixture(autouse=True)
def _forget() -> None:
    Table.destroyed.clear()


def test_nothing_is_added_to_a_graph():
    table = Table()
    with tf.Graph().as_default() as graph:
        del table
        assert graph.get_operations() == []
    assert Table.destroyed == []


def test_other_resources_are_destroyed():
    table = Table()
    del table
    assert Table.destroyed == ["destroyed"]


ROOT = Path(__file__).parents[3]
PROGRAM = """\
import json, os, sys
from schemas.libraries import quick_import
quick_import("tensorflow", "trainer.estimator")
import tensorflow as tf
from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.estimator.sessions import with_threads
from trainer.verbosity import start_tensorflow

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


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_are_those_that_were_asked_for(answers, case):
    found = answers[case]
    assert (found["process"], found["session"]) == CASES[case][1:]
    assert "TensorFlow has started its threads in this process" in found["refusal"]
