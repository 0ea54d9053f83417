"""Declares the options of `millrace train`, and the plan in which the options that a user left out are filled in."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from schemas import storage
from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from schemas.options import QUIET_HELP, VERBOSE_HELP, Group, Options, at_least, option, positive_finite
from schemas.storage.gcs_access import check_characters
from trainer.spec.hparams import Augmentation, describe_hparams

if TYPE_CHECKING:
    from schemas.dataset import OpenDataset
    from trainer.spec.task_spec import LabelScale

STRATEGIES = ("none", "mirrored", "parameter_server")
SPLITS = ("eval", "test", "train")
MODEL_DIR = "AIP_MODEL_DIR"  # Vertex AI sets this variable if a job has a base output directory

DATA, LENGTH = Group("data and model"), Group("length")
RESULT, BEGIN = Group("evaluations, exports and reports"), Group("where a training begins")
READING, DEVICES = Group("how data is read"), Group("devices")


def _count(text: str, group: Group, *, least: int = 1) -> Any:
    """Declares an option that is an integer and may be left out."""
    return option(text, None, check=at_least(least), group=group)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(Options):
    """The options of a training; `python -m trainer.task --help` describes each option.

    Raises:
      UsageError: a number is out of its range, options contradict each other, or TensorFlow cannot use a path.
    """

    data_dir: str = option("the dataset directory, which preprocess wrote", metavar="DIR", group=DATA)
    model: str | None = option(
        "a model listed below, or package.module:function (default: tabular for rows, squeezenext for images, "
        "or convnet for fewer than 1,000, face_pairs for pairs of them)",
        None,
        metavar="NAME",
        group=DATA,
    )
    hparams: tuple[str, ...] = option(
        "hyper-parameters of the model, listed below", (), metavar="KEY=VALUE", group=DATA
    )
    augment: tuple[str, ...] = option(
        f"image augmentation, in addition to the random crop (default: {describe_hparams(Augmentation)})",
        (),
        metavar="KEY=VALUE",
        group=DATA,
    )
    batch_size: int | None = _count(
        "examples per step, which replicas share (default: 512, fewer where an epoch would be less than 50 steps; "
        "for images 64)",
        LENGTH,
    )
    shuffle_buffer: int | None = _count(
        "size of the shuffle buffer, in records (default: 50,000, or 64 MB if that is less)", READING, least=0
    )
    seed: int | None = option("seed of the initial weights and the shuffling", None, group=DATA)
    deterministic: bool = option(
        "with --seed: make the order of examples reproducible; reads more slowly", False, group=READING
    )
    cycle_length: int | None = _count("shards that training reads in parallel (default: 8)", READING)
    inter_op_threads: int | None = _count(
        "operations of the model that run side by side (default: TensorFlow's, one for each core)", DEVICES
    )
    intra_op_threads: int | None = _count(
        "threads that one operation may use (default: TensorFlow's, one for each core)", DEVICES
    )
    drop_remainder: bool = option(
        "give training batches a static size, which XLA and TPUs need; no record is dropped, since a batch goes on "
        "with the next epoch",
        False,
        group=READING,
    )
    cache_dir: str | None = option(
        "keep copies of the files that are read in this local directory, for data on gs:// that is read again: in "
        "further epochs, by further trainings and by other processes",
        None,
        metavar="DIR",
        group=READING,
    )
    cache_gb: float = option(
        "the most that all files in --cache_dir may take (default: %(default)g)",
        50.0,
        metavar="GB",
        check=positive_finite,
        group=READING,
    )
    strategy: str = option(
        "mirrored: replicas of the model on the GPUs of this machine share each batch; parameter_server: the workers "
        "of the cluster in TF_CONFIG train one model, each at its own pace (default: none; docs/strategies.md)",
        "none",
        choices=STRATEGIES,
        group=DEVICES,
    )
    num_gpus: int | None = _count("the number of GPUs that a strategy uses (default: all)", DEVICES)
    logical_cpus: int | None = _count(
        "make the CPU N devices, to try a strategy without GPUs; it does not train faster", DEVICES
    )
    mixed_precision: bool = option(
        "compute in bfloat16 where it is precise enough, on a CPU that does so; a GPU is refused", False, group=DEVICES
    )
    xla: bool = option("compile clusters of the graph by XLA, which takes its time at first", False, group=DEVICES)
    model_dir: str = option(
        f"directory for checkpoints, metrics and exports (default: ${MODEL_DIR}, which Vertex AI sets)",
        metavar="DIR",
        variable=MODEL_DIR,
        group=DATA,
    )
    max_steps: int | None = _count("train up to this step (default: as --epochs says)", LENGTH)
    epochs: float | None = option(
        "train until the train split was read so often (default: 15, in 300 to 20,000 steps)",
        None,
        check=positive_finite,
        group=LENGTH,
    )
    save_checkpoints_steps: int | None = _count(
        "steps between checkpoints; each is evaluated (default: a twelfth of the training, at most 10,000)", LENGTH
    )
    early_stopping_steps: int | None = _count(
        "stop when evaluations have not improved for N steps; 0: never (default: a third of the training)",
        LENGTH,
        least=0,
    )
    best_metric: str | None = option(
        "metric that selects the best export, and for early stopping (default: the loss for an example; of "
        "pairs of images auc)",
        None,
        metavar="NAME",
        group=RESULT,
    )
    tpu: str | None = option(
        "train by TPUEstimator on this TPU; cpu: the same way on the CPU, to try it",
        None,
        metavar="NAME",
        group=DEVICES,
    )
    eval_split: str = option("split to evaluate on (default: eval)", "eval", choices=SPLITS, group=RESULT)
    eval_steps: int | None = _count("evaluate on N batches (default: the complete split)", RESULT)
    slice_by: tuple[str, ...] = option(
        "features by whose values the report divides the rows, as in: workclass sex,race (each combination)",
        (),
        metavar="FEATURE",
        group=RESULT,
    )
    no_report: bool = option("write no model report, which takes some seconds at the end", False, group=RESULT)
    promote_to: str | None = option(
        "at the end put the best export in service in this folder, if it is no worse than the one that is: "
        "docs/promote.md",
        None,
        metavar="DIR",
        group=RESULT,
    )
    evaluate_test: bool = option("also evaluate on the test split, once, at the end", False, group=RESULT)
    keep_checkpoints: int = option(
        "keep the latest N checkpoints (default: %(default)s)", 5, check=at_least(1), group=RESULT
    )
    keep_exports: int = option(
        "keep the latest N best and N final exports (default: %(default)s)", 3, check=at_least(1), group=RESULT
    )
    warm_start_from: str | None = option(
        "begin with the weights of this checkpoint, model directory, export or folder of exports, as far as they fit",
        None,
        metavar="PATH",
        group=BEGIN,
    )
    warm_start_vars: str | None = option(
        "take only variables in whose name this is found, as in 'hiddenlayer|embedding' (default: all)",
        None,
        metavar="REGEX",
        group=BEGIN,
    )
    profile: bool = option(
        "say at the end where the time went and which setting is most worth trying, and trace some steps for "
        "TensorBoard: docs/training.md",
        False,
        group=READING,
    )
    trust: bool = option(TRUST_HELP, False)
    quiet: bool = option(QUIET_HELP, False)
    verbose: bool = option(VERBOSE_HELP, False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strategy not in STRATEGIES:
            raise UsageError(f"--strategy {self.strategy}: choose from {', '.join(STRATEGIES)}")
        if self.num_gpus is not None and self.strategy != "mirrored":
            raise UsageError(
                f"--num_gpus {self.num_gpus}: --strategy {self.strategy} trains on one device; use --strategy mirrored"
            )
        if self.profile and (self.strategy != "none" or self.tpu is not None):
            flag = f"--strategy {self.strategy}" if self.tpu is None else f"--tpu {self.tpu}"
            raise UsageError(f"--profile: measures a training on one device; leave out {flag}, or --profile")
        if self.tpu is not None and self.strategy != "none":
            raise UsageError(f"--tpu {self.tpu}: a TPU replicates by itself; leave out --strategy {self.strategy}")
        check_characters(self.model_dir, "--model_dir ")
        self._check_warm_start()
        if self.cache_dir is not None and not storage.is_local(self.cache_dir):
            raise UsageError(f"--cache_dir {self.cache_dir}: must be on local disk")
        if self.promote_to is not None and not storage.is_local(self.promote_to):
            raise UsageError(
                f"--promote_to {self.promote_to}: must be on local disk, where a folder appears in one step"
            )
        if self.epochs is not None and self.max_steps is not None:
            raise UsageError(f"--epochs {self.epochs:g} and --max_steps {self.max_steps}: give one of them")
        every = self.save_checkpoints_steps
        if self.early_stopping_steps and every is not None and self.early_stopping_steps < every:
            raise UsageError(
                f"--early_stopping_steps {self.early_stopping_steps}: must be at least --save_checkpoints_steps "
                f"{every}, the steps between evaluations"
            )

    def _check_warm_start(self) -> None:
        """Checks that --warm_start_vars is a regular expression and comes with --warm_start_from."""
        if self.warm_start_vars is None:
            return
        if self.warm_start_from is None:
            raise UsageError(f"--warm_start_vars {self.warm_start_vars}: give --warm_start_from, too")
        try:
            re.compile(self.warm_start_vars)
        except re.error as error:
            raise UsageError(f"--warm_start_vars {self.warm_start_vars}: not a regular expression ({error})") from None

    @property
    def evaluated_splits(self) -> tuple[str, ...]:
        """The splits on which the recommended export is evaluated at the end."""
        return tuple(dict.fromkeys((self.eval_split, *(("test",) if self.evaluate_test else ()))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan(TrainOptions):
    """The options of a training after `plan_training` has filled in whatever the user left out.

    Attributes:
      early_stopping_steps: the number of steps without improvement that end the training; 0: it does not stop early.
      patience_from: the step from which steps without improvement are counted. When a user makes the training longer or
        more patient, this is the step of the last evaluation at that time.
      best_metric: the metric that selects the best model; None: the loss, see `trainer.spec.metrics.best_metric`.
      label: the scale on which the model learns the label; None: it has not been measured yet.
      chosen: a line for people that describes the plan and the reasons for it.
    """

    model: str
    batch_size: int
    max_steps: int
    save_checkpoints_steps: int
    early_stopping_steps: int
    patience_from: int = 0
    label: LabelScale | None = None
    chosen: str = ""

    def steps_an_epoch(self, dataset: OpenDataset) -> float:
        """Returns the number of steps that read as many examples as the train split has."""
        return max(dataset.rows("train"), 1) / self.batch_size
