"""A task of a parameter-server cluster, for `task_cluster`: MODEL_DIR REPORT_DIR.

The trainers (chief and worker) leave a JSON report in REPORT_DIR when they are done; the evaluator ends when it has
evaluated the last checkpoint; the parameter server serves until it is killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.estimator_problem import LABELS, eval_input, features, logistic_model_fn, serving_input
from tests.support.processes import until
from trainer.estimator import tf_estimator

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
