"""Exports of a training, each published only after it has passed the skew check.

An export is written to a temporary folder (`export/<name>/temp-*`, which no server takes for a version), checked on the
dataset's parity records (as by `trainer.verify`), renamed to `export/<name>/<seconds since 1970>`, and only then
recorded as the new best (`export/best/best.json`). If the check fails, the export is renamed to
`export/<name>/rejected`, and SkewError ends the training.

While a training runs, the best checkpoint is only copied, to `export/best/kept-*`, where the training does not delete
it. It is exported once, at the end, also if another process resumes the training.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from pydantic import Field, ValidationError

from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.errors import MillraceError, SkewError
from schemas.exports.notes import BEST, EXTRA, FINAL, MARK, ExportNotes, numbered, read_mark, write_notes
from schemas.graphs.check import graph_problem
from schemas.spec.forms import Strict
from schemas.storage import folders
from trainer.export.outputs import classes_of
from trainer.export.receivers import serving_input_receiver_fn
from trainer.export.skew_check import (
    ParityRecords,
    check_export,
    check_transform,
    read_parity_records,
    stored_predictions,
)
from trainer.export.warmup import write_warmup
from trainer.model_dir.checkpoints import TEMPORARY, checkpoint_fault, remove_named
from trainer.model_dir.session_graph import SessionGraph
from trainer.spec.metrics import best_metric
from trainer.spec.options import TrainingPlan


class CheckedExport:
    """Writes exports of one dataset's models, and checks each before it gets its final name."""

    def __init__(self, dataset: OpenDataset, say: Callable[[str], None] = lambda text: None) -> None:
        self.dataset = dataset
        self._say = say
        self._records: ParityRecords | None = None
        self._predictions: tuple[Any, SessionGraph] | None = None  # and the Estimator that they are of
        self._noted = False
        self._last: tuple[str, str] | None = None  # the checkpoint of the last export, and its folder
        self._exported: Any = None  # the Estimator that it is of

    def write(self, estimator: Any, *, export_path: str, checkpoint_path: str, copy_of: str | None = None) -> str:
        """Exports `estimator` at `checkpoint_path` to `export_path/<number>`; returns that folder.

        A second export of one checkpoint (the last is often the best) is a copy of the first; of another checkpoint,
        a copy with its variables, which is checked like the first. `copy_of` names the checkpoint of which
        `checkpoint_path` is a copy.

        Raises:
          SkewError: the predictions of the export and the Estimator differ; it was moved to `export_path/rejected`.
        """
        remove_named(export_path, rf"{TEMPORARY}.*|rejected")  # of a crash, and the last one that was rejected
        temporary = _temporary_folder(export_path)
        try:
            original = copy_of or checkpoint_path
            if self._last is not None and self._last[0] == original and tf.io.gfile.isdir(self._last[1]):
                written = os.path.join(temporary, "copy")
                folders.copy(self._last[1], written)
            else:
                written = self._write_checked(estimator, temporary, export_path, checkpoint_path)
            final = os.path.join(export_path, str(_next_number(export_path)))
            folders.move_folder(written, final)
            self._last, self._exported = (original, final), estimator
            return final
        finally:
            if tf.io.gfile.exists(temporary):
                folders.remove(temporary)

    def close(self) -> None:
        """Frees what the next check would use again."""
        if self._predictions is not None:
            self._predictions[1].close()
            self._predictions = None

    def _write_checked(self, estimator: Any, aside: str, export_path: str, checkpoint_path: str) -> str:
        self._say(f"exporting {os.path.basename(export_path)}")
        if self._last is not None and self._exported is estimator and tf.io.gfile.isdir(self._last[1]):
            written = os.path.join(aside, "other")
            copy_with_variables(self._last[1], written, checkpoint_path)
        else:
            receiver = serving_input_receiver_fn(self.dataset)
            written = tf.compat.as_str(estimator.export_saved_model(aside, receiver, checkpoint_path=checkpoint_path))
        self._say("checking the export on real records")
        try:
            self._check(written, estimator, checkpoint_path)
        except SkewError as error:
            rejected = os.path.join(export_path, "rejected")
            folders.move_folder(written, rejected)
            raise SkewError(f"{error} The export was rejected; inspect it in {rejected}.") from error
        return written

    def _check(self, export_dir: str, estimator: Any, checkpoint_path: str) -> None:
        if self._records is None:  # once: the transform and the records do not change during a training
            records = read_parity_records(self.dataset)
            check_transform(self.dataset, records)
            self._records = records
        records = self._records
        if self._predictions is None or self._predictions[0] is not estimator:
            self.close()
            self._predictions = estimator, stored_predictions(self.dataset, records, estimator)
        warmup = check_export(
            self.dataset,
            records,
            export_dir=export_dir,
            predictions=self._predictions[1],
            checkpoint_path=checkpoint_path,
        )
        write_warmup(export_dir, warmup)
        notes = ExportNotes(
            dataset_run=self.dataset.run,
            schema_fingerprint=self.dataset.declared.fingerprint,
            classes=classes_of(self.dataset),
            global_step=int(tf.train.load_variable(checkpoint_path, "global_step")),
            checked_records=len(records.raw),
        )
        schema_yaml = storage.read_bytes(layout.join(self.dataset.run_dir, layout.SCHEMA_YAML))
        write_notes(export_dir, notes, schema_yaml)
        self._note_untrusted_graph(export_dir)

    def _note_untrusted_graph(self, export_dir: str) -> None:
        """Notes once that loading these exports requires --trust, since a custom model can do more than compute."""
        problem = None if self._noted else graph_problem(export_dir)
        if problem is not None:
            self._noted = True
            print(
                f"note: predicting with an export of this model requires --trust: its graph {problem}", file=sys.stderr
            )


