"""A few steps of a model under a strategy, by Estimator and without evaluations: for `replicas` and `task_cluster`.

    STEPS BEGIN DATA_DIR MODEL_DIR FLAG ...

trains to that step, from the initial weights of the training in the model directory BEGIN unless that is empty. FLAGs
are those of `trainer.task`. Prints the losses of the first and the last step, on how many devices the model's variables
lay and its batches arrived, and whether all variables lay on parameter servers.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from schemas.dataset import open_dataset
from trainer.data.input_fn import input_fn
from trainer.data.input_options import input_options
from trainer.estimator import tf_estimator
from trainer.loop.building import build_estimator
from trainer.loop.plan import plan_training
from trainer.strategies.run_config import replicas_of, run_config, without_notices
from trainer.task import parse_options


class Watch(tf.compat.v1.train.SessionRunHook):
    """Finds the devices of all variables and of the batches, and the loss of each step."""

    def __init__(self) -> None:
        self.devices: set[str] = set()
        self.inputs: set[str] = set()
        self.losses: list[float] = []
        self._loss: Any = None

    def begin(self) -> None:
        operations = tf.compat.v1.get_default_graph().get_operations()
        self.devices = {op.device for op in operations if op.type == "VarHandleOp"}
        self.inputs = {op.device for op in operations if op.type == "IteratorGetNext"}
        self._loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]  # Estimator adds its loss last

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self.losses.append(float(run_values.results))


def begin_as(begin: str, model_dir: str) -> None:
    """Makes a model directory whose only checkpoint is that of step 0 of another."""
    Path(model_dir).mkdir(parents=True)
    for path in Path(begin).glob("model.ckpt-0.*"):
        shutil.copy(path, model_dir)
    tf.compat.v1.train.update_checkpoint_state(model_dir, f"{model_dir}/model.ckpt-0")


def main(argv: Sequence[str]) -> int:
    tf.keras.backend.clear_session()  # else a Keras model's layers are numbered on from those of the one before
    steps, begin, data_dir, model_dir, *flags = argv
    dataset = open_dataset(data_dir)
    requested = parse_options(["--data_dir", data_dir, "--model_dir", model_dir, *flags])
    options = plan_training(dataset, requested)
    config = run_config(options, model_dir, save_checkpoints_steps=1000, checkpoint_save_graph_def=False)
    if begin and config.is_chief:
        begin_as(begin, model_dir)
    config.session_config.graph_options.rewrite_options.disable_meta_optimizer = (
        True  # which takes longer than it saves
    )
    watch = Watch()

    input_settings = input_options(dataset, options, split="train", mode="train", replicas=replicas_of(config))

    def read(params: Mapping[str, Any]) -> tf.data.Dataset:
        sized = dataclasses.replace(input_settings, batch_size=params.get("batch_size", input_settings.batch_size))
        return input_fn(dataset, "train", mode="train", options=sized)

    train = tf_estimator.TrainSpec(read, max_steps=int(steps), hooks=[watch])
    estimator = build_estimator(dataset, options, config)
    with without_notices():
        if config.num_ps_replicas:
            tf_estimator.train_and_evaluate(estimator, train, tf_estimator.EvalSpec(read))
        else:
            estimator.train(train.input_fn, hooks=[watch], max_steps=train.max_steps)
    served = all("/job:ps" in device for device in watch.devices)
    losses = {"first": watch.losses[0], "loss": watch.losses[-1]}
    print(json.dumps({**losses, "devices": len(watch.devices), "inputs": len(watch.inputs), "served": served}))
    return 0
