"""Checks an exported model for training/serving skew, on records that the preprocessing job kept for this.

    python -m trainer.verify --data_dir out/ --saved_model model/export/best/1700000000

The job keeps a few hundred raw records, each with its transformed record. Two comparisons are made:

1. The raw records, passed through the dataset's transform, must equal the stored transformed records. Raw images,
   ingested again, must equal the stored ones byte for byte.
2. The raw records, passed through each exported signature, must give the predictions that the Estimator gives for the
   stored records.

Ids, classes and keys must be equal; floats must agree within rtol 1e-4 + atol 1e-5. Invalid rows must get no
prediction.

Exit codes: 0 done, 1 failed, 2 invalid usage. A difference is a failure.
"""

from __future__ import annotations

import dataclasses
import functools
import sys

from schemas import command
from schemas.dataset import open_dataset
from schemas.errors import UsageError, counted
from schemas.exports.model import check_export
from schemas.exports.notes import EXPORT_HELP, export_of
from schemas.graphs.check import TRUST_HELP
from schemas.options import VERBOSE_HELP, Options, option
from schemas.storage import check_addresses
from trainer.model_dir.model_json import model_dir_of
from trainer.spec.dataset_checks import check_schema
from trainer.start import start_tensorflow

PROG = "python -m trainer.verify"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SkewCheckOptions(Options):
    """Which export is checked, and against which dataset; the Estimator is rebuilt from `model_dir`."""

    data_dir: str = option("the dataset that the model was trained on", metavar="DIR")
    saved_model: str = option(EXPORT_HELP, metavar="DIR", check=check_addresses)
    model_dir: str | None = option(
        "the training's directory (default: that in which the export lies)", None, metavar="DIR", check=check_addresses
    )
    trust: bool = option(TRUST_HELP, False)
    verbose: bool = option(VERBOSE_HELP, False)

    @functools.cached_property
    def export(self) -> str:
        """The folder of the export.

        Raises:
          UsageError: there is none.
        """
        return export_of(self.saved_model)


def verify(options: SkewCheckOptions) -> int:
    """Checks an export against a dataset; the Estimator is rebuilt with the export's own variables.

    Returns:
      How many records were compared.

    Raises:
      SkewError: there is a difference.
      UsageError: the export is of another schema, or its `model_dir` is not known.
      MillraceError: a graph of either could do more than compute, and `trust` is not given.
    """
    saved_model = options.export
    schema, notes = check_export(saved_model, trust=options.trust)
    dataset = open_dataset(options.data_dir, trust=options.trust)
    check_schema(saved_model, schema, dataset, "give the dataset that it was trained on")
    if notes.dataset_run != dataset.run:
        print(f"note: trained on run {notes.dataset_run}, compared with run {dataset.run}", file=sys.stderr)
    model_dir = options.model_dir or model_dir_of(saved_model)
    if model_dir is None:
        raise UsageError(f"{saved_model}: lies in no model directory of millrace train; set --model_dir")
    start_tensorflow(verbose=options.verbose)
    from trainer.export.skew_check import check_saved_model

    return check_saved_model(dataset, saved_model, model_dir)


def _run(options: SkewCheckOptions, prog: str) -> command.Report:
    records = verify(options)
    text = f"no skew: {counted(records, 'records')}, through the transform, the Estimator and every exported signature"
    return command.Report(text, {"saved_model": options.export, "skew": False, "records": records}, only_printed=True)


COMMAND = command.Command(prog=PROG, options=SkewCheckOptions, work=_run, description=__doc__ or "")
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
