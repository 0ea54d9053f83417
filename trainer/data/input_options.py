"""How a split is read: the options of `input_fn`."""

from __future__ import annotations

import dataclasses
from typing import Any

from trainer.spec.augmentation import Augmentation

_LEAST = dict.fromkeys(("batch_size", "cycle_length", "block_length", "num_workers"), 1)
_LEAST |= {"shuffle_buffer": 0, "hold": 0, "prefetch": -1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputOptions:
    """How a split is read.

    Attributes:
      batch_size: examples a batch.
      shuffle_buffer: how well records are shuffled in TRAIN: as through a shuffle buffer of so many. Images wait in
        one, all open shards together; rows are shuffled in windows of twice as many. 0 leaves them in the order in
        which they are read.
      hold: bytes that a CSV split's parsed values may take to be held in memory in TRAIN, and shuffled whole; with a
        `shuffle_buffer` of 0 nothing is held. Where features are sparse, records are held unparsed, and shards' bytes
        count, `UNPACKED` times if they are compressed.
      num_epochs: passes over the split; None repeats for ever in TRAIN, and is one pass elsewhere.
      cycle_length: shards read side by side, in TRAIN.
      block_length: records taken from one shard before the next one's turn; of rows more where windows are large.
      prefetch: batches made ahead of the model; -1 lets tf.data choose.
      drop_remainder: leave out a last batch that is not full, so that shapes are static.
      deterministic: in TRAIN, the same order again for the same seed, at some cost in speed.
      seed: of the shuffling; None draws one.
      num_workers: how many workers share the split in TRAIN, each reading its own part of it.
      worker: which of them this is, counted from 0.
      augmentation: what TRAIN does to images.
    """

    batch_size: int = 512
    shuffle_buffer: int = 50_000
    hold: int = 128 << 20
    num_epochs: int | None = None
    cycle_length: int = 8
    block_length: int = 64
    prefetch: int = -1
    drop_remainder: bool = False
    deterministic: bool = False
    seed: int | None = None
    num_workers: int = 1
    worker: int = 0
    augmentation: Augmentation = dataclasses.field(default_factory=Augmentation)

    def __post_init__(self) -> None:
        for name, low in _LEAST.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}; must be {low} or more")
        if self.num_epochs is not None and self.num_epochs < 1:
            raise ValueError(f"num_epochs is {self.num_epochs}; must be 1 or more, or None")
        if not 0 <= self.worker < self.num_workers:
            raise ValueError(f"worker is {self.worker}, and num_workers {self.num_workers}")

    def for_task(self, config: Any) -> InputOptions:
        """The same for one task of a cluster: its part of the split, by the `RunConfig` that it runs under.

        The evaluator and parameter servers have no part: for them nothing changes.
        """
        if config.global_id_in_cluster is None or config.global_id_in_cluster >= config.num_worker_replicas:
            return self
        return dataclasses.replace(self, num_workers=config.num_worker_replicas, worker=config.global_id_in_cluster)
