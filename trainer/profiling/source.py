"""The input of a training, as it is measured."""

from __future__ import annotations

import dataclasses

from schemas.dataset import Dataset
from trainer.data.input_options import InputOptions, input_options
from trainer.estimator import tf_estimator
from trainer.spec.options import TrainOptions

TRAIN = tf_estimator.ModeKeys.TRAIN
PREFETCH = 2  # batches


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset, and how training reads it."""

    dataset: Dataset
    options: InputOptions


def measured(dataset: Dataset, options: TrainOptions) -> Source:
    """The input of the training, with a fixed number of prefetched batches: as asked, or two.

    tf.data prefetches more each time that its buffer runs empty, which happens in every turn. It would refill the
    buffer during the turns of other ways and slow them down. Training that waits for its model stays at two batches.
    """
    how = input_options(dataset, options, split="train", mode=TRAIN)
    return Source(dataset, how if options.prefetch is not None else dataclasses.replace(how, prefetch=PREFETCH))
