"""Training by TPUEstimator: its steps on a TPU, everything else on the host. `--tpu cpu` takes the same way on the CPU.

A TPU compiles a step, so batches have one size, and the host computes what cannot be compiled: see
`trainer.data.host_features`. Evaluations, predictions and exports run on the host, from checkpoints, as without a TPU.

Whether a TPU can be reached from here, and why not.

What a model asks about a TPU: whether its step is compiled for one, and how many cores share a batch.

Each core makes the step on its part of the batch, so the cores' gradients must be averaged before they are applied.

What a TPU's step tells: its scalars go to the host, which writes them for TensorBoard.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainingPlan

SHUTDOWN = "TF_TPU_GRACEFUL_SHUTDOWN_MODE"


def resolver(name: str) -> Any:
    """The cluster resolver of a TPU.

    Raises:
      UsageError: this TensorFlow is built without TPUs, or finds no such TPU.
    """
    if not has_kernels():
        version = importlib.metadata.version("tensorflow")
        raise UsageError(
            f"--tpu {name}: TensorFlow {version} is built without TPUs, whether libtpu is installed or not. The "
            "package tensorflow-tpu, which has them, ends at 2.20, and this project needs 2.21. Train on a GPU or CPU, "
            "or try the same way on the CPU with --tpu cpu."
        )
    # At the end, TPUEstimator would call a part of TensorFlow that is gone, to save once more when preempted.
    os.environ.setdefault(SHUTDOWN, "")
    try:
        found = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        found.cluster_spec()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise UsageError(f"--tpu {name}: no such TPU ({str(error).splitlines()[0]})") from error
    return found


def has_kernels() -> bool:
    """Whether this build of TensorFlow can run a step on a TPU."""
    kernels: Any = importlib.import_module("tensorflow.python.framework.kernels")  # private: tf.sysconfig tells of GPUs
    return bool(kernels.get_registered_kernels_for_op("TPUExecute").kernel)


Gradients = Sequence[tuple[Any, Any]]  # (gradient, variable)


def compiles_step(mode: str, config: Any) -> bool:
    """Whether a `model_fn` builds a step for a TPU, or one that takes the same way on the CPU.

    Args:
      mode: TRAIN, EVAL or PREDICT; only training steps are compiled.
      config: the Estimator's `RunConfig`, which is one of `tf_estimator.tpu` if a TPU trains.
    """
    return mode == tf_estimator.ModeKeys.TRAIN and isinstance(config, tf_estimator.tpu.RunConfig)


def cores() -> int | None:
    """How many cores make the step that is being built; None outside of a TPU's step, as on the CPU."""
    tpu_function: Any = importlib.import_module("tensorflow.python.tpu.tpu_function")  # private: the only place
    count = tpu_function.get_tpu_context().number_of_shards
    return None if count is None else int(count)


def across_cores(optimizer: Any) -> Any:
    """A `tf.compat.v1.train.Optimizer` that applies the mean of the cores' gradients; on the CPU, as it is."""
    return optimizer if cores() is None else tf.compat.v1.tpu.CrossShardOptimizer(optimizer)


def keras_settings() -> dict[str, Any]:
    """The same for an optimizer of Keras 2, which `CrossShardOptimizer` does not take: arguments of its constructor."""
    return {} if cores() is None else {"gradient_transformers": [mean_over_cores]}


def mean_over_cores(gradients: Gradients) -> list[tuple[Any, Any]]:
    """Replaces each core's gradients by their mean over all cores, in a TPU's step."""
    count = cores() or 1
    everyone = [list(range(count))]
    return [
        (tf.raw_ops.CrossReplicaSum(input=tf.convert_to_tensor(gradient) / count, group_assignment=everyone), variable)
        for gradient, variable in gradients
    ]


