"""Explains failures inside TensorFlow during training in terms of the dataset and the options."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from schemas.dataset import Dataset
from schemas.errors import MillraceError
from schemas.storage.local import refused_by_disk
from trainer.data.input_fn import find_unreadable_shard
from trainer.spec.options import TrainOptions


@contextlib.contextmanager
def explain_failures(dataset: Dataset, options: TrainOptions) -> Iterator[None]:
    """Turns a NaN loss, a full disk, an unreadable shard and an incompatible checkpoint into a MillraceError.

    Messages mention no checkpoint if `options.model_dir` is empty, as in the doctor.

    Raises:
      MillraceError: one of these failures; any other error passes through.
    """
    hook = threading.excepthook
    threading.excepthook = _without_disk_errors(hook, options.model_dir)
    try:
        yield
    except tf.compat.v1.train.NanLossDuringTrainingError as error:
        raise nan_error(options.model_dir, "the loss became NaN") from error
    except (tf.errors.OpError, OSError, RuntimeError, MillraceError) as error:
        full = disk_error(error, options.model_dir)
        if full is not None:
            raise full from error
        if isinstance(error, (tf.errors.DataLossError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)):
            _find_cause(dataset, options, error)
        raise
    finally:
        threading.excepthook = hook


def _without_disk_errors(hook: Callable[[Any], Any], model_dir: str) -> Callable[[Any], None]:
    """A `threading.excepthook` without tracebacks for a full disk, which the main thread reports too."""

    def filtered(failed: Any) -> None:
        if disk_error(failed.exc_value, model_dir) is None:
            hook(failed)

    return filtered


def _find_cause(dataset: Dataset, options: TrainOptions, error: tf.errors.OpError) -> None:
    print("a step failed; reading the shards one by one, in case one is damaged", file=sys.stderr, flush=True)
    for split in dataset.splits:
        unreadable = find_unreadable_shard(dataset, split)
        if unreadable is not None:
            raise MillraceError(f"{unreadable}{_last_checkpoint(options.model_dir)}") from error
    if "checkpoint" in str(error.message):
        raise MillraceError(
            f"{options.model_dir}: its last checkpoint belongs to another model "
            f"({str(error.message).splitlines()[0]}). Use another --model_dir."
        ) from error


def nan_error(model_dir: str, found: str) -> MillraceError:
    """The error for NaN, with advice; `found` says where it occurred."""
    return MillraceError(
        f"{_prefix(model_dir)}{found}. Try a lower learning_rate (--hparams), and check the features and labels for "
        f"NaN and very large values.{_last_checkpoint(model_dir)}"
    )


def disk_error(error: BaseException, model_dir: str) -> MillraceError | None:
    """The error for a disk that is full, over quota or read-only, with advice; None if `error` has another cause.

    The last checkpoint is still valid: a new one is written to other files, and named only when it is complete.
    """
    if isinstance(error, MillraceError) and not isinstance(error.__cause__, OSError):
        return None
    refused = refused_by_disk(str(getattr(error, "message", error)))
    if refused is None:
        return None
    return MillraceError(
        f"{_prefix(model_dir)}writing failed: {refused}. Free some space, or use another disk, and run the same "
        f"command again.{_last_checkpoint(model_dir)}"
    )


def _prefix(model_dir: str) -> str:
    return f"{model_dir}: " if model_dir else ""


def _last_checkpoint(model_dir: str) -> str:
    if not model_dir:
        return ""
    checkpoint = tf.train.latest_checkpoint(model_dir)
    return f" The last good checkpoint is {checkpoint}." if checkpoint else " There is no checkpoint yet."
