"""Saves and recovers checkpoints, removes temporary files, and explains failures inside TensorFlow.

A file or folder that is not complete always has a temporary name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.errors import MillraceError, counted
from schemas.exports.notes import BEST, FINAL
from schemas.storage import folders
from schemas.storage.local import refused_by_disk
from trainer.data.input_fn import find_unreadable_shard
from trainer.estimator.checkpoint_names import named_checkpoints
from trainer.images.summaries import summary_writer
from trainer.spec.options import TrainOptions


@contextlib.contextmanager
def explain_failures(dataset: OpenDataset, options: TrainOptions) -> Iterator[None]:
    """Turns TensorFlow's errors in a `with` block into errors with advice.

    This applies to a NaN loss, a full disk, an unreadable shard and an incompatible checkpoint.

    Args:
      dataset: the dataset, whose shards are read to find a damaged one.
      options: the options of the training.

    Raises:
      MillraceError: one of these failures; any other error passes through unchanged.
    """
    hook = threading.excepthook
    threading.excepthook = _without_disk_errors(hook, options.model_dir)
    log = tf.get_logger()
    log.addFilter(_is_not_about_nan)
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
        log.removeFilter(_is_not_about_nan)


def _is_not_about_nan(record: logging.LogRecord) -> bool:
    """A log filter that drops TensorFlow's "Model diverged" line; the error for a NaN loss follows it anyway."""
    return not str(record.msg).startswith("Model diverged")


def _without_disk_errors(hook: Callable[[Any], Any], model_dir: str) -> Callable[[Any], None]:
    """Returns a `threading.excepthook` without tracebacks for a full disk, which the main thread reports too."""

    def filtered(failed: Any) -> None:
        if disk_error(failed.exc_value, model_dir) is None:
            hook(failed)

    return filtered


def _find_cause(dataset: OpenDataset, options: TrainOptions, error: tf.errors.OpError) -> None:
    """Raises the error for a damaged shard or an incompatible checkpoint, if one of them explains a failed step."""
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


def nan_error(model_dir: str, problem: str) -> MillraceError:
    """Returns the error for NaN values, with advice; `problem` says where they occurred."""
    return MillraceError(
        f"{_prefix(model_dir)}{problem}. Try a lower learning_rate (--hparams), and check the features and labels for "
        f"NaN and very large values.{_last_checkpoint(model_dir)}"
    )


