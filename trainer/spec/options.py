"""The options of a training."""

from __future__ import annotations

import dataclasses
import math
import re

from schemas import storage
from schemas.dataset import Dataset
from schemas.dataset.local_cache import DEFAULT_GB
from schemas.errors import UsageError
from schemas.storage.paths import check_characters

ROWS, IMAGES = 512, 64  # default batch sizes
EVALUATIONS = 10  # of a training, by default
LEAST_STEPS, MOST_STEPS = 50, 10_000  # between two evaluations, by default
STRATEGIES = ("none", "mirrored", "parameter_server", "multi_worker")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of a training; `python -m trainer.task --help` describes each.

    Raises:
      UsageError: a number is out of its range, or TensorFlow cannot use the path of the model directory.
    """

    data_dir: str
    model_dir: str
    model: str = "dnn"
    hparams: tuple[str, ...] = ()
    augment: tuple[str, ...] = ()
    max_steps: int = 5000
    batch_size: int | None = None
    save_checkpoints_steps: int | None = None
    keep_checkpoints: int = 5
    keep_exports: int = 3
    eval_split: str = "eval"
    eval_steps: int | None = None
    evaluate_test: bool = False
    early_stopping_steps: int | None = None
    best_metric: str | None = None
    slice_by: tuple[str, ...] = ()
    no_report: bool = False
    promote_to: str | None = None
    seed: int | None = None
    shuffle_buffer: int | None = None
    deterministic: bool = False
    cycle_length: int | None = None
    block_length: int | None = None
    prefetch: int | None = None
    drop_remainder: bool = False
    read_threads: int | None = None
    data_service: str | None = None
    inter_op_threads: int | None = None
    intra_op_threads: int | None = None
    allow_changes: bool = False
    warm_start_from: str | None = None
    warm_start_vars: str | None = None
    verify_data: bool = False
    cache_dir: str | None = None
    cache_gb: float = DEFAULT_GB
    strategy: str = "none"
    num_gpus: int | None = None
    logical_cpus: int | None = None
    mixed_precision: bool = False
    xla: bool = False
    tpu: str | None = None
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
            "cycle_length",
            "block_length",
            "read_threads",
            "inter_op_threads",
            "intra_op_threads",
            "num_gpus",
            "logical_cpus",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"--{name} {value}: must be 1 or more")
        if self.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.strategy}: choose from {', '.join(STRATEGIES)}")
        if self.num_gpus is not None and self.strategy not in ("mirrored", "multi_worker"):
            raise UsageError(
                f"--num_gpus {self.num_gpus}: --strategy {self.strategy} trains on one device; use --strategy mirrored"
            )
        if self.tpu is not None and self.strategy != "none":
            raise UsageError(f"--tpu {self.tpu}: a TPU replicates by itself; leave out --strategy {self.strategy}")
        check_characters(self.model_dir, "--model_dir ")
        self._check_warm_start()
        self._check_data_service()
        if not 0 < self.cache_gb < math.inf:
            raise UsageError(f"--cache_gb {self.cache_gb:g}: must be more than 0, and finite")
        if self.cache_dir is not None and not storage.is_local(self.cache_dir):
            raise UsageError(f"--cache_dir {self.cache_dir}: must be on local disk")
        if self.promote_to is not None and not storage.is_local(self.promote_to):
            raise UsageError(
                f"--promote_to {self.promote_to}: must be on local disk, where a folder appears in one step"
            )
        for name in ("shuffle_buffer", "prefetch"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise UsageError(f"--{name} {value}: must be 0 or more")
        every = self.save_checkpoints_steps
        if self.early_stopping_steps is not None and every is not None and self.early_stopping_steps < every:
            raise UsageError(
                f"--early_stopping_steps {self.early_stopping_steps}: must be at least --save_checkpoints_steps "
                f"{every}, the steps between evaluations"
            )

    def _check_warm_start(self) -> None:
        if self.warm_start_vars is None:
            return
        if self.warm_start_from is None:
            raise UsageError(f"--warm_start_vars {self.warm_start_vars}: give --warm_start_from, too")
        try:
            re.compile(self.warm_start_vars)
        except re.error as error:
            raise UsageError(f"--warm_start_vars {self.warm_start_vars}: not a regular expression ({error})") from None

    def _check_data_service(self) -> None:
        if self.data_service is None:
            return
        if not re.fullmatch(r"grpc://.+:[0-9]{1,5}", self.data_service):
            raise UsageError(f"--data_service {self.data_service}: expected grpc://HOST:PORT, a dispatcher's address")
        for flag, given in (("--deterministic", self.deterministic), ("--shuffle_buffer 0", self.shuffle_buffer == 0)):
            if given:
                raise UsageError(
                    f"--data_service and {flag}: its workers prepare batches side by side, in no fixed order"
                )

    @property
    def evaluation_steps(self) -> int:
        """The steps between checkpoints, each of which is evaluated: as given, or a tenth of the training's.

        By default at least 50, since an evaluation takes about a second however few steps there are between two; at
        most 10,000, which is what a crash may lose; and no more than `early_stopping_steps`.
        """
        if self.save_checkpoints_steps is not None:
            return self.save_checkpoints_steps
        tenth = min(max(math.ceil(self.max_steps / EVALUATIONS), LEAST_STEPS), MOST_STEPS)
        return tenth if self.early_stopping_steps is None else min(tenth, self.early_stopping_steps)

    def steps_an_epoch(self, dataset: Dataset) -> float:
        """How many steps read as many examples as the train split has."""
        return max(dataset.rows("train"), 1) / self.batch(images=dataset.image_schema is not None)

    def batch(self, *, images: bool) -> int:
        """The batch size: as given, or the default for images or rows."""
        return self.batch_size or (IMAGES if images else ROWS)
