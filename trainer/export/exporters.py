"""Exporters that publish an export only after it has passed the skew check.

An export is written to a temporary folder (`export/<name>/temp-*`, which no server takes for a version), checked on the
dataset's parity records (as by `trainer.verify`), renamed to `export/<name>/<seconds since 1970>`, and only then
recorded as the new best (`export/best/best.json`). If the check fails, the export is renamed to
`export/<name>/rejected`, and SkewError ends the training.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from schemas import storage
from schemas.dataset import Dataset, layout
from schemas.errors import SkewError, UsageError
from schemas.exports.notes import MARK, NOTES_FORMAT, Notes, numbered, read_mark, write_notes
from schemas.graphs.check import graph_problem
from schemas.storage import folders
from trainer.estimator import tf_estimator
from trainer.export.outputs import classes_of
from trainer.export.receivers import serving_input_receiver_fn
from trainer.export.rejected_requests import Judged
from trainer.export.skew_check import ParityRecords, check_export, check_transform, judge, read_parity_records
from trainer.export.warmup import write_warmup
from trainer.model_dir.checkpoints import TEMPORARY, remove_named
from trainer.spec.metrics import BestMetric, best_metric, defined

BEST, FINAL = "best", "final"


def exporters(
    dataset: Dataset, *, metric: str | None = None, keep: int = 3, say: Callable[[str], None] = lambda text: None
) -> list[Any]:
    """The best and the final exporter, for `EvalSpec(exporters=...)`.

    Args:
      dataset: the dataset that the Estimator is trained on; exports are checked with its parity records.
      metric: selects the best model; None: see `best_metric`.
      keep: how many of the newest exports are kept under each name.
      say: called with what is being done: exports and their checks take seconds.

    Raises:
      UsageError: `keep` is below 1.
    """
    if keep < 1:
        raise UsageError(f"keep: {keep}; keep at least one export")
    writer = CheckedExport(dataset, say)
    return [BestExporter(writer, metric=metric, keep=keep), FinalExporter(writer, keep=keep)]


class CheckedExport:
    """Writes exports of one dataset's models, and checks each before it gets its final name."""

    def __init__(self, dataset: Dataset, say: Callable[[str], None] = lambda text: None) -> None:
        self.dataset = dataset
        self._say = say
        self._expected: tuple[ParityRecords, Judged] | None = None
        self._noted = False
        self._last: tuple[str, str] | None = None  # the checkpoint of the last export, and its folder

    def write(self, estimator: Any, *, export_path: str, checkpoint_path: str) -> str:
        """Exports `estimator` at `checkpoint_path` to `export_path/<number>`; returns that folder.

        A second export of one checkpoint (the last is often the best) is a copy of the first.

        Raises:
          SkewError: the predictions of the export and the Estimator differ; it was moved to `export_path/rejected`.
        """
        remove_named(export_path, rf"{TEMPORARY}.*|rejected")  # of a crash, and the last one that was rejected
        temporary = _temporary_folder(export_path)
        try:
            if self._last is not None and self._last[0] == checkpoint_path and tf.io.gfile.isdir(self._last[1]):
                written = os.path.join(temporary, "copy")
                folders.copy(self._last[1], written)
            else:
                written = self._write_checked(estimator, temporary, export_path, checkpoint_path)
            final = os.path.join(export_path, str(_next_number(export_path)))
            tf.io.gfile.rename(written, final)
            self._last = checkpoint_path, final
            return final
        finally:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.rmtree(temporary)

    def _write_checked(self, estimator: Any, aside: str, export_path: str, checkpoint_path: str) -> str:
        self._say("exporting")
        receiver = serving_input_receiver_fn(self.dataset)
        written = tf.compat.as_str(estimator.export_saved_model(aside, receiver, checkpoint_path=checkpoint_path))
        self._say("checking the export on real records")
        try:
            self._check(written, estimator, checkpoint_path)
        except SkewError as error:
            rejected = os.path.join(export_path, "rejected")
            tf.io.gfile.rename(written, rejected)
            raise SkewError(f"{error} The export was rejected; inspect it in {rejected}.") from error
        return written

    def _check(self, export_dir: str, estimator: Any, checkpoint_path: str) -> None:
        if self._expected is None:  # once: the transform and the records do not change during a training
            records = read_parity_records(self.dataset)
            check_transform(self.dataset, records)
            self._expected = records, judge(self.dataset, records)
        records, judged = self._expected
        warmup = check_export(
            self.dataset,
            records,
            export_dir=export_dir,
            estimator=estimator,
            checkpoint_path=checkpoint_path,
            judged=judged,
        )
        write_warmup(export_dir, warmup)
        notes = Notes(
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


class BestExporter(tf_estimator.Exporter):
    """Exports if the metric is better than the best so far, which is stored in `best.json` for restarts.

    Attributes:
      step: that of the best export, if this process has written it.
    """

    name = BEST

    def __init__(self, writer: CheckedExport, *, metric: str | None, keep: int) -> None:
        self._writer = writer
        self._metric = metric
        self._keep = keep
        self.step: int | None = None

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> str | None:
        """Called after each evaluation; returns the export's folder, or None if nothing was exported."""
        export_path = tf.compat.as_str(export_path)
        metrics = defined(eval_result)
        metric = best_metric(self._writer.dataset, metrics, self._metric)
        value = float(metrics[metric.name])
        if not metric.improves(value, best_so_far(export_path, metric)):
            return None
        final = self._writer.write(estimator, export_path=export_path, checkpoint_path=checkpoint_path)
        mark = {"metric": metric.name, "value": value, "export": os.path.basename(final), "notes_format": NOTES_FORMAT}
        mark["global_step"] = self.step = int(eval_result["global_step"])
        storage.write_bytes(os.path.join(export_path, MARK), json.dumps(mark, indent=1).encode() + b"\n")
        prune(export_path, keep=self._keep)
        return final


class FinalExporter(tf_estimator.Exporter):
    """Exports the last checkpoint at the end of training."""

    name = FINAL

    def __init__(self, writer: CheckedExport, *, keep: int) -> None:
        self._writer = writer
        self._keep = keep

    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: Any, is_the_final_export: bool
    ) -> str | None:
        """Called after each evaluation; returns the export's folder, or None if nothing was exported."""
        if not is_the_final_export:
            return None
        export_path = tf.compat.as_str(export_path)
        final = self._writer.write(estimator, export_path=export_path, checkpoint_path=checkpoint_path)
        prune(export_path, keep=self._keep)
        return final


def best_so_far(export_path: str, metric: BestMetric) -> float | None:
    """The best value so far; None if there is none, it is of another metric, or its export is gone.

    Also None if the export was written by an earlier release, so that the next export replaces it: see `Notes.advice`.
    """
    mark = read_mark(export_path)
    if mark is None or str(mark["export"]) not in numbered(export_path) or mark.get("metric") != metric.name:
        return None
    return float(mark["value"]) if mark.get("notes_format") == NOTES_FORMAT else None


def prune(export_path: str, *, keep: int) -> None:
    """Removes all but the `keep` newest exports. Renames each first, so that no server sees an incomplete version."""
    for name in numbered(export_path)[:-keep]:
        temporary = _temporary_folder(export_path)
        tf.io.gfile.rename(os.path.join(export_path, name), temporary)
        tf.io.gfile.rmtree(temporary)


def _temporary_folder(export_path: str) -> str:
    """A new name for a folder that no server takes for a version."""
    return os.path.join(export_path, f"{TEMPORARY}{secrets.token_hex(4)}")


def _next_number(export_path: str) -> int:
    """Seconds since 1970, or the newest export's number plus one if that is higher."""
    return max([int(time.time()), *(int(name) + 1 for name in numbered(export_path))])
