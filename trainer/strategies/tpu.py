"""Training by TPUEstimator: its steps on a TPU, everything else on the host. `--tpu cpu` takes the same way on the CPU.

A TPU compiles a step, so batches have one size, and nothing in it is sparse or a string. Evaluations, predictions and
exports run on the host, from checkpoints, as without a TPU.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainOptions

CPU = "cpu"
LOOP = 100  # steps that a TPU makes before it comes back to the host
tpu: Any = tf_estimator.tpu


def tpu_run_config(options: TrainOptions, model_dir: str, **settings: Any) -> Any:
    """The `RunConfig` of a training on a TPU.

    Raises:
      UsageError: there is no runtime that could reach a TPU.
    """
    return tpu.RunConfig(
        model_dir=model_dir,
        tf_random_seed=options.seed,
        cluster=None if options.tpu == CPU else _resolver(str(options.tpu)),
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=min(LOOP, options.evaluation_steps),
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
        **settings,
    )


def as_tpu_estimator(estimator: Any, options: TrainOptions, *, batch_size: int, eval_batch_size: int) -> Any:
    """An Estimator as a TPUEstimator in the same model directory.

    Args:
      estimator: one whose config is from `tpu_run_config`.
      options: those of the training.
      batch_size: examples a step, over all cores.
      eval_batch_size: examples a batch of evaluations, on the host.
    """

    def model_fn(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != tf_estimator.ModeKeys.TRAIN:
            return spec
        step, loss = tf.compat.v1.train.get_global_step(), spec.loss
        return tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=spec.train_op,
            scaffold_fn=lambda: spec.scaffold,
            host_call=(_write_loss(estimator.model_dir), [tf.reshape(step, [1]), tf.reshape(loss, [1])]),
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


def _write_loss(model_dir: str) -> Any:
    """A host call: writes the loss for TensorBoard, which a TPU cannot."""

    metadata = tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "scalars"})

    def write(step: tf.Tensor, loss: tf.Tensor) -> Any:
        with tf.summary.create_file_writer(model_dir).as_default(step=tf.cast(step[0], tf.int64)):
            # as tf.summary.scalar does, for which TensorBoard must be installed
            tf.summary.write("loss_on_tpu", tf.reduce_mean(loss), metadata=metadata)
            return tf.compat.v1.summary.all_v2_summary_ops()

    return write


def _resolver(name: str) -> Any:
    if importlib.util.find_spec("libtpu") is None:
        version = importlib.metadata.version("tensorflow")
        raise UsageError(
            f"--tpu {name}: the TPU runtime (libtpu) is not installed, and TensorFlow {version} has none: the package "
            f"tensorflow-tpu ends at 2.20. Train on a GPU or CPU, or try the same way on the CPU with --tpu {CPU}."
        )
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(name)
        resolver.cluster_spec()
    except (tf.errors.OpError, RuntimeError, ValueError) as error:
        raise UsageError(f"--tpu {name}: no such TPU ({str(error).splitlines()[0]})") from error
    return resolver
