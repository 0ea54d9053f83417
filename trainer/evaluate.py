"""Evaluates a trained model on a split, and writes a report.

    python -m trainer.evaluate --data_dir out/ --model_dir model/ --split test --slice_by workclass sex,race

The weights are those of the best export, or of another one (--saved_model). Beside its own metrics, the report has
slices, the rows that were most wrong, and the importance of features. It is written into --output as
report-<split>.html, report-<split>.json and the folder report-<split>; existing ones are replaced.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from schemas import command, storage
from schemas.dataset import Dataset, layout, open_dataset
from schemas.errors import UsageError
from schemas.exports.notes import check_files, newest_export, read_notes
from schemas.graphs.check import TRUST_HELP
from schemas.interrupts import how_ended, interruptible
from schemas.storage.gcs_access import check_tensorflow
from trainer.loop.checks import check_model_dir, check_slices
from trainer.model_dir.model_json import Training, read_model_manifest
from trainer.spec.options import TrainOptions
from trainer.verbosity import start_tensorflow

PROG = "python -m trainer.evaluate"
BEST, FINAL = "best", "final"  # as `trainer.export.exporters` has them, which imports TensorFlow


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation gave.

    Attributes:
      report: the page's path.
      content: what it says, as in `report-<split>.json`.
    """

    report: str
    content: dict[str, Any]


def evaluate(
    *,
    data_dir: str,
    model_dir: str,
    split: str = "eval",
    saved_model: str | None = None,
    slice_by: tuple[str, ...] = (),
    eval_steps: int | None = None,
    batch_size: int | None = None,
    output: str | None = None,
    overwrite: bool = False,
    search_inputs: bool = False,
    trust: bool = False,
    verbose: bool = False,
) -> Evaluation:
    """Evaluates an export's weights on a split, and writes the report.

    Args:
      data_dir: the dataset directory: that of the training, or one that the same schema wrote.
      model_dir: the model directory of the training.
      split: the split to evaluate on.
      saved_model: the export; None: the best one, or the final one if there is no best.
      slice_by: features to slice by; 'a,b' is each combination of their values.
      eval_steps: how many batches are evaluated; None: all.
      batch_size: rows or images in a batch; None: those of a training by default.
      output: the folder of the report; None: the model directory, whose own report of the split is replaced.
      overwrite: replace a report in `output`.
      search_inputs: look for the raw rows that were most wrong however large the inputs are.
      trust: load the graphs of the dataset even if they can do more than compute.
      verbose: whether TensorFlow logs more than errors.

    Raises:
      UsageError: no such model, export, split or feature, or data of another schema.
      MillraceError: the dataset or the export cannot be read.
    """
    dataset = open_dataset(data_dir, trust=trust)
    training = _training(model_dir)
    export = (saved_model or _newest_export(model_dir)).rstrip("/")
    schema, notes = read_notes(export)
    if dataset.declared.fingerprint != schema.fingerprint:
        raise UsageError(
            f"{export}: was trained with another schema than that of {data_dir}; give a dataset of the same schema"
        )
    if split not in dataset.splits or not dataset.rows(split):
        raise UsageError(f"{data_dir}: no examples in split {split!r}; it has {', '.join(dataset.splits)}")
    check_files(export, notes)
    folder = output or model_dir
    options = TrainOptions(
        data_dir=data_dir,
        model_dir=folder,
        model=training.model,
        eval_split=split,
        eval_steps=eval_steps,
        batch_size=batch_size,
        slice_by=slice_by,
    )
    check_tensorflow(folder)
    check_model_dir(folder)
    if output is not None:
        storage.check_output(layout.join(output, f"report-{split}.json"), overwrite=overwrite)
    check_slices(dataset, slice_by)
    start_tensorflow(verbose=verbose)
    return _evaluated(dataset, options, model_dir, export, search_inputs=search_inputs)


