"""The options of a training."""

from __future__ import annotations

import dataclasses

from schemas.errors import UsageError

ROWS, IMAGES = 512, 64  # default batch sizes


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of a training; `python -m trainer.task --help` describes each.

    Raises:
      UsageError: a number is out of its range.
    """

    data_dir: str
    model_dir: str
    model: str = "dnn"
    hparams: tuple[str, ...] = ()
    augment: tuple[str, ...] = ()
    max_steps: int = 5000
    batch_size: int | None = None
    save_checkpoints_steps: int = 1000
    keep_checkpoints: int = 5
    keep_exports: int = 3
    eval_split: str = "eval"
    eval_steps: int | None = None
    evaluate_test: bool = False
    early_stopping_steps: int | None = None
    best_metric: str | None = None
    seed: int | None = None
    shuffle_buffer: int | None = None
    deterministic: bool = False
    allow_changes: bool = False
    verify_data: bool = False
    trust: bool = False
    verbose: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        for name in (
            "max_steps",
            "batch_size",
            "save_checkpoints_steps",
            "keep_checkpoints",
            "keep_exports",
            "eval_steps",
            "early_stopping_steps",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} {value}: must be 1 or more")
        if self.shuffle_buffer is not None and self.shuffle_buffer < 0:
            raise UsageError(f"--shuffle_buffer {self.shuffle_buffer}: must be 0 or more")
        if self.early_stopping_steps is not None and self.early_stopping_steps < self.save_checkpoints_steps:
            raise UsageError(
                f"--early_stopping_steps {self.early_stopping_steps}: must be at least --save_checkpoints_steps "
                f"{self.save_checkpoints_steps}, the steps between evaluations"
            )

    def batch(self, *, images: bool) -> int:
        """The batch size: as given, or the default for images or rows."""
        return self.batch_size or (IMAGES if images else ROWS)
