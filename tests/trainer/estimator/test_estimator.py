"""Estimator on the installed TensorFlow: what it does, and what it refuses.

Replicas, clusters and TPUEstimator are tested with the strategies that use them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tensorflow as tf

from tests.support.commands import run_program
from tests.support.estimator_problem import (
    eval_input,
    features,
    logistic_estimator,
    serving_input,
    train_input,
)
from trainer.estimator import tf_estimator


def _only_x(features: dict[str, tf.Tensor], label: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    return {"x": features["x"]}, label


@pytest.mark.filterwarnings("ignore:`tf.keras.backend.set_learning_phase` is deprecated")
@pytest.mark.filterwarnings("ignore:`Model.state_updates` will be removed")
def test_trains_evaluates_and_exports(tmp_path: Path) -> None:
    inputs = tf.keras.Input([3], name="x")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, activation="sigmoid", name="probability")(inputs))
    model.compile(tf.keras.optimizers.legacy.Adam(0.1), loss="binary_crossentropy", metrics=["accuracy"])
    estimator = tf.keras.estimator.model_to_estimator(
        model, config=tf_estimator.RunConfig(model_dir=str(tmp_path / "model"), tf_random_seed=1)
    )

    estimator.train(lambda: train_input()().map(_only_x), steps=100)
    metrics = estimator.evaluate(lambda: eval_input()().map(_only_x))
    export = estimator.export_saved_model(
        str(tmp_path / "export"),
        lambda: tf_estimator.export.TensorServingInputReceiver(
            *[tf.compat.v1.placeholder(tf.float32, [None, 3], name="x")] * 2
        ),
    )

    assert metrics["global_step"] == 100
    assert metrics["accuracy"] > 0.95
    served = tf.saved_model.load(export.decode()).signatures["serving_default"](tf.constant(features()["x"]))
    predicted = [row["probability"] for row in estimator.predict(lambda: eval_input()().map(_only_x))]
    np.testing.assert_allclose(served["probability"].numpy(), predicted, rtol=1e-6)


def test_a_model_fn_trains_evaluates_predicts_resumes_and_is_exported(tmp_path: Path) -> None:
    estimator = logistic_estimator(tmp_path / "model")
    before = estimator.train(train_input(), steps=1).evaluate(eval_input())
    resumed = logistic_estimator(tmp_path / "model")
    after = resumed.train(train_input(), max_steps=100).evaluate(eval_input())
    resumed.train(train_input(), max_steps=100)  # already there: nothing to do
    assert (before["global_step"], after["global_step"]) == (1, 100)
    assert resumed.latest_checkpoint() == str(tmp_path / "model" / "model.ckpt-100")
    assert after["loss"] < before["loss"]
    assert after["accuracy"] >= 0.95
    probabilities = np.array([p["probability"] for p in resumed.predict(eval_input())])
    assert ((probabilities > 0.5) == (features()["x"].sum(axis=1) > 0)).mean() == pytest.approx(after["accuracy"])
    export = resumed.export_saved_model(str(tmp_path / "export"), serving_input)
    serve = tf.saved_model.load(export.decode()).signatures["serving_default"]
    served = serve(**{name: tf.constant(values) for name, values in features().items()})
    np.testing.assert_allclose(served["probability"].numpy(), probabilities, rtol=1e-6)


@pytest.mark.slow
def test_evaluates_and_exports_at_every_checkpoint(tmp_path: Path) -> None:
    exporters = [
        tf_estimator.LatestExporter("latest", serving_input, exports_to_keep=2),
        tf_estimator.BestExporter("best", serving_input, exports_to_keep=1),
        tf_estimator.FinalExporter("final", serving_input),
    ]
    estimator = logistic_estimator(tmp_path, save_checkpoints_steps=10)
    metrics, exported = tf_estimator.train_and_evaluate(
        estimator,
        tf_estimator.TrainSpec(train_input(), max_steps=30),
        tf_estimator.EvalSpec(eval_input(), steps=None, exporters=exporters, start_delay_secs=0, throttle_secs=0),
    )
    assert metrics["global_step"] == 30
    exports = {name: sorted((tmp_path / "export" / name).iterdir()) for name in ("latest", "best", "final")}
    assert {name: len(paths) for name, paths in exports.items()} == {"latest": 2, "best": 1, "final": 1}
    assert exported[-1].decode() == str(exports["final"][0])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("train_distribute", "OneDeviceStrategy on several machines is not supported"),
        ("experimental_distribute", "pass train_distribute and eval_distribute"),
    ],
)
def test_a_strategy_over_several_machines_is_refused(
    monkeypatch: pytest.MonkeyPatch, option: str, message: str
) -> None:
    cluster = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "chief", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(cluster))

    with pytest.raises(NotImplementedError, match=message):
        tf_estimator.RunConfig(**{option: tf.distribute.OneDeviceStrategy("/cpu:0")})


def test_tpu_embeddings_are_refused() -> None:
    from tensorflow.python.tpu import tpu_embedding

    with pytest.raises(NotImplementedError, match="AdagradParameters: TPU embeddings are not supported"):
        tpu_embedding.AdagradParameters(0.1)


class Table(tf.saved_model.experimental.TrackableResource):
    destroyed: ClassVar[list[str]] = []

    def _destroy_resource(self) -> None:
        self.destroyed.append("destroyed")
        tf.no_op()


def test_a_resource_that_is_collected_adds_nothing_to_a_graph_that_is_being_built(monkeypatch):
    monkeypatch.setattr(Table, "destroyed", [])
    table = Table()
    with tf.Graph().as_default() as graph:
        del table
        assert graph.get_operations() == []
    assert Table.destroyed == []
    table = Table()
    del table
    assert Table.destroyed == ["destroyed"]


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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keras", "program"),
    [(None, FIRST), ("True", "import tensorflow as tf; tf.keras.Model; import trainer.estimator")],
    ids=["first", "after Keras 2 was used"],
)
def test_tf_keras_is_keras_2(keras: str | None, program: str) -> None:
    run = _python(program + CHECK, keras=keras)
    assert run.returncode == 0, run.stderr[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["after TensorFlow", "after tensorflow_transform"])
def test_tf_keras_is_keras_2_where_tensorflow_was_imported(forked: dict[str, Any], when: str) -> None:
    code, stderr = forked[when]
    assert code == 0, stderr[-3000:]


def _is_refused(code: int, stderr: str, message: str) -> None:
    assert code == 1
    assert message in stderr.splitlines()[-1]
    assert "UsageError" in stderr.splitlines()[-1]


@pytest.mark.slow
def test_keras_3_is_refused_by_the_environment() -> None:
    run = _python("import trainer.estimator", keras="0")
    _is_refused(
        run.returncode, run.stderr, "TF_USE_LEGACY_KERAS=0 in the environment: Estimator needs Keras 2 (the package"
    )


@pytest.mark.slow
def test_keras_3_is_refused_by_an_earlier_import(forked: dict[str, Any]) -> None:
    code, stderr = forked["after Keras 3 was used"]
    _is_refused(code, stderr, "tf.keras was used, as Keras 3, before trainer.estimator was imported")


PROGRAM = """\
import json, os, sys
from schemas.libraries import quick_import
quick_import("tensorflow", "trainer.estimator")
import tensorflow as tf
from schemas.errors import UsageError
from trainer.spec.options import TrainingPlan
from trainer.start import start_tensorflow