def copy_with_variables(export_dir: str, copy: str, checkpoint_path: str) -> None:
    """Copies an export's graph, without its notes and warm-up requests, beside the variables of another checkpoint.

    The graph of a model's predictions does not depend on the checkpoint, and takes long to build.
    """
    folders.copy(export_dir, copy, exclude="variables")
    folders.remove(os.path.join(copy, EXTRA))
    folders.make(os.path.join(copy, "variables"))
    names = sorted(tf.train.load_checkpoint(_variables(export_dir)).get_variable_to_shape_map())
    checkpoint = tf.train.load_checkpoint(checkpoint_path)
    with tf.init_scope():
        values = [checkpoint.get_tensor(name) for name in names]
        tf.raw_ops.SaveV2(
            prefix=_variables(copy), tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )


def _variables(export_dir: str) -> str:
    return os.path.join(export_dir, "variables", "variables")


BEST_CHECKPOINT_JSON = "kept.json"
_COPY = "kept-"  # prefix of the folder of a copied checkpoint


class BestCheckpoint(Strict):
    """`export/best/kept.json`: the best checkpoint, which is not exported yet.

    Attributes:
      metric, value: what it was selected by.
      global_step: its step.
      folder: the folder beside this file with the copy.
    """

    metric: str
    value: float
    global_step: int
    folder: str = Field(pattern=rf"^{_COPY}[0-9a-f]+$")

    @property
    def checkpoint(self) -> str:
        """The checkpoint's path, relative to `export/best`."""
        return os.path.join(self.folder, f"model.ckpt-{self.global_step}")