def take_scalars() -> dict[str, tf.Tensor]:
    """The scalars that the model of this graph has summarized, by tag, but for its loss, which Estimator writes.

    No summary of the model remains in the graph's collection: a TPU writes none, and nothing else can read a value out
    of its step. Histograms and images are lost.
    """
    summaries = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.SUMMARIES)
    scalars = {
        tf.make_ndarray(summary.op.inputs[0].op.get_attr("value")).item().decode(): summary.op.inputs[1]
        for summary in summaries
        if summary.op.type == "ScalarSummary"
    }
    summaries.clear()
    scalars.pop("loss", None)
    return scalars


def write_scalars(config: Any, scalars: dict[str, tf.Tensor], *, after: tf.Operation) -> Any:
    """A host call, which writes the mean over the cores of each scalar.

    Args:
      config: the `RunConfig`: where, and after how many steps again.
      scalars: by tag, `[]`.
      after: the step; the values are told of the step number that it leads to.

    Returns:
      A function, and the tensors that it is called with: of each core `[1]`, of all together `[cores]`.
    """
    tags, every = list(scalars), config.save_summary_steps
    metadata = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})
    with tf.control_dependencies([after]):
        step = tf.identity(tf.compat.v1.train.get_global_step())

    def write(steps: tf.Tensor, *values: tf.Tensor) -> Any:
        if not every:
            return []
        written = tf.equal(steps[0] % every, 1 % every)  # the first step, and then again after each so many
        writer = tf.summary.create_file_writer(config.model_dir)
        with writer.as_default(step=tf.cast(steps[0], tf.int64)), tf.summary.record_if(written):
            for tag, value in zip(tags, values, strict=True):
                # as tf.summary.scalar does, for which TensorBoard must be installed
                tf.summary.write(tag, tf.reduce_mean(value), metadata=metadata)
            return tf.compat.v1.summary.all_v2_summary_ops()

    return write, [tf.reshape(x, [1]) for x in (step, *(tf.cast(value, tf.float32) for value in scalars.values()))]


CPU = "cpu"
LOOP = 100  # steps that a TPU makes before it comes back to the host
tpu: Any = tf_estimator.tpu


def tpu_run_config(options: TrainingPlan, model_dir: str, **settings: Any) -> Any:
    """The `RunConfig` of a training on a TPU.

    Raises:
      UsageError: there is no runtime that could reach a TPU.
    """
    return tpu.RunConfig(
        model_dir=model_dir,
        tf_random_seed=options.seed,
        cluster=None if options.tpu == CPU else resolver(str(options.tpu)),
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=min(LOOP, options.save_checkpoints_steps),
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
        **settings,
    )


def as_tpu_estimator(
    estimator: Any,
    options: TrainingPlan,
    receive: Callable[[dict[str, Any]], None],
    *,
    batch_size: int,
    eval_batch_size: int,
) -> Any:
    """An Estimator as a TPUEstimator in the same model directory.

    Args:
      estimator: one whose config is from `tpu_run_config`.
      options: those of the training.
      receive: called with the features of a step before it is built.
      batch_size: examples a step, over all cores.
      eval_batch_size: examples a batch of evaluations, on the host.
    """

    def model_fn(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        if mode != tf_estimator.ModeKeys.TRAIN:
            return estimator.model_fn(features, labels, mode, config)
        receive(features)
        spec = estimator.model_fn(features, labels, mode, config)
        scalars = {**take_scalars(), "loss_on_tpu": spec.loss}
        return tpu.TPUEstimatorSpec(
            mode,
            loss=spec.loss,
            train_op=spec.train_op,
            scaffold_fn=lambda: spec.scaffold,
            host_call=write_scalars(config, scalars, after=spec.train_op),
            training_hooks=[*spec.training_hooks, *spec.training_chief_hooks],
        )

    return tpu.TPUEstimator(
        model_fn,
        config=estimator.config,
        use_tpu=options.tpu != CPU,
        train_batch_size=batch_size,
        eval_batch_size=eval_batch_size,
        predict_batch_size=eval_batch_size,
        eval_on_tpu=False,
        export_to_tpu=False,
    )