def disk_error(error: BaseException, model_dir: str) -> MillraceError | None:
    """Returns the error for a disk that is full, over quota or read-only, with advice.

    Returns None if `error` has another cause. The last checkpoint is still valid after such an error: a new checkpoint
    is written to other files, and is named in the file `checkpoint` only when it is complete.
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
    """Returns the beginning of a message: the model directory and a colon; '' without a directory."""
    return f"{model_dir}: " if model_dir else ""


def _last_checkpoint(model_dir: str) -> str:
    """Returns the end of a message: the last checkpoint, and how to export the best one."""
    if not model_dir:
        return ""
    checkpoint = tf.train.latest_checkpoint(model_dir)
    if checkpoint is None:
        return " There is no checkpoint yet."
    step = checkpoint.rpartition("-")[2]
    advice = f" To export the best one so far, run the same command with --max_steps {step}." if step != "0" else ""
    return f" The last good checkpoint is {checkpoint}.{advice}"


def check_stays_within(model_dir: str) -> None:
    """Refuses a model directory whose links or names lead outside of it, because a training removes files there.

    Raises:
      MillraceError: a folder of exports is a link, or `checkpoint` names a file outside the directory.
    """
    named_checkpoints(model_dir)
    folders.refuse_links(model_dir, folders.links_to(model_dir, [f"export/{BEST}", f"export/{FINAL}"]))


TEMPORARY = "temp-"  # prefix of an export's folder while it is written or removed
_FILES = re.compile(
    r"model\.ckpt-[0-9]+_temp"  # a folder with the shards of an unfinished checkpoint
    r"|model\.ckpt-.*\.tempstate[0-9]+"
    r"|(checkpoint|graph\.pbtxt)\.tmp[0-9a-f]+"
    r"|\..+\.[0-9a-f]{32}\.tmp"  # written by schemas.storage.write_bytes
)


def remove_temporary_files(model_dir: str) -> None:
    """Removes incomplete checkpoints and incomplete small files.

    Only the process that writes them may call this, before it writes.
    """
    remove_named(model_dir, _FILES.pattern)


def remove_temporary_exports(model_dir: str) -> None:
    """Removes incomplete exports. Only the process that exports may call this, before it exports."""
    exports = os.path.join(model_dir, "export")
    for name in tf.io.gfile.listdir(exports) if tf.io.gfile.isdir(exports) else []:
        remove_named(os.path.join(exports, name.rstrip("/")), rf"{TEMPORARY}.*|{_FILES.pattern}")


def remove_named(folder: str, names: str) -> None:
    """Removes files and folders from a folder.

    Args:
      folder: the folder.
      names: a regular expression that must match the whole name.
    """
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []:
        if not re.fullmatch(names, name.rstrip("/")):
            continue
        path = os.path.join(folder, name.rstrip("/"))
        if tf.io.gfile.isdir(path):
            folders.remove(path)
        else:
            tf.io.gfile.remove(path)


GRAPH_BYTES = 8 << 20  # TensorBoard cannot show a larger graph
CheckpointSaverHook: Any = tf.compat.v1.train.CheckpointSaverHook


def with_safe_saving(spec: Any, config: Any) -> Any:
    """Adds `SaveCheckpoints` to a TRAIN spec, unless the model_fn has a CheckpointSaverHook of its own.

    Args:
      spec: an `EstimatorSpec`.
      config: the `RunConfig`, which says where and how often to save, and whether to write the graph.
    """
    own = [h for h in (*spec.training_hooks, *spec.training_chief_hooks) if isinstance(h, CheckpointSaverHook)]
    steps, secs = config.save_checkpoints_steps, config.save_checkpoints_secs
    if own or not (steps or secs):
        return spec
    hook = SaveCheckpoints(
        config.model_dir,
        save_steps=steps,
        save_secs=secs,
        saver=spec.scaffold.saver,
        save_graph=config.checkpoint_save_graph_def,
    )
    return spec._replace(training_chief_hooks=[hook, *spec.training_chief_hooks])


class SaveCheckpoints(CheckpointSaverHook):
    """Saves checkpoints like Estimator's own hook, periodically and at the end, but more safely.

    The differences are:

    * It does not save the checkpoint again from which training has just resumed. Its files would be opened for writing,
      and a full disk or a kill at that moment would destroy the last good checkpoint.
    * It does not save NaN or infinite variables, from which training could not recover.
    * If the disk refuses a write, training ends with an error. (If a file is too large, TensorFlow raises
      OutOfRangeError, which its sessions would treat as the end of the input.)
    """

    def __init__(
        self, model_dir: str, *, save_steps: int | None, save_secs: float | None, saver: Any, save_graph: bool
    ) -> None:
        super().__init__(model_dir, save_secs, save_steps, saver=saver, save_graph_def=save_graph)
        summary_writer(model_dir)  # opened first: a hook would open it with an incomplete graph
        self._model_dir = model_dir
        self._save_graph = save_graph
        self._names: list[str] = []
        self._all_finite: Any = None
        self._starting = False

    def begin(self) -> None:
        """Adds the op that checks whether all variables are finite."""
        super().begin()
        variables = [v for v in tf.compat.v1.trainable_variables() if v.dtype.base_dtype.is_floating]
        self._names = [v.op.name for v in variables]
        finite = []
        for variable in variables:
            with tf.device(variable.device):  # each parameter server checks its own variables
                finite.append(tf.reduce_all(tf.math.is_finite(variable)))
        self._all_finite = tf.stack(finite) if finite else tf.constant([], tf.bool)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Writes the graph for TensorBoard, and saves the first checkpoint unless training has resumed from it."""
        graph = session.graph
        if self._save_graph:
            tf.io.write_graph(graph.as_graph_def(add_shapes=True), self._model_dir, "graph.pbtxt")
        step = session.run(self._global_step_tensor)
        if not step and graph.as_graph_def().ByteSize() <= GRAPH_BYTES:  # a resumed training wrote it at step 0
            summary_writer(self._model_dir).add_graph(graph)  # for TensorBoard
        self._starting = True
        self._save(session, step)
        self._starting = False
        self._timer.update_last_triggered_step(step)

    def _save(self, session: Any, step: Any) -> bool:
        """Saves a checkpoint; called by the base class. Returns whether a listener requests to stop training."""
        for listener in self._listeners:
            listener.before_save(session, step)
        try:
            # Skips the save right after resuming, when the checkpoint of this step already exists.
            if not (self._starting and tf.train.latest_checkpoint(self._model_dir) == f"{self._save_path}-{step}"):
                self._check_finite(session, step)
                self._get_saver().save(session, self._save_path, global_step=step, write_meta_graph=self._save_graph)
            stop = False
            for listener in self._listeners:
                stop = bool(listener.after_save(session, step)) or stop
        except tf.errors.OpError as error:
            full = disk_error(error, self._model_dir)
            if full is not None:
                raise full from error
            if isinstance(error, tf.errors.OutOfRangeError):
                raise MillraceError(f"{self._model_dir}: step {step} was not saved: {error.message}") from error
            raise
        return stop

    def _check_finite(self, session: Any, step: Any) -> None:
        """Raises an error that names the variables with NaN or infinite values."""
        finite = session.run(self._all_finite)
        broken = [name for name, good in zip(self._names, finite, strict=True) if not good]
        if broken:
            raise nan_error(
                self._model_dir, f"variables became NaN or infinite by step {step} ({', '.join(broken[:3])})"
            )


