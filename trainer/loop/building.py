"""The Estimator that the options of a training name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset
from trainer.data.host_features import note_host_features
from trainer.data.reading import input_options
from trainer.export.outputs import Watch, with_keys_and_classes
from trainer.models import BUILT_IN, BuiltIn, custom
from trainer.models.warm_start import WarmStart
from trainer.spec.hparams import parse_hparams
from trainer.spec.options import TrainOptions
from trainer.spec.task_spec import read_task_spec
from trainer.strategies.multi_worker import as_multi_worker
from trainer.strategies.tpu import as_tpu_estimator


def find_model(options: TrainOptions) -> tuple[BuiltIn | custom.Custom, Any]:
    """The model that the options name, and its hyper-parameters.

    Raises:
      UsageError: an unknown model or hyper-parameter.
    """
    model = BUILT_IN[options.model] if options.model in BUILT_IN else custom.load(options.model)
    return model, parse_hparams(model.hparams, options.hparams, model=options.model)


def build_estimator(
    dataset: Dataset,
    options: TrainOptions,
    config: Any,
    tell: Callable[[str], None] = lambda line: None,
    watch: Watch | None = None,
) -> Any:
    """The Estimator that the options name, for this dataset, in the config's model_dir.

    `tell` is called with lines; `watch` gives evaluations further hooks.

    Raises:
      UsageError: an unknown model or hyper-parameter, a model that does not read data of this kind, or with --tpu, one
        that cannot be trained so.
      MillraceError: no model can be built for the dataset.
    """
    model, hparams = find_model(options)
    if options.seed is not None and isinstance(model, custom.Custom):
        # Keras layers draw their initial weights from a generator of Keras's own, which knows no Estimator's seed.
        tf.keras.utils.set_random_seed(options.seed)
    task_spec = read_task_spec(dataset, max_steps=options.max_steps)
    warm_start = None
    if options.warm_start_from is not None:
        warm_start = WarmStart(options.warm_start_from, options.warm_start_vars or "", tell)
    estimator = with_keys_and_classes(
        model.build(task_spec, hparams, config), dataset, warm_start=warm_start, watch=watch
    )
    if options.tpu is None:
        return as_multi_worker(estimator)
    size, eval_size = (input_options(dataset, options, split="train", mode=m).batch_size for m in ("train", "eval"))
    receive = functools.partial(note_host_features, dataset)
    return as_tpu_estimator(estimator, options, receive, batch_size=size, eval_batch_size=eval_size)
