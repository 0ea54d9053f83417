"""Training by TPUEstimator: its steps on a TPU, everything else on the host. `--tpu cpu` takes the same way on the CPU.

A TPU compiles a step, so batches have one size, and the host computes what cannot be compiled: see
`trainer.data.host_features`. Evaluations, predictions and exports run on the host, from checkpoints, as without a TPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer.estimator import tf_estimator
from trainer.spec.options import TrainOptions
from trainer.strategies.tpu_runtime import resolver
from trainer.strategies.tpu_summaries import take_scalars, write_scalars

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
        cluster=None if options.tpu == CPU else resolver(str(options.tpu)),
        tpu_config=tpu.TPUConfig(
            iterations_per_loop=min(LOOP, options.evaluation_steps),
            per_host_input_for_training=tpu.InputPipelineConfig.PER_HOST_V2,
        ),
        **settings,
    )


def as_tpu_estimator(
    estimator: Any,
    options: TrainOptions,
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
