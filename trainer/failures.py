"""What goes wrong inside TensorFlow while training, told in the terms of the data set and the options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from schemas.dataset import Dataset
from schemas.errors import MillraceError
from trainer.inputs import find_unreadable_shard
from trainer.options import TrainOptions


@contextlib.contextmanager
def explained(dataset: Dataset, options: TrainOptions) -> Iterator[None]:
    """Turns a NaN loss, an unreadable shard and a checkpoint that does not fit into a MillraceError.

    Raises:
      MillraceError: one of these; any other error goes through as it is.
    """
    try:
        yield
    except tf.compat.v1.train.NanLossDuringTrainingError as error:
        checkpoint = tf.train.latest_checkpoint(options.model_dir)
        raise MillraceError(
            f"{options.model_dir}: the loss became NaN; the last checkpoint is {checkpoint}. Try a lower learning_rate "
            "(--hparams), and look for NaN and very large values among the features and labels."
        ) from error
    except (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError) as error:
        for split in dataset.splits:
            unreadable = find_unreadable_shard(dataset, split)
            if unreadable is not None:
                raise unreadable from error
        if "checkpoint" in str(error.message):
            raise MillraceError(
                f"{options.model_dir}: its last checkpoint is of another model and cannot be continued "
                f"({str(error.message).splitlines()[0]}). Take another --model_dir."
            ) from error
        raise
