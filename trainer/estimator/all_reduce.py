"""Estimator's part of all-reduce across machines, which left TensorFlow in 2.16 (`estimator_training`).

What it was made of is still there: the strategy of TF1, which adds up gradients by collective operations between the
sessions of all tasks, and the coordinator that starts a task's server and says where its session is. In between,
`train_and_evaluate` trains in each task: the chief and the workers take every step together.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import tensorflow as tf

TRAINERS = ("chief", "worker")


class TaskLost(Exception):
    """The steps cannot go on, because another task of the cluster has ended or cannot be reached."""


def all_reduce_strategy(num_gpus: int) -> Any:
    """A `train_distribute` for a cluster of a chief and workers: replicas on the GPUs of every task, else on its CPU.

    Args:
      num_gpus: the GPUs of this task, as many as every other has; 0: it trains on its CPU.
    """
    # In a graph, since a strategy that is made eagerly starts a server for eager operations at once.
    with tf.Graph().as_default():
        this_machine = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec({}), num_accelerators={"GPU": num_gpus}
        )
        return tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy(cluster_resolver=this_machine)


def is_all_reduce(config: Any) -> bool:
    """Whether this task of a cluster takes its steps together with the others."""
    return bool(config.cluster_spec) and config.task_type in TRAINERS and can_all_reduce(config.train_distribute)


def can_all_reduce(strategy: Any) -> bool:
    """Whether a strategy is one of `all_reduce_strategy`."""
    return isinstance(strategy, tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy)


def train_and_evaluate(estimator: Any, train_spec: Any, eval_spec: Any, executor: Any) -> None:
    """Trains in a chief or worker, together with all others. The evaluator evaluates, in a process without a strategy.

    Raises:
      TaskLost: another task has ended.
    """
    coordinator: Any = importlib.import_module("tensorflow.python.distribute.distribute_coordinator")
    contexts: Any = importlib.import_module("tensorflow.python.distribute.distribute_coordinator_context")
    config = estimator.config

    def train(strategy: Any) -> None:
        """Within the coordinator's context, of the strategy that it has set up for this task."""
        context = contexts.get_current_worker_context()
        creator = context.session_creator
        context.session_creator = lambda *args, **kwargs: _CreatedOnce(creator(*args, **kwargs))
        with_strategy = type(estimator)(
            estimator.model_fn,
            config=config.replace(train_distribute=strategy),
            warm_start_from=estimator._warm_start_settings,  # private: there is no public accessor
        )
        with_strategy.train(train_spec.input_fn, hooks=list(train_spec.hooks), max_steps=train_spec.max_steps)

    with tf.Graph().as_default():  # eagerly, the strategy would check its peers by eager operations
        coordinator.run_distribute_coordinator(
            train,
            config.train_distribute,
            eval_fn=_nothing,
            mode=coordinator.CoordinatorMode.INDEPENDENT_WORKER,
            cluster_spec=config.cluster_spec,
            task_type=config.task_type,
            task_id=config.task_id,
            session_config=config.session_config,
        )


class _CreatedOnce(tf.compat.v1.train.SessionCreator):
    """Creates a session, but no second one after an error.

    `MonitoredSession` would create one after another, because parameter servers may come back. The collective
    operations of a server that has lost another refuse to run ever again.
    """

    def __init__(self, creator: Any) -> None:
        self._creator = creator
        self._created = False

    def create_session(self) -> Any:
        if self._created:
            raise TaskLost
        self._created = True
        try:
            return self._creator.create_session()
        except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
            raise TaskLost from error


def refuse(*_: Any, **__: Any) -> NoReturn:
    """What calls Estimator's methods, instead of `train_and_evaluate`, on several machines."""
    raise NotImplementedError("A strategy across machines trains by train_and_evaluate only.")


def _nothing(strategy: Any) -> None:
    """The coordinator asks for an evaluation that it never calls in a chief or worker."""
