"""The parity check of an export that was written earlier: its Estimator is rebuilt with the export's own variables."""

from __future__ import annotations

import os
import tempfile

from schemas.dataset import Dataset
from schemas.exports.notes import Notes
from trainer.export.parity_records import read_parity_records
from trainer.export.skew_check import check_export, check_transform, judge


def check_saved_model(dataset: Dataset, saved_model: str, model_dir: str, *, notes: Notes) -> int:
    """Compares an export with the Estimator of `model_dir` on the dataset's parity records.

    Args:
      dataset: the dataset.
      saved_model: the export, whose files the caller has compared with its notes.
      model_dir: the model directory of the training.
      notes: the export's. Of an earlier release, they say which invalid rows it can be held to.

    Returns:
      How many records were compared.

    Raises:
      SkewError: there is a difference.
      UsageError: `model_dir` holds no model.
    """
    from trainer.export.restore import restore_estimator

    records = read_parity_records(dataset)
    check_transform(dataset, records)
    with tempfile.TemporaryDirectory(prefix="millrace-verify-") as scratch:
        check_export(
            dataset,
            records,
            export_dir=saved_model,
            estimator=restore_estimator(model_dir, dataset, scratch=scratch),
            checkpoint_path=os.path.join(saved_model, "variables", "variables"),
            judged=judge(dataset, records, current=notes.current) if notes.advice is None else None,
        )
    return len(records.raw)