_INDEX = re.compile(r"(model\.ckpt-([0-9]+))\.index")


def recover_checkpoint(model_dir: str, report: Callable[[str], None]) -> str | None:
    """Makes the file `checkpoint` name the latest valid checkpoint; deletes nothing.

    Checkpoints are read completely, the latest first, until one is valid. While reading, TensorFlow compares the
    tensors with their checksums.

    Args:
      model_dir: the model directory.
      report: prints a message; called for each skipped checkpoint.

    Returns:
      The path of the checkpoint, as `tf.train.latest_checkpoint` returns it; None if there is none.

    Raises:
      MillraceError: there are checkpoints, but none of them is valid; or a name leads outside the directory.
    """
    named = named_checkpoints(model_dir)
    candidates = named or _found(model_dir)
    if candidates and not named:
        report(f"{layout.join(model_dir, 'checkpoint')}: missing or damaged; searching for checkpoints by name")
    for i in reversed(range(len(candidates))):
        problem = checkpoint_fault(candidates[i])
        if problem is None:
            if not named or i + 1 < len(candidates):
                name_checkpoints(model_dir, [os.path.basename(path) for path in candidates[: i + 1]])
                report(f"resuming from {candidates[i]}, the latest valid checkpoint")
            return candidates[i]
        report(f"{candidates[i]}: damaged ({problem}); skipped")
    if candidates:
        raise MillraceError(
            f"{model_dir}: none of its {counted(len(candidates), 'checkpoints')} is valid. Restore one from a backup, "
            "or start over with another --model_dir."
        )
    return None


def name_checkpoints(model_dir: str, names: Sequence[str]) -> None:
    """Writes the file `checkpoint`, which names the existing checkpoints, the latest last.

    TensorFlow's own function does not accept names without a path for a directory with a relative path or in a bucket.
    """
    lines = [f'model_checkpoint_path: "{names[-1]}"', *(f'all_model_checkpoint_paths: "{name}"' for name in names)]
    storage.write_bytes(layout.join(model_dir, "checkpoint"), "".join(f"{line}\n" for line in lines).encode())


def checkpoint_fault(checkpoint: str) -> str | None:
    """Reads a checkpoint completely. Returns what is wrong with it, or None if it is valid."""
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        missing = [name for name in ("index", "data-*") if not tf.io.gfile.glob(f"{checkpoint}.{name}")]
        return f"no file .{missing[0]}" if missing else str(getattr(error, "message", error)).splitlines()[0]
    return None


def _found(model_dir: str) -> list[str]:
    """Returns the checkpoints that have an index file, oldest first."""
    matches = [match for name in storage.listdir(model_dir) if (match := _INDEX.fullmatch(name))]
    return [layout.join(model_dir, match[1]) for match in sorted(matches, key=lambda match: int(match[2]))]
