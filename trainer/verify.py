"""Proves that a served model sees what training saw, on the records that the job kept for this.

    python -m trainer.verify --data_dir out/ --saved_model model/export/best/1700000000

The job keeps a few hundred raw records, each beside its transformed record. Three ways must end alike: the stored
transformed records and the raw ones put through the dataset's transform, feature by feature; then the stored ones put
through the Estimator and the raw ones put through the exported signatures, prediction by prediction. Ids, classes and
keys agree exactly, floats within rtol 1e-4 + atol 1e-5. Raw images, ingested again, must be the stored ones byte for
byte.

Exit code: 0 no difference, 1 a difference or a failure, 2 asked wrongly.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile

from schemas.dataset import open_dataset
from schemas.errors import MillraceError, UsageError
from schemas.graphs.trust import TRUST_HELP
from trainer.export.parity_records import read_parity_records
from trainer.export.saved_model import check_files, read_notes
from trainer.export.skew_check import check_export, check_transform, judge
from trainer.verbosity import start_tensorflow


def verify(*, data_dir: str, saved_model: str, model_dir: str | None = None, trust: bool = False) -> int:
    """Checks an export against a dataset; the Estimator is rebuilt from `model_dir` with the export's own variables.

    Returns:
      How many records were compared.

    Raises:
      SkewError: there is a difference.
      UsageError: the export is of another schema, or its `model_dir` is not known.
      MillraceError: a graph of either could do more than compute, and `trust` is not given.
    """
    saved_model = saved_model.rstrip("/")
    schema, notes = read_notes(saved_model)
    dataset = open_dataset(data_dir, trust=trust)
    if dataset.declared.fingerprint != schema.fingerprint:
        raise UsageError(f"{saved_model}: trained on another schema than {data_dir} has; give the data of its training")
    if notes.dataset_run != dataset.run:
        print(f"note: trained on run {notes.dataset_run}, compared with run {dataset.run}", file=sys.stderr)
    check_files(saved_model, notes)
    if notes.advice is not None:
        print(f"note: {saved_model}: {notes.advice}", file=sys.stderr)
    if not trust:
        from schemas.graphs.check import check_graph

        check_graph(saved_model)
    start_tensorflow(verbose=False)
    from trainer.export.restore import restore_estimator

    records = read_parity_records(dataset)
    check_transform(dataset, records)
    with tempfile.TemporaryDirectory(prefix="millrace-verify-") as scratch:
        check_export(
            dataset,
            records,
            export_dir=saved_model,
            estimator=restore_estimator(model_dir or _model_dir(saved_model), dataset, scratch=scratch),
            checkpoint_path=os.path.join(saved_model, "variables", "variables"),
            judged=judge(dataset, records) if notes.advice is None else None,
        )
    return len(records.raw)


def _model_dir(saved_model: str) -> str:
    """model_dir/export/best/<number> -> model_dir."""
    parts = os.path.abspath(saved_model) if "://" not in saved_model else saved_model
    model_dir = os.path.dirname(os.path.dirname(os.path.dirname(parts)))
    if os.path.basename(os.path.dirname(os.path.dirname(parts))) != "export":
        raise UsageError(f"{saved_model} does not lie in model_dir/export/<name>/; say which with --model_dir")
    return model_dir


def main(argv: list[str] | None = None) -> int:
    """Parses, verifies, prints what came of it, and returns the exit code."""
    description, exit_codes = (__doc__ or "").split("\n\nExit code: ")
    parser = argparse.ArgumentParser(
        prog="python -m trainer.verify",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=description,
        epilog=f"Exit code: {exit_codes}",
    )
    parser.add_argument("--data_dir", required=True, help="the dataset directory that the model was trained on")
    parser.add_argument("--saved_model", required=True, help="the exported model, such as model/export/best/1700000000")
    parser.add_argument("--model_dir", help="where the model was trained; default: three folders above --saved_model")
    parser.add_argument("--trust", action="store_true", help=TRUST_HELP)
    options = parser.parse_args(argv)
    try:
        records = verify(**vars(options))
    except MillraceError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"no skew: {records} records, through the transform, the Estimator and every exported signature")
    return 0


if __name__ == "__main__":
    sys.exit(main())
