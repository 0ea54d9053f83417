"""Trains by TPUEstimator: steps run on a TPU, everything else on the host. `--tpu cpu` does the same on the CPU.

A step is compiled for the TPU, so all batches have the same size, and all inputs are dense. Evaluations, predictions
and exports run on the host, from checkpoints, as without a TPU. Each core of a TPU computes the step on its part of the
batch, so the gradients of the cores are averaged before they are applied.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from schemas.errors import UsageError
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainingPlan

CPU = "cpu"
LOOP = 100  # the number of steps that a TPU makes before it returns to the host
tpu: Any = tf_estimator.tpu


def is_tpu(config: Any) -> bool:
    """Returns whether a `RunConfig` belongs to a training on a TPU, or to `--tpu cpu`."""
    return isinstance(config, tpu.RunConfig)


def cores() -> int:
    """Returns the number of cores that will run the step that is being built; 1 outside of a TPU's step."""
    tpu_function: Any = importlib.import_module("tensorflow.python.tpu.tpu_function")  # private: there is no public one
    return tpu_function.get_tpu_context().number_of_shards or 1


def across_cores(optimizer: Any) -> Any:
    """Wraps a `tf.compat.v1.train.Optimizer` so that it applies the mean of the cores' gradients."""
    return optimizer if cores() == 1 else tf.compat.v1.tpu.CrossShardOptimizer(optimizer)


def keras_settings() -> dict[str, Any]:
    """Returns constructor arguments that make a Keras 2 optimizer average the cores' gradients; empty for one core."""
    return {} if cores() == 1 else {"gradient_transformers": [_mean_over_cores]}


def _mean_over_cores(gradients: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns the mean of the cores' gradients: divides each by the number of cores, and sums over the cores."""
    share = cores()
    return [(tf.compat.v1.tpu.cross_replica_sum(tf.convert_to_tensor(g) / share), v) for g, v in gradients]


def tpu_run_config(options: TrainingPlan, model_dir: str, **settings: Any) -> Any:
    """Returns the `RunConfig` of a training on a TPU.

    Args:
      options: the options of the training.
      model_dir: the model directory.
      settings: further arguments of `RunConfig`.

    Raises:
      UsageError: this TensorFlow is built without support for TPUs.
    """
    kernels: Any = importlib.import_module("tensorflow.python.framework.kernels")  # private: tf.sysconfig asks for GPUs
    if options.tpu != CPU and not kernels.get_registered_kernels_for_op("TPUExecute").kernel:
        raise UsageError(
            f"--tpu {options.tpu}: TensorFlow {importlib.metadata.version('tensorflow')} is built without TPUs, "
            "whether libtpu is installed or not. The package tensorflow-tpu, which has them, ends at 2.20, and this "
            "project needs 2.21. Train on a GPU or CPU, or try the same way on the CPU with --tpu cpu."
        )
    # Disables a save on preemption at the end of TPUEstimator: it calls a part of TensorFlow that no longer exists.
    os.environ.setdefault("TF_TPU_GRACEFUL_SHUTDOWN_MODE", "")
    return tpu.RunConfig(
        model_dir=model_dir,
        tf_random_seed=options.seed,
        cluster=None if options.tpu == CPU else tf.distribute.cluster_resolver.TPUClusterResolver(options.tpu),
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=min(LOOP, options.save_checkpoints_steps),
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
        **settings,
    )


def as_tpu_estimator(estimator: Any, options: TrainingPlan, *, batch_size: int, eval_batch_size: int) -> Any:
    """Converts an Estimator to a TPUEstimator in the same model directory.

    Args:
      estimator: an Estimator with a config from `tpu_run_config`.
      options: the options of the training.
      batch_size: examples in a step, over all cores.
      eval_batch_size: examples in a batch of an evaluation, on the host.
    """

    def model_fn(features: Any, labels: Any, mode: str, config: Any, params: Any) -> Any:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != tf_estimator.ModeKeys.TRAIN:
            return spec
        tf.compat.v1.get_collection_ref(
            tf.compat.v1.GraphKeys.SUMMARIES
        ).clear()  # a step on a TPU cannot write summaries
        hooks = (*spec.training_hooks, *spec.training_chief_hooks)
        return tpu.TPUEstimatorSpec(
            mode,
            loss=spec.loss,
            train_op=spec.train_op,
            scaffold_fn=lambda: spec.scaffold,
            training_hooks=[hook for hook in hooks if not isinstance(hook, tf.compat.v1.train.SummarySaverHook)],
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
