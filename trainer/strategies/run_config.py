"""Makes the `RunConfig` of a training: the devices of its replicas, and how they share a batch.

Devices are GPUs, or logical devices that share the CPU. A checkpoint of a replicated model holds each variable once,
under its own name, so that a training can resume with any strategy. Keras 2's optimizers need help with this. They make
their slots by `tf.Variable`, which adds the copy on each device to the graph's variables. A checkpoint would then hold
`kernel/m` and `kernel/m/replica_1`, and one device has no variable of the second name. `with_whole_variables` removes
the copies.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from schemas import interrupts
from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainingPlan
from trainer.strategies.cluster import check_cluster
from trainer.strategies.tpu import tpu_run_config


def split_cpu(count: int | None) -> None:
    """Divides this machine's CPU into `count` logical devices that share its cores.

    Does nothing for None, or if it has been called with the same number before.

    Raises:
      UsageError: TensorFlow has already started in this process, with another number of devices.
    """
    if count is None:
        return
    try:
        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    except RuntimeError:  # TensorFlow has already initialized its devices
        device_count = len(tf.config.list_logical_devices("CPU"))
        if device_count != count:
            raise UsageError(
                f"--logical_cpus {count}: TensorFlow has already started in this process, with {device_count}; use a "
                "process of its own for this training"
            ) from None


def replica_devices(num_gpus: int | None) -> tuple[str, ...]:
    """Returns the names of the replicas' devices: the GPUs, or the logical CPUs on a machine without a GPU.

    Args:
      num_gpus: the number of GPUs to use; None: all.

    Raises:
      UsageError: the machine has fewer GPUs, or a single CPU device is the only device.
    """
    gpus, cpus = (tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU"))
    if num_gpus is not None and num_gpus > len(gpus):
        raise UsageError(f"--num_gpus {num_gpus}: TensorFlow finds {len(gpus)} GPUs on this machine")
    if not gpus and len(cpus) < 2:
        raise UsageError(
            "--strategy mirrored: TensorFlow finds no GPU on this machine. Train with --strategy none, or try replicas "
            "on the CPU with --logical_cpus 2."
        )
    return tuple(device.name for device in (gpus[:num_gpus] if gpus else cpus))


def run_config(options: TrainingPlan, model_dir: str, **settings: Any) -> Any:
    """Returns the `RunConfig` of a training, with the strategy that the options name.

    Args:
      options: the options of the training.
      model_dir: the model directory.
      settings: further arguments of `RunConfig`.

    Raises:
      UsageError: this machine does not have the devices, or TF_CONFIG does not have the cluster, that the strategy
        needs.
    """
    check_cluster(options.strategy)
    split_cpu(options.logical_cpus)
    if options.tpu is not None:
        config = tpu_run_config(options, model_dir, **settings)
    else:
        config = tf_estimator.RunConfig(
            model_dir=model_dir,
            tf_random_seed=options.seed,
            train_distribute=_mirrored(options.num_gpus) if options.strategy == "mirrored" else None,
            **settings,
        )
    set_threads(inter_op=options.inter_op_threads, intra_op=options.intra_op_threads)
    return config.replace(session_config=_session_config(options, config))


def replicas_of(config: Any) -> int:
    """Returns the number of replicas that share each batch of a training with this `RunConfig`."""
    return len(config.train_distribute.extended.worker_devices) if config.train_distribute else 1


@contextlib.contextmanager
def without_notices() -> Iterator[None]:
    """Hides a warning of tf.data about dataset options that cannot be preserved in a session.

    A strategy or a tf.data service reads the options in the only way that sessions allow.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "To make it possible to preserve tf.data options", UserWarning)
        yield


def check_shared(batch_size: int, replicas: int) -> None:
    """Raises UsageError if the replicas cannot divide a batch evenly."""
    if batch_size % replicas:
        fits = max(1, batch_size // replicas) * replicas
        raise UsageError(
            f"--batch_size {batch_size}: {replicas} replicas share each batch, so it must be a multiple of {replicas}, "
            f"such as {fits}"
        )


def _mirrored(num_gpus: int | None) -> Any:
    """Returns the strategy for replicas on one machine."""
    devices = replica_devices(num_gpus)
    # For logical CPUs, the all-reduce that TensorFlow chooses by default never ends in a session.
    on_cpu = "CPU" in devices[0]
    ops = tf.distribute.ReductionToOneDevice() if on_cpu else tf.distribute.NcclAllReduce()
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=ops)


