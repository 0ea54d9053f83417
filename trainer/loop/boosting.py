"""Grows the trees of `boosted_trees`: reads the splits into tables, runs LightGBM, and saves the trees as a checkpoint.

The checkpoint is then evaluated, exported, checked and reported by the same code as the checkpoints of other models.
This is the only module that imports LightGBM, and only when trees are grown.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from schemas import interrupts, storage
from schemas.concurrency import available_memory, usable_cores
from schemas.dataset import OpenDataset, layout
from schemas.errors import MillraceError, UsageError, counted
from trainer.model_dir.model_json import ROUNDS
from trainer.models.hyperparameters import BoostedTreesHparams
from trainer.spec.metrics import figure
from trainer.spec.options import TrainingPlan, TrainOptions
from trainer.spec.task_spec import TaskSpec, read_table_task_spec
from trainer.strategies.cluster import read_cluster

# Flags that only apply to models that train in steps. Each of them is refused unless it has its default value. (A study
# does not pass its metric on to trials of boosted trees.)
STEPS_ONLY = (
    *("max_steps", "epochs", "batch_size", "save_checkpoints_steps", "early_stopping_steps", "best_metric"),
    *("strategy", "num_gpus", "tpu", "mixed_precision", "shuffle_buffer", "drop_remainder"),
    *("warm_start_from", "profile"),
)
FEW_COLUMNS = 5  # with fewer columns, each tree sees all of them
# How many cells (rows x columns) of a table one thread handles. More threads than that are slower: LightGBM's threads
# wait for each other several times for each leaf, in a busy loop. On two busy cores, two threads took ten times as much
# CPU and time as one thread, for 20,000 rows and for 200,000 rows.
THREAD_CELLS = 20_000_000
CELL_BYTES = 5  # per cell of a table: a float32, and a byte after LightGBM has put it into a bin
ROW_BYTES = 24  # per row, for each tree of a round: score, gradient, hessian
BINNED, BINNED_BYTES = 200_000, 12  # LightGBM finds the bins in so many rows, with so much memory per cell


def check_growing(options: TrainOptions) -> None:
    """Checks the options that need no dataset. Imports nothing heavy.

    Raises:
      UsageError: a flag or a cluster is for models that train in steps, or LightGBM is not installed.
    """
    defaults = {field.name: field.default for field in dataclasses.fields(TrainOptions)}
    for name in STEPS_ONLY:
        value = getattr(options, name, None)
        if value != defaults.get(name):
            flag = f"--{name}" if value is True else f"--{name} {value}"
            raise UsageError(
                f"{flag}: is for models that train in steps, but boosted_trees is grown as a whole, in one process; "
                "leave it out. --hparams num_iterations and early_stopping_round say how far it grows."
            )
    cluster = read_cluster(os.environ)
    if cluster is not None and cluster.tf_config() is not None:
        raise UsageError("TF_CONFIG: names a cluster, but boosted_trees is grown in one process; unset it")
    if importlib.util.find_spec("lightgbm") is None:
        raise UsageError(_missing())


def _missing() -> str:
    """Returns the message that LightGBM is not installed, with the command that installs it."""
    from schemas.source_distribution import how_to_install

    return f"--model boosted_trees needs LightGBM: {how_to_install('trees')}"


def _lightgbm() -> Any:
    """Imports LightGBM; raises UsageError with advice if it cannot be imported."""
    try:
        import lightgbm
    except ImportError as error:
        raise UsageError(_missing()) from error
    except OSError as error:  # a shared library is missing
        raise UsageError(
            f"LightGBM cannot be loaded ({error}): install the library that is missing (libgomp.so.1: apt-get install "
            "libgomp1)"
        ) from error
    return lightgbm


def grow(
    dataset: OpenDataset, options: TrainingPlan, hparams: BoostedTreesHparams, *, say: Callable[[str], None]
) -> str:
    """Grows trees on the train split, and saves them as a checkpoint in the model directory.

    Only the trees up to the best evaluation are saved. The losses of all rounds are written to `rounds.json`.

    Args:
      dataset: the dataset; its train and evaluation splits are read into memory.
      options: the options of the training.
      hparams: LightGBM's parameters.
      say: prints what is being done, on a status line.

    Returns:
      The reason why growing ended, for people to read.

    Raises:
      UsageError: LightGBM cannot be imported.
      MillraceError: the tables do not fit into memory, or LightGBM fails.
    """
    from trainer.model_dir.checkpoints import name_checkpoints
    from trainer.models import boosted_trees

    lightgbm = _lightgbm()
    task_spec = read_table_task_spec(dataset, label=options.label)
    columns = boosted_trees.Columns.of(task_spec.inputs, hparams.list_limit)
    # The train split, and the evaluation split if it can stop the growing; once if both are the same split.
    splits = tuple(dict.fromkeys(("train", *([options.eval_split] if hparams.early_stopping_round else []))))
    classes = task_spec.classes or 1
    check_memory(dataset, splits, columns.count, trees_a_round=classes if classes > 2 else 1)
    threads = options.intra_op_threads or threads_for(dataset.rows("train") * columns.count, usable_cores())
    params = _params(task_spec, options, hparams, columns.count) | {"num_threads": threads}
    stops = [lightgbm.early_stopping(hparams.early_stopping_round, verbose=False)] if len(splits) > 1 else []
    try:
        tables: list[Any] = []
        for split in splits:
            x, label, weight = _read(dataset, split, options, task_spec, columns, say)
            made = lightgbm.Dataset(
                x,
                label,
                weight=weight,
                reference=tables[0] if tables else None,
                categorical_feature=[*columns.categories],
                params=params,
            )
            del x
            tables.append(made.construct())  # LightGBM makes its own copy, and frees `x`
        follow = _Follow(options.eval_split, hparams.num_iterations, task_spec, say)
        booster = lightgbm.train(
            params,
            tables[0],
            num_boost_round=hparams.num_iterations,
            valid_sets=tables,  # LightGBM itself never stops by the loss on the train table
            valid_names=[*splits],
            callbacks=[follow, *stops],
        )
    except lightgbm.basic.LightGBMError as error:
        raise MillraceError(f"{dataset.path}: LightGBM cannot grow trees on it: {error}") from error
    storage.write_bytes(layout.join(options.model_dir, ROUNDS), json.dumps(follow.losses).encode() + b"\n")
    trees = boosted_trees.trees_of(booster.model_to_string(num_iteration=booster.best_iteration or None))
    name_checkpoints(options.model_dir, [boosted_trees.save(trees, options.model_dir)])
    if follow.rounds == hparams.num_iterations:
        return f"num_iterations={follow.rounds:,} reached"
    return f"no better evaluation for {counted(follow.rounds - trees.rounds, 'rounds')}"


def check_memory(dataset: OpenDataset, splits: tuple[str, ...], columns: int, *, trees_a_round: int) -> None:
    """Raises MillraceError if the splits' tables and LightGBM's own data do not fit in the available memory.

    Args:
      dataset: the dataset.
      splits: the splits that are read into memory.
      columns: the number of columns of a table.
      trees_a_round: how many trees a round of boosting grows.
    """
    rows = sum(dataset.rows(split) for split in splits)
    needed = rows * (CELL_BYTES * columns + ROW_BYTES * trees_a_round) + min(rows, BINNED) * columns * BINNED_BYTES
    free = available_memory()
    if needed > free:
        raise MillraceError(
            f"{dataset.path}: boosted_trees reads {' and '.join(splits)} into memory, {rows:,} rows of {columns:,} "
            f"columns, which takes about {needed / 1e6:,.4g} MB, and {free / 1e6:,.4g} MB are available. Use more "
            "memory, fewer rows or columns, or a model that trains in steps, such as dnn."
        )


def threads_for(cells: int, cores: int) -> int:
    """Returns the number of threads that grow trees on a table of `cells` cells (rows x columns), at most `cores`."""
    return min(cores, 1 + cells // THREAD_CELLS)


def _params(task_spec: TaskSpec, options: TrainingPlan, hparams: BoostedTreesHparams, columns: int) -> dict[str, Any]:
    """Returns LightGBM's parameters, except the number of threads.

    With the same number of threads, equal trainings grow equal trees, whether or not --seed is given.
    """
    params = {name: value for name, value in dataclasses.asdict(hparams).items() if name not in _OURS}
    if hparams.feature_fraction is None:
        params["feature_fraction"] = 0.8 if columns >= FEW_COLUMNS else 1.0
    if task_spec.classes is None:
        params |= {"objective": "regression", "metric": "l2"}
    elif task_spec.classes == 2:
        params |= {"objective": "binary", "metric": "binary_logloss"}
    else:
        params |= {"objective": "multiclass", "metric": "multi_logloss", "num_class": task_spec.classes}
    return params | {
        "bagging_freq": int(hparams.bagging_fraction < 1),
        "seed": options.seed or 0,
        "deterministic": True,
        "force_col_wise": True,  # else a time measurement decides, and so on the rounding of sums
        "verbosity": -1,
    }


_OURS = ("num_iterations", "early_stopping_round", "list_limit")


def _read(
    dataset: OpenDataset,
    split: str,
    options: TrainingPlan,
    task_spec: TaskSpec,
    columns: Any,
    say: Callable[[str], None],
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Reads a split into memory as a table.

    Returns:
      The table, float32 `[rows, columns]`; the labels, float32 `[rows]`; the weights, float32 `[rows]`, or None.

    Raises:
      MillraceError: the split has another number of records than the manifest says.
    """
    from trainer.data.input_fn import input_fn
    from trainer.data.input_options import input_options
    from trainer.models.canned import learned

    mode = "eval"
    batches = input_fn(dataset, split, mode=mode, options=input_options(dataset, options, split=split, mode=mode))
    weighed = task_spec.weight
    table_batches = batches.map(
        lambda features, label: (columns.table(features), label, features[weighed] if weighed else ())
    )
    rows, at = dataset.rows(split), 0
    table = np.empty((rows, columns.count), np.float32)
    labels = np.empty(rows, np.float32)
    weights = np.empty(rows if weighed else 0, np.float32)
    for x, label, weight in table_batches.as_numpy_iterator():
        interrupts.check()
        end = at + len(x)
        if end <= rows:
            table[at:end], labels[at:end] = x, label.reshape(-1)
            if weighed:
                weights[at:end] = weight.reshape(-1)
        at = end
        say(f"reading {split}: {at:,} of {rows:,} rows")
    if at != rows:
        raise MillraceError(f"{dataset.run_dir}: {split} has {at:,} records, but the manifest says {rows:,}")
    scale = task_spec.scale
    if scale.class_weights:  # also weighs the evaluation split, whose loss decides when growing ends
        factors = np.asarray(scale.class_weights, np.float32)[labels.astype(np.int64)]
        return table, labels, factors * weights if weighed else factors
    return table, np.asarray(learned(labels, scale)), weights if weighed else None


