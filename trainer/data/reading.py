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


def input_options(dataset: Dataset, options: TrainOptions, *, split: str, mode: str, replicas: int = 1) -> InputOptions:
    """How a split is read in a mode. Replicas share each batch of a training: what each gets is read as a batch."""
    images = dataset.image_schema is not None
    batch_size = options.batch(images=images)
    training = mode == tf_estimator.ModeKeys.TRAIN
    if training:
        batch_size //= replicas
    small = images or training or options.eval_steps is not None
    return InputOptions(
        cycle_length=options.cycle_length or InputOptions.cycle_length,
        block_length=options.block_length,
        prefetch=InputOptions.prefetch if options.prefetch is None else options.prefetch,
        read_threads=options.read_threads,
        data_service=options.data_service if training else None,
        cache_bytes=InputOptions.cache_bytes if options.data_service is None else 0,  # its workers share nothing
        augmentation=augmentation(options.augment),
        batch_size=batch_size if small else max(batch_size, EVAL_BATCH),
        shuffle_buffer=shuffle_rows(dataset, split, options.shuffle_buffer),
        seed=options.seed,
        deterministic=options.deterministic,
        drop_remainder=training and (options.drop_remainder or options.tpu is not None),
    )


def shuffle_rows(dataset: Dataset, split: str, asked: int | None) -> int:
    """The shuffle buffer: as asked, or 50,000 records, fewer where they are large or the split is small."""
    if asked is not None:
        return asked
    rows = max(1, dataset.rows(split))
    size = sum(shard.bytes for shard in dataset.manifest.splits[split].shards)
    return max(1, min(SHUFFLE_ROWS, rows, SHUFFLE_BYTES * rows // max(1, size)))
