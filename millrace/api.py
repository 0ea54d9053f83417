"""Preprocessing, training and prediction from Python: what the commands do, with options as keyword arguments.

Failures raise MillraceError; invalid arguments raise its subclass UsageError. No function exits the process.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millrace.dataset import Dataset
from millrace.model import Model
from schemas.errors import UsageError, did_you_mean
from schemas.exports.notes import export_of
from schemas.scratch import own_temporary_folder

if TYPE_CHECKING:
    from trainer.loop.evaluations import Trained

Path = str | os.PathLike[str]


@own_temporary_folder()
def preprocess(*, schema: Path, input: Path | Iterable[Path], output: Path, **options: Any) -> Dataset:  # noqa: A002
    """Turns raw files into a dataset directory: `millrace preprocess`.

    The job runs in this process. It leaves TensorFlow's settings as they are, so that a training may follow.

    Args:
      schema: the schema's YAML file, local or gs://, or the name of one that ships, such as 'covertype'.
      input: files or globs, local or gs://.
      output: the dataset directory to write.
      **options: those of `millrace preprocess`, under the same names: `overwrite`, `max_rejects`, `num_shards`, ...

    Raises:
      UsageError: an option, the schema or the input is invalid; nothing was done.
      MillraceError: the job failed, and wrote no dataset.
    """
    from beam_jobs.core.options import JobOptions
    from beam_jobs.runs.job import run_job

    paths = [input] if isinstance(input, str | os.PathLike) else input
    job_options = _options(
        JobOptions,
        "preprocess",
        schema=os.fspath(schema),
        input=tuple(os.fspath(path) for path in paths),
        output=os.fspath(output),
        **options,
    )
    run_job(job_options, configure=False)
    return Dataset.open(job_options.output, trust=job_options.trust)


@own_temporary_folder()
def train(
    *,
    data_dir: Path | Dataset,
    model_dir: Path,
    model: str | None = None,
    hparams: Mapping[str, Any] | None = None,
    **options: Any,
) -> Trained:
    """Trains, evaluates and exports a model: `millrace train`. Called again, it resumes from the latest checkpoint.

    Args:
      data_dir: the dataset, or its directory.
      model_dir: where checkpoints, metrics and exports go.
      model: one of those that `millrace train --help` lists, or package.module:function; None chooses one.
      hparams: the model's hyper-parameters by name.
      **options: those of `millrace train`, under the same names: `max_steps`, `batch_size`, `seed`, `quiet`, ...

    Returns:
      The result: `export_dir` (the best export), `metrics` by split, `global_step`, `exports` by name, the `steps` and
      `seconds` of this call, and why the training `ended`.

    Raises:
      UsageError: an unknown option, model or hyper-parameter, or a model directory of another model.
      MillraceError: the dataset cannot be read, or the training failed.
    """
    from schemas.exports.session import quiet_logs
    from trainer.loop.checks import check_options
    from trainer.spec.hparams import settings_of
    from trainer.spec.options import TrainOptions
    from trainer.task import planned, run_training

    path = data_dir.path if isinstance(data_dir, Dataset) else os.fspath(data_dir)
    names = {"data_dir": path, "model_dir": os.fspath(model_dir), "model": model, "hparams": settings_of(hparams or {})}
    train_options = _options(TrainOptions, "train", **names, **options)
    check_options(train_options)
    dataset = (data_dir if isinstance(data_dir, Dataset) else Dataset.open(path, trust=train_options.trust)).opened
    trained = run_training(dataset, planned(dataset, train_options), quiet_logs(verbose=train_options.verbose))
    if trained is None:
        raise UsageError("TF_CONFIG gives this process no result to return; run `millrace train` in a cluster")
    return trained


def load_model(export_dir: Path, *, trust: bool = False) -> Model:
    """Opens an export, such as `train(...).export_dir`, to predict with. Imports TensorFlow.

    Args:
      export_dir: the export; or a folder of exports or a training's directory, whose best export is taken.
      trust: load it even if its graph can do more than compute.

    Raises:
      UsageError: there is none.
      MillraceError: a file of it was changed, or its graph can do more than compute.
    """
    return Model(export_of(os.fspath(export_dir)), trust=trust)


def _options(kind: type[Any], function: str, **values: Any) -> Any:
    """Builds the options' dataclass from keyword arguments."""
    names = [field.name for field in dataclasses.fields(kind)]
    for name in values:
        if name not in names:
            raise UsageError(
                f"{function}() has no option {name!r}{did_you_mean(name, names)}\nIt has {', '.join(names)}."
            )
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