def _evaluated(
    dataset: Dataset, options: TrainOptions, model_dir: str, export: str, *, search_inputs: bool
) -> Evaluation:
    from trainer.data.input_fn import input_fn
    from trainer.data.input_options import input_options
    from trainer.evaluation.page import draw_all, write_report
    from trainer.evaluation.report import Evaluated, full
    from trainer.evaluation.watch import Budget, Watch
    from trainer.export.restore import restore_estimator
    from trainer.loop.evaluations import plain_metrics, read_curves

    split, mode = options.eval_split, "eval"
    checkpoint = layout.join(export, "variables", "variables")
    reading = input_options(dataset, options, split=split, mode=mode)
    with tempfile.TemporaryDirectory(prefix="millrace-evaluate-") as scratch:
        watch = Watch(dataset, scratch, Budget(share=0.0))
        estimator = restore_estimator(model_dir, dataset, scratch=scratch, watch=watch)
        metrics = plain_metrics(
            estimator.evaluate(
                lambda: input_fn(dataset, split, mode=mode, options=reading),
                steps=options.eval_steps,
                checkpoint_path=checkpoint,
            )
        )
        step = int(metrics["global_step"])
        evaluated = Evaluated(dataset, split, step, options.model, metrics, watch.last, options.slice_by, search_inputs)
        curves = read_curves(dataset, dataclasses.replace(options, model_dir=model_dir))
        content = full(evaluated, curves, estimator, checkpoint, options=options, steps=options.eval_steps)
    content["export"] = export
    return Evaluation(write_report(options.model_dir, split, content, draw_all(content)), content)


def _training(model_dir: str) -> Training:
    manifest = read_model_manifest(model_dir)
    if manifest is None:
        raise UsageError(f"{model_dir}: is not a model directory of trainer.task: it has no model.json")
    return manifest.current


def _newest_export(model_dir: str) -> str:
    for name in (BEST, FINAL):
        found = newest_export(layout.join(model_dir, "export", name))
        if found is not None:
            return found
    raise UsageError(f"{model_dir}: has no export; let the training end, or give --saved_model")


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    description, exit_codes = (__doc__ or "").replace(PROG, "%(prog)s").split("\n\nExit codes: ")
    result = command.Parser(prog=prog, description=description, epilog=f"Exit codes: {exit_codes}")
    add = result.add_argument
    add("--data_dir", required=True, metavar="DIR", help="the dataset directory")
    add("--model_dir", required=True, metavar="DIR", help="the model directory of the training")
    add("--split", default="eval", choices=("eval", "test", "train"), help="split to evaluate on (default: eval)")
    add("--saved_model", metavar="DIR", help="the export whose weights are evaluated (default: the best one)")
    add(
        "--slice_by",
        nargs="+",
        action="extend",
        default=[],
        metavar="FEATURE",
        help="features by whose values the report divides the rows, as in: workclass sex,race (each combination)",
    )
    add("--eval_steps", type=int, metavar="N", help="evaluate on N batches (default: the complete split)")
    add("--batch_size", type=int, metavar="N", help="rows or images in a batch (default: 2048 rows, 64 images)")
    add("--output", metavar="DIR", help="folder of the report (default: --model_dir)")
    add("--overwrite", action="store_true", help="replace a report of the same split in --output")
    add(
        "--search_inputs",
        action="store_true",
        help="read the inputs again to tell where the rows that were most wrong come from (default: up to 256 MB)",
    )
    add("--trust", action="store_true", help=TRUST_HELP)
    add("--verbose", action="store_true", help=command.VERBOSE_HELP)
    add("--json", action="store_true", help=command.JSON_HELP)
    return result


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses, evaluates, prints the metrics and where the report is, and returns the exit code."""
    return command.run(_run, argv, prog=prog)


def _run(argv: Sequence[str], prog: str) -> command.Report:
    options = vars(parser(prog).parse_args(argv))
    options.pop("json")
    try:
        with interruptible(sigterm=True):
            done = evaluate(**{**options, "slice_by": tuple(options["slice_by"])})
    except KeyboardInterrupt as error:
        how, code = how_ended(error)
        raise command.Interrupted(f"{how}; no report was written", code) from None
    content = done.content
    lines = [*(f"note     {note}" for note in content["notes"])]
    lines += [f"{name:45} {value:.4g}" for name, value in content["metrics"].items() if value is not None]
    lines += [f"{name:45} undefined: {why}" for name, why in content["undefined"].items()]
    lines.append(f"report   {done.report}")
    kept = {name: content[name] for name in ("step", "rows", "metrics", "undefined", "notes", "export")}
    data = {"report": done.report, "report_json": f"{os.path.splitext(done.report)[0]}.json", **kept}
    return command.Report("\n".join(lines), data)


if __name__ == "__main__":
    sys.exit(main())
