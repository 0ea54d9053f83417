"""How a training reads its splits: the `InputOptions` that follow from the dataset and from what was asked."""

from __future__ import annotations

from schemas.dataset import Dataset
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.spec.augmentation import augmentation
from trainer.spec.options import TrainOptions

SHUFFLE_ROWS = 50_000
SHUFFLE_BYTES = 64 << 20  # the job has shuffled the shards; raw images are large, and three windows of rows are held
EVAL_BATCH = 2048  # rows; images are evaluated in batches of what training can hold
IMAGE_BLOCK = 16


def input_options(dataset: Dataset, options: TrainOptions, *, split: str, mode: str) -> InputOptions:
    """How a split is read in a mode."""
    images = dataset.image_schema is not None
    batch_size = options.batch(images=images)
    small = images or mode == tf_estimator.ModeKeys.TRAIN or options.eval_steps is not None
    return InputOptions(
        block_length=IMAGE_BLOCK if images else InputOptions.block_length,
        augmentation=augmentation(options.augment),
        batch_size=batch_size if small else max(batch_size, EVAL_BATCH),
        shuffle_buffer=shuffle_rows(dataset, split, options.shuffle_buffer),
        seed=options.seed,
        deterministic=options.deterministic,
    )


def shuffle_rows(dataset: Dataset, split: str, asked: int | None) -> int:
    """The shuffle buffer: as asked, or 50,000 records, fewer where they are large or the split is small."""
    if asked is not None:
        return asked
    rows = max(1, dataset.rows(split))
    size = sum(shard.bytes for shard in dataset.manifest.splits[split].shards)
    return max(1, min(SHUFFLE_ROWS, rows, SHUFFLE_BYTES * rows // max(1, size)))
