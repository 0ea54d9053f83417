"""The `RunConfig` of a training, and how many examples of a batch each replica gets."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.estimator.all_reduce import all_reduce_strategy, is_all_reduce
from trainer.estimator.threads import with_threads
from trainer.spec.options import TrainOptions
from trainer.strategies.cluster import check_cluster, trains
from trainer.strategies.devices import check_bfloat16, count_gpus, replica_devices, split_cpu
from trainer.strategies.multi_worker import STEP_SECONDS
from trainer.strategies.tpu import tpu_run_config


def run_config(options: TrainOptions, model_dir: str, **settings: Any) -> Any:
    """A `RunConfig` with the strategy that the options name.

    Args:
      options: those of the training.
      model_dir: where the model is kept.
      settings: further arguments of `RunConfig`.

    Raises:
      UsageError: this machine has not the devices, or TF_CONFIG not the cluster.
    """
    check_cluster(options.strategy)
    split_cpu(options.logical_cpus)
    if options.tpu is not None:
        config = tpu_run_config(options, model_dir, **settings)
    else:
        config = tf_estimator.RunConfig(
            model_dir=model_dir, tf_random_seed=options.seed, train_distribute=_strategy(options), **settings
        )
    config = config.replace(session_config=_session_config(options, config))
    return with_threads(config, inter_op=options.inter_op_threads, intra_op=options.intra_op_threads)


def replicas_of(config: Any) -> int:
    """How many replicas take part in each step of a `RunConfig`'s training, those of other tasks among them."""
    if not config.train_distribute:
        return 1
    here = len(config.train_distribute.extended.worker_devices)
    return here * config.num_worker_replicas if is_all_reduce(config) else here


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Where an Estimator trains: a strategy asks tf.data for its options as sessions must, of which tf.data warns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options", UserWarning)
        yield


def check_shared(batch_size: int, replicas: int) -> None:
    """Refuses a batch that the replicas cannot share evenly.

    Raises:
      UsageError: the replicas do not divide the batch.
    """
    if batch_size % replicas:
        fits = max(1, batch_size // replicas) * replicas
        raise UsageError(
            f"--batch_size {batch_size}: {replicas} replicas share each batch, so it must be a multiple of {replicas}, "
            f"such as {fits}"
        )


def _strategy(options: TrainOptions) -> Any:
    """What spreads the steps; None where one device takes them, or a worker by itself."""
    if options.strategy == "mirrored":
        return _mirrored(options.num_gpus)
    if options.strategy == "multi_worker" and trains():
        return all_reduce_strategy(count_gpus(options.num_gpus))
    return None


def _mirrored(num_gpus: int | None) -> Any:
    devices = replica_devices(num_gpus)
    # The all-reduce that TensorFlow chooses for logical CPUs never ends in a session, so theirs is named here.
    on_cpu = "CPU" in devices[0]
    ops = tf.distribute.ReductionToOneDevice() if on_cpu else tf.distribute.NcclAllReduce()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=ops)


def _session_config(options: TrainOptions, config: Any) -> Any:
    """Estimator's own settings of a session, and what the options add to them."""
    session = config.session_config  # in a cluster: with filters, so that a worker waits for no other
    if session is None:
        session = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        session.graph_options.rewrite_options.meta_optimizer_iterations = 1  # as Estimator's own: one pass
    if options.logical_cpus is not None:
        session.device_count["CPU"] = options.logical_cpus
    if is_all_reduce(config):
        session.operation_timeout_in_ms = int(1000 * STEP_SECONDS)
    graph = session.graph_options
    if options.xla:
        graph.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
        graph.optimizer_options.cpu_global_jit = True
    if options.mixed_precision:
        check_bfloat16()
        graph.rewrite_options.auto_mixed_precision_onednn_bfloat16 = graph.rewrite_options.ON
    return session


def as_exported(estimator: Any) -> Any:
    """The same Estimator, computing as its exports do, which hold no setting of a session.

    Its session has no lower precision and no compiler, and runs the graph as it is, as `ServedModel`'s does: what
    Grappler fuses rounds otherwise, and a deep network can make 1e-4 of that before it is trained.
    """
    session = tf.compat.v1.ConfigProto()
    session.CopyFrom(estimator.config.session_config)
    graph = session.graph_options
    graph.rewrite_options.ClearField("auto_mixed_precision_onednn_bfloat16")
    graph.rewrite_options.disable_meta_optimizer = True
    graph.optimizer_options.ClearField("global_jit_level")
    graph.optimizer_options.ClearField("cpu_global_jit")
    return tf_estimator.Estimator(estimator.model_fn, config=estimator.config.replace(session_config=session))
