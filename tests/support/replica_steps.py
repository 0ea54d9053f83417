"""A few steps of a model under a strategy, by Estimator and without exports: a command for `tests.support.replicas`.

    STEPS BEGIN DATA_DIR MODEL_DIR FLAG ...

trains to that step, from the checkpoint of the model directory BEGIN unless that is empty, and evaluates. FLAGs are
those of `trainer.task`. Prints the loss, and on how many devices the model's variables lay.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from schemas.dataset import open_dataset
from trainer.loop.building import build_estimator
from trainer.loop.progress import Display
from trainer.loop.train import Task
from trainer.strategies.run_config import run_config, without_notices
from trainer.task import parse_options


class FindWeights(tf.compat.v1.train.SessionRunHook):
    """Finds the devices of all variables."""

    def __init__(self) -> None:
        self.devices: set[str] = set()

    def begin(self) -> None:
        operations = tf.compat.v1.get_default_graph().get_operations()
        self.devices = {op.device for op in operations if op.type == "VarHandleOp"}


def main(argv: Sequence[str]) -> int:
    tf.keras.backend.clear_session()  # else a Keras model's layers are numbered on from those of the one before
    steps, begin, data_dir, model_dir, *flags = argv
    if begin:
        shutil.copytree(begin, model_dir)
    options = parse_options(["--data_dir", data_dir, "--model_dir", model_dir, *flags])
    dataset = open_dataset(data_dir)
    config = run_config(options, model_dir, save_checkpoints_steps=1000, checkpoint_save_graph_def=False)
    config.session_config.graph_options.rewrite_options.disable_meta_optimizer = (
        True  # which takes longer than it saves
    )
    task: Any = Task(options, dataset, build_estimator(dataset, options, config), Display(quiet=True))
    weights = FindWeights()
    with without_notices():
        task.estimator.train(task.reader("train", "train"), max_steps=int(steps), hooks=[weights])
    metrics = task.estimator.evaluate(task.reader("eval", "eval"))
    print(json.dumps({"loss": float(metrics["loss"]), "devices": len(weights.devices)}))
    return 0
