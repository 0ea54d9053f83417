"""A small problem that a linear model can solve, for the tests of Estimator itself: no dataset, no schema.

`x` is float32 [batch, 3], `word` string [batch]; the label depends on x alone:

    "sign":   int64 [batch], 1 where x sums to more than 0
    "thirds": int64 [batch], 0, 1 or 2: the third of the sum's range
    "sum":    float32 [batch], the sum itself

    python -m tests.support.estimator_problem MODEL_DIR

trains on two replicas. `main` is a task of a parameter-server cluster, for `task_cluster`, with the arguments MODEL_DIR
REPORT_DIR: chief and worker leave a JSON report in REPORT_DIR when they are done; the evaluator ends when it has
evaluated the last checkpoint; the parameter server serves until it is killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.processes import until
from trainer.estimator import tf_estimator

ROWS = 256
_X = np.random.default_rng(7).normal(size=(ROWS, 3)).astype(np.float32)
_SUM = _X.sum(axis=1)

LABELS = {
    "sign": (_SUM > 0).astype(np.int64),
    "thirds": np.digitize(_SUM, [-0.7, 0.7]).astype(np.int64),
    "sum": _SUM,
}


def features() -> dict[str, np.ndarray]:
    return {"x": _X, "word": np.where(_SUM > 0, b"up", b"down")}


def feature_columns() -> tuple[list[Any], list[Any]]:
    """Columns for a linear model, and for a deep one. Only the deep one reads the word, which determines the sign."""
    word = tf.feature_column.categorical_column_with_vocabulary_list("word", ["up", "down"])
    x = tf.feature_column.numeric_column("x", shape=(3,))
    return [x], [x, tf.feature_column.embedding_column(word, dimension=2)]


def train_input(label: str = "sign", batch_size: int = 64) -> Callable[[], tf.data.Dataset]:
    def input_fn() -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices((features(), LABELS[label]))
        return rows.shuffle(ROWS, seed=1).repeat().batch(batch_size)

    return input_fn


def eval_input(label: str = "sign") -> Callable[[], tf.data.Dataset]:
    def input_fn() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((features(), LABELS[label])).batch(64)

    return input_fn


def serving_input() -> Any:
    """Raw features by name: `x` float32 [?, 3] and `word` string [?]."""
    receivers = {
        "x": tf.compat.v1.placeholder(tf.float32, [None, 3], name="x"),
        "word": tf.compat.v1.placeholder(tf.string, [None], name="word"),
    }
    return tf_estimator.export.ServingInputReceiver(receivers, receivers)


def logistic_model_fn(features: Any, labels: Any, mode: str, params: dict[str, Any]) -> Any:
    """Logistic regression of "sign" on x by plain gradient descent at `params["learning_rate"]`."""
    with tf.compat.v1.variable_scope("logistic"):
        weights = tf.compat.v1.get_variable("weights", [3, 1], initializer=tf.compat.v1.zeros_initializer())
        bias = tf.compat.v1.get_variable("bias", [1], initializer=tf.compat.v1.zeros_initializer())
    logit = tf.squeeze(tf.matmul(features["x"], weights) + bias, axis=-1)
    predictions = {"probability": tf.sigmoid(logit)}
    if mode == tf_estimator.ModeKeys.PREDICT:
        return tf_estimator.EstimatorSpec(mode, predictions)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=tf.cast(labels, tf.float32), logits=logit))
    if mode == tf_estimator.ModeKeys.EVAL:
        accuracy = tf.compat.v1.metrics.accuracy(labels, tf.cast(logit > 0, tf.int64))
        return tf_estimator.EstimatorSpec(mode, predictions, loss, eval_metric_ops={"accuracy": accuracy})
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(params["learning_rate"])
    train_op = optimizer.minimize(loss, global_step=tf.compat.v1.train.get_or_create_global_step())
    return tf_estimator.EstimatorSpec(mode, predictions, loss, train_op)


def logistic_estimator(
    model_dir: Path,
    *,
    learning_rate: float = 0.5,
    model_fn: Callable[..., Any] = logistic_model_fn,
    warm_start_from: Any = None,
    **run_config: Any,
) -> Any:
    return tf_estimator.Estimator(
        model_fn,
        config=tf_estimator.RunConfig(model_dir=str(model_dir), tf_random_seed=1, **run_config),
        params={"learning_rate": learning_rate},
        warm_start_from=warm_start_from,
    )


def scalars(folder: Path, tag: str) -> dict[int, float]:
    """Step -> value, of one scalar summary in a folder's event files."""
    return {
        event.step: value.simple_value
        for path in sorted(folder.glob("events.*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
        if value.tag == tag
    }


def train_on_replicas(model_dir: Path) -> None:
    """Trains on two logical CPUs of this process, and prints the result as a line of JSON.

    In a process of its own, because logical devices are created before TensorFlow's first operation. The all-reduce
    that MirroredStrategy picks by default deadlocks between logical CPUs; ReductionToOneDevice does not.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(
        ["/cpu:0", "/cpu:1"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    weights_on: list[str] = []

    class FindWeights(tf_estimator.SessionRunHook):
        def begin(self) -> None:
            handles = [op for op in tf.compat.v1.get_default_graph().get_operations() if op.type == "VarHandleOp"]
            weights_on.extend(op.device[-5:] for op in handles if op.name.startswith("logistic/weights"))

    estimator = logistic_estimator(
        model_dir, train_distribute=strategy, session_config=tf.compat.v1.ConfigProto(device_count={"CPU": 2})
    )
    before = estimator.train(train_input(), steps=1).evaluate(eval_input())
    after = estimator.train(train_input(), max_steps=60, hooks=[FindWeights()]).evaluate(eval_input())
    print(
        json.dumps(
            {
                "weights_on": sorted(weights_on),
                "global_step": int(after["global_step"]),
                "loss": [float(before["loss"]), float(after["loss"])],
                "accuracy": float(after["accuracy"]),
            }
        )
    )


MAX_STEPS = 200


def _wait_for_started(folder: Path, trainers: int) -> None:
    """Returns when this many trainers have taken their first step."""
    until(lambda: len(list(folder.glob("*.started"))) >= trainers, f"the first steps of {trainers} trainers")


class Trainer(tf_estimator.SessionRunHook):
    """Records a trainer's steps and their rows, and stops it after its first step until every trainer has taken one."""

    def __init__(self, *, name: str, trainers: int, folder: Path) -> None:
        self.name, self.trainers, self.folder = name, trainers, folder
        self.steps = 0
        self.rows: set[int] = set()
        self.variables_on: list[str] = []

    def begin(self) -> None:
        self.variables_on = sorted({variable.device for variable in tf.compat.v1.global_variables()})

    def before_run(self, run_context: Any) -> Any:
        return tf_estimator.SessionRunArgs("row:0")

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.steps += 1
        self.rows.update(int(row) for row in run_values.results)
        if self.steps > 1:
            return
        (self.folder / f"{self.name}.started").touch()
        _wait_for_started(self.folder, self.trainers)

    def report(self) -> dict[str, Any]:
        return {"steps": self.steps, "rows": sorted(self.rows), "variables_on": self.variables_on}


def _model_fn(features: dict[str, tf.Tensor], labels: Any, mode: str, params: dict[str, Any]) -> Any:
    if mode == tf_estimator.ModeKeys.TRAIN:
        tf.identity(features["row"], name="row")
    return logistic_model_fn(features, labels, mode, params)


def _train_input(config: Any) -> tf.data.Dataset:
    """A trainer's share of the rows, by its index in the cluster, with each row's number."""
    numbered = {**features(), "row": np.arange(len(LABELS["sign"]))}
    rows = tf.data.Dataset.from_tensor_slices((numbered, LABELS["sign"]))
    return rows.shard(config.num_worker_replicas, config.global_id_in_cluster).repeat().batch(32)


def main(argv: Sequence[str]) -> int:
    """Performs the role that TF_CONFIG names."""
    model_dir, report_dir = argv[0], Path(argv[1])
    config = tf_estimator.RunConfig(
        model_dir=model_dir, tf_random_seed=1, save_checkpoints_steps=50, experimental_max_worker_delay_secs=0
    )
    name = f"{config.task_type}-{config.task_id}"
    trainer = Trainer(name=name, trainers=config.num_worker_replicas, folder=report_dir)
    if config.task_type == "worker":
        # A worker that finds the chief's variables uninitialized checks again only after 30 s.
        _wait_for_started(report_dir, 1)
    tf_estimator.train_and_evaluate(
        tf_estimator.Estimator(_model_fn, config=config, params={"learning_rate": 0.1}),
        tf_estimator.TrainSpec(_train_input, max_steps=MAX_STEPS, hooks=[trainer]),
        tf_estimator.EvalSpec(
            eval_input(),
            steps=None,
            exporters=tf_estimator.FinalExporter("final", serving_input),
            start_delay_secs=0,
            throttle_secs=1,
        ),
    )
    if config.task_type != "evaluator":
        (report_dir / f"{name}.json").write_text(json.dumps(trainer.report()))
    return 0


if __name__ == "__main__":
    train_on_replicas(Path(sys.argv[1]))