def _session_config(options: TrainingPlan, config: Any) -> Any:
    """Returns Estimator's own session settings, with those of the options added."""
    session = config.session_config  # in a cluster, it has filters, so that workers do not wait for each other
    if session is None:
        session = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        session.graph_options.rewrite_options.meta_optimizer_iterations = 1  # one pass, as Estimator sets by default
    if options.logical_cpus is not None:
        session.device_count["CPU"] = options.logical_cpus
    session.inter_op_parallelism_threads = options.inter_op_threads or 0
    session.intra_op_parallelism_threads = options.intra_op_threads or 0
    graph = session.graph_options
    if options.xla:
        graph.optimizer_options.global_jit_level = tf.compat.v1.OptimizerOptions.ON_1
        graph.optimizer_options.cpu_global_jit = True
    if options.mixed_precision:
        if tf.config.list_physical_devices("GPU"):
            raise UsageError(
                "--mixed_precision: on a GPU, TensorFlow rewrites a graph to float16 only, in which small gradients "
                "become 0 unless the loss is scaled, and Estimator's optimizers scale none. Train without it."
            )
        graph.rewrite_options.auto_mixed_precision_onednn_bfloat16 = graph.rewrite_options.ON
    return session


def as_exported(estimator: Any) -> Any:
    """Returns the same Estimator, but it computes like its exports, which do not store session settings.

    Its session has full precision, no XLA, and no graph optimization, like the session of `ServedModel`. Grappler fuses
    ops, which changes the rounding; in a deep network before training, the difference can grow to 1e-4.
    """
    session = tf.compat.v1.ConfigProto()
    session.CopyFrom(estimator.config.session_config)
    graph = session.graph_options
    graph.rewrite_options.ClearField("auto_mixed_precision_onednn_bfloat16")
    graph.rewrite_options.disable_meta_optimizer = True
    graph.optimizer_options.ClearField("global_jit_level")
    graph.optimizer_options.ClearField("cpu_global_jit")
    return tf_estimator.Estimator(estimator.model_fn, config=estimator.config.replace(session_config=session))


def with_whole_variables(spec: Any) -> Any:
    """Returns a TRAIN spec in which the saver sees each variable once, without its copies on the replicas.

    Without a distribution strategy, the spec is returned unchanged.

    Args:
      spec: an `EstimatorSpec`.
    """
    if not tf.distribute.has_strategy():
        return spec
    return spec._replace(training_hooks=[_LeaveOutParts(), *spec.training_hooks])


class _LeaveOutParts(tf.compat.v1.train.SessionRunHook):
    """Removes the replicas' copies of variables from the graph's list, before a session makes the saver."""

    def begin(self) -> None:
        strategy = tf.distribute.get_strategy()
        variables = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)
        parts = {id(part) for v in variables for part in strategy.experimental_local_results(v) if part is not v}
        variables[:] = [v for v in variables if id(v) not in parts]


def with_interrupts(spec: Any) -> Any:
    """Adds a `CheckInterrupts` hook to an `EstimatorSpec`, for training, evaluation and prediction."""
    kinds = ("training_hooks", "evaluation_hooks", "prediction_hooks")
    return spec._replace(**{kind: [CheckInterrupts(), *getattr(spec, kind)] for kind in kinds})


class CheckInterrupts(tf.compat.v1.train.SessionRunHook):
    """Ends the session before the next step if the process was interrupted but the exception got lost."""

    def before_run(self, run_context: Any) -> None:
        interrupts.check()


def set_threads(*, inter_op: int | None, intra_op: int | None) -> None:
    """Sets the number of TensorFlow's threads in this process, before TensorFlow runs anything.

    Args:
      inter_op: the number of ops that run in parallel; None: unchanged.
      intra_op: the number of threads that one op may use; None: unchanged.

    Raises:
      UsageError: TensorFlow already runs, with other numbers.
    """
    try:
        if inter_op is not None:
            tf.config.threading.set_inter_op_parallelism_threads(inter_op)
        if intra_op is not None:
            tf.config.threading.set_intra_op_parallelism_threads(intra_op)
    except RuntimeError:
        raise UsageError(
            "--inter_op_threads, --intra_op_threads: TensorFlow has started its threads in this process; set the "
            "numbers in a new process, or leave them out"
        ) from None