class _Follow:
    """A callback for LightGBM: shows the progress after each round, and stops when the process is interrupted.

    Attributes:
      rounds: the number of rounds so far.
      losses: the loss after each round, by split. For a number, the mean squared error in the label's own units, or of
        its logarithm if the model learns the logarithm.
    """

    def __init__(self, split: str, most: int, task_spec: TaskSpec, say: Callable[[str], None]) -> None:
        self._split, self._most, self._say = split, most, say
        self._unit = task_spec.scale.deviation**2  # 1 unless the label is a scaled number
        self._regression = task_spec.classes is None
        self._of = " of the logarithm" if task_spec.scale.is_logarithm else ""
        self.rounds = 0
        self.losses: dict[str, list[float]] = {}

    def __call__(self, env: Any) -> None:
        """Called by LightGBM after each round."""
        interrupts.check()
        self.rounds = env.iteration + 1
        for name, _, loss, *_ in env.evaluation_result_list:
            self.losses.setdefault(name, []).append(loss * self._unit)
        losses = self.losses.get(self._split)
        loss_text = "" if losses is None else f", {self._split} log loss {figure(losses[-1])}"
        if losses is not None and self._regression:
            loss_text = f", {self._split} RMSE{self._of} {figure(math.sqrt(losses[-1]))}"
        self._say(f"round {self.rounds:,} of up to {self._most:,}{loss_text}")