def configured(inter_op, intra_op):
    from trainer.strategies.run_config import run_config
    sizes = {"batch_size": 1, "max_steps": 1, "save_checkpoints_steps": 1, "early_stopping_steps": 0}
    threads = {"inter_op_threads": inter_op, "intra_op_threads": intra_op}
    return run_config(TrainingPlan(data_dir="d", model_dir="m", model="dnn", **sizes, **threads), "m")

def answer(threads):
    start_tensorflow(verbose=False, **threads)
    session = configured(**threads).session_config
    try:
        configured(11, 13)
        refusal = None
    except UsageError as error:
        refusal = str(error)
    return {
        "process": [tf.config.threading.get_inter_op_parallelism_threads(),
                    tf.config.threading.get_intra_op_parallelism_threads()],
        "session": [session.inter_op_parallelism_threads, session.intra_op_parallelism_threads,
                    session.allow_soft_placement],
        "refusal": refusal,
    }

for line in sys.argv[1:]:
    child = os.fork()
    if not child:
        print(json.dumps(answer(json.loads(line))), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


CASES: list[tuple[dict[str, int | None], list[int], list[int | bool]]] = [
    ({"inter_op": None, "intra_op": None}, [0, 0], [0, 0, True]),
    ({"inter_op": 3, "intra_op": 5}, [3, 5], [3, 5, True]),
    ({"inter_op": None, "intra_op": 1}, [0, 1], [0, 1, True]),
]


@pytest.fixture(scope="module")
def answers() -> list[Any]:
    done = run_program(PROGRAM, *(json.dumps(threads) for threads, _, _ in CASES))
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)))
def test_sessions_have_the_threads_that_were_asked_for(answers, case):
    answer = answers[case]
    assert (answer["process"], answer["session"]) == CASES[case][1:]
    assert "TensorFlow has started its threads in this process" in answer["refusal"]