class Exports:
    """The exports of a training: of its best checkpoint, which is copied during the training, and of its last one.

    Args:
      dataset: the dataset that the model is trained on; exports are checked with its parity records.
      options: those of the training.
      say: called with what is being done: exports and their checks take seconds.
    """

    def __init__(
        self, dataset: OpenDataset, options: TrainingPlan, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self._writer = CheckedExport(dataset, say)
        self._metric, self._keep = options.best_metric, options.keep_exports
        self._best, self._final = (os.path.join(options.model_dir, "export", name) for name in (BEST, FINAL))
        self._original: str | None = None  # the checkpoint of which the best one is a copy

    def consider(self, checkpoint: str, metrics: Mapping[str, float]) -> bool:
        """Copies a checkpoint that was evaluated if it is the best so far. Returns whether it is."""
        metric = best_metric(metrics, self._metric)
        value = float(metrics[metric.name])
        if not metric.improves(value, best_so_far(self._best)):
            return False
        step, folder = int(metrics["global_step"]), f"{_COPY}{secrets.token_hex(4)}"
        best = BestCheckpoint(metric=metric.name, value=value, global_step=step, folder=folder)
        folders.make(os.path.join(self._best, folder))
        for path in tf.io.gfile.glob([f"{checkpoint}.index", f"{checkpoint}.data-*"]):
            tf.io.gfile.copy(path, os.path.join(self._best, f"{best.checkpoint}{path[len(checkpoint) :]}"))
        storage.write_bytes(
            os.path.join(self._best, BEST_CHECKPOINT_JSON), best.model_dump_json(indent=1).encode() + b"\n"
        )
        remove_named(self._best, rf"{_COPY}(?!{folder.removeprefix(_COPY)}$).*")
        self._original = checkpoint
        return True

    def write(self, estimator: Any, last_checkpoint: str) -> dict[str, str]:
        """Exports the best checkpoint, unless an earlier process has, and the last one.

        Returns:
          The folders of the best export, if there is one, and of the final one, by `BEST` and `FINAL`.

        Raises:
          MillraceError: the copy of the best checkpoint is damaged.
          SkewError: see `CheckedExport.write`.
        """
        best = read_best_checkpoint(self._best)
        if best is not None:
            self._write_best(estimator, best)
        final = self._writer.write(estimator, export_path=self._final, checkpoint_path=last_checkpoint)
        self._writer.close()
        prune(self._final, keep=self._keep)
        mark = read_mark(self._best)
        return {FINAL: final} if mark is None else {BEST: layout.join(self._best, str(mark["export"])), FINAL: final}

    def _write_best(self, estimator: Any, best: BestCheckpoint) -> None:
        checkpoint = os.path.join(self._best, best.checkpoint)
        problem = checkpoint_fault(checkpoint)
        if problem is not None:
            raise MillraceError(
                f"{checkpoint}: damaged ({problem}), so the best model cannot be exported. Restore it from a backup, "
                f"or remove {layout.join(self._best, BEST_CHECKPOINT_JSON)} and run the same command again, to go "
                "without it."
            )
        export = self._writer.write(
            estimator, export_path=self._best, checkpoint_path=checkpoint, copy_of=self._original
        )
        mark = {"metric": best.metric, "value": best.value, "export": os.path.basename(export)}
        mark |= {"global_step": best.global_step}
        storage.write_bytes(os.path.join(self._best, MARK), json.dumps(mark, indent=1).encode() + b"\n")
        storage.delete(os.path.join(self._best, BEST_CHECKPOINT_JSON))
        remove_named(self._best, rf"{_COPY}.*")
        prune(self._best, keep=self._keep)


def read_best_checkpoint(export_path: str) -> BestCheckpoint | None:
    """Reads which checkpoint is the best one and not exported yet; None if there is none.

    Raises:
      MillraceError: the file that names it cannot be read.
    """
    path = os.path.join(export_path, BEST_CHECKPOINT_JSON)
    try:
        return BestCheckpoint.model_validate_json(storage.read_bytes(path)) if storage.exists(path) else None
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise MillraceError(
            f"{path}: does not name the best checkpoint ({reason}). Remove it, and run the same command again, to go "
            "without that checkpoint."
        ) from None


def best_so_far(export_path: str) -> float | None:
    """Returns the best value so far; None if there is none, or its checkpoint or export is gone."""
    best = read_best_checkpoint(export_path)
    if best is not None and tf.io.gfile.exists(os.path.join(export_path, f"{best.checkpoint}.index")):
        return best.value
    mark = read_mark(export_path)
    return float(mark["value"]) if mark is not None and str(mark["export"]) in numbered(export_path) else None


def best_step(export_path: str) -> int | None:
    """Returns the step of the best checkpoint so far; None if there is none."""
    best = read_best_checkpoint(export_path)
    return best.global_step if best is not None else (read_mark(export_path) or {}).get("global_step")


def prune(export_path: str, *, keep: int) -> None:
    """Removes all but the `keep` newest exports. Renames each first, so that no server sees an incomplete version."""
    for name in numbered(export_path)[:-keep]:
        temporary = _temporary_folder(export_path)
        folders.move_folder(os.path.join(export_path, name), temporary)
        folders.remove(temporary)


def _temporary_folder(export_path: str) -> str:
    """A new name for a folder that no server takes for a version."""
    return os.path.join(export_path, f"{TEMPORARY}{secrets.token_hex(4)}")


def _next_number(export_path: str) -> int:
    """Seconds since 1970, or the newest export's number plus one if that is higher."""
    return max([int(time.time()), *(int(name) + 1 for name in numbered(export_path))])
