"""Evaluates a trained model on a split, and writes a report.

    python -m trainer.evaluate --data_dir out/ --model_dir model/ --split test --slice_by workclass sex,race

The weights are those of the best export, or of another one (--saved_model). Beside its own metrics, the report has
slices, the rows that were most wrong, and the importance of features. It is written into --output as
report-<split>.html, report-<split>.json and the folder report-<split>; existing ones are replaced.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from typing import Any

from schemas import command, storage
from schemas.command import Options, option
from schemas.dataset import Dataset, layout, open_dataset
from schemas.errors import UsageError
from schemas.exports.model import check_export
from schemas.exports.notes import trained_export
from schemas.graphs.check import TRUST_HELP
from schemas.interrupts import interruptible
from schemas.storage.gcs_access import check_tensorflow
from trainer.loop.checks import check_model_dir, check_slices
from trainer.loop.plan import recorded_plan
from trainer.model_dir.model_json import Training, read_model_manifest
from trainer.spec.options import SPLITS, TrainingPlan, check_schema, check_split
from trainer.start import start_tensorflow

PROG = "python -m trainer.evaluate"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation gave.

    Attributes:
      report: the page's path.
      content: what it says, as in `report-<split>.json`.
    """

    report: str
    content: dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """What is evaluated, on what, and where the report goes."""

    data_dir: str = option("the dataset directory", metavar="DIR")
    model_dir: str = option("the model directory of the training", metavar="DIR")
    split: str = option("split to evaluate on (default: eval)", "eval", choices=SPLITS)
    saved_model: str | None = option(
        "the export whose weights are evaluated (default: the best one)", None, metavar="DIR"
    )
    slice_by: tuple[str, ...] = option(
        "features by whose values the report divides the rows, as in: workclass sex,race (each combination)",
        (),
        metavar="FEATURE",
    )
    eval_steps: int | None = option("evaluate on N batches (default: the complete split)", None)
    batch_size: int | None = option("rows or images in a batch (default: 2048 rows, 64 images)", None)
    output: str | None = option("folder of the report (default: --model_dir)", None, metavar="DIR")
    overwrite: bool = option("replace a report of the same split in --output", False)
    search_inputs: bool = option(
        "read the inputs again to tell where the rows that were most wrong come from (default: up to 256 MB)", False
    )
    trust: bool = option(TRUST_HELP, False)
    verbose: bool = option(command.VERBOSE_HELP, False)


def evaluate(options: EvaluateOptions) -> Evaluation:
    """Evaluates an export's weights on a split, and writes the report.

    Raises:
      UsageError: no such model, export, split or feature, or data of another schema.
      MillraceError: the dataset or the export cannot be read.
    """
    dataset = open_dataset(options.data_dir, trust=options.trust)
    training = _training(options.model_dir)
    export = (options.saved_model or trained_export(options.model_dir)).rstrip("/")
    schema, _ = check_export(export, trust=True)  # only its variables are loaded
    check_schema(export, schema, dataset, "give a dataset of the same schema")
    split = options.split
    check_split(dataset, split)
    folder = options.output or options.model_dir
    images = dataset.image_schema is not None
    plan = recorded_plan(training, options.model_dir, images=images)
    read = TrainingPlan(
        **{**dict(plan), "batch_size": options.batch_size or plan.batch_size},
        data_dir=options.data_dir,
        model_dir=folder,
        model=training.model,
        eval_split=split,
        eval_steps=options.eval_steps,
        slice_by=options.slice_by,
    )
    check_tensorflow(folder)
    check_model_dir(folder)
    if options.output is not None:
        storage.check_output(layout.join(options.output, f"report-{split}.json"), overwrite=options.overwrite)
    check_slices(dataset, options.slice_by)
    start_tensorflow(verbose=options.verbose)
    return _evaluated(dataset, read, options.model_dir, export, search_inputs=options.search_inputs)


def _evaluated(
    dataset: Dataset, options: TrainingPlan, model_dir: str, export: str, *, search_inputs: bool
) -> Evaluation:
    from trainer.data.input_fn import input_fn
    from trainer.data.input_options import input_options
    from trainer.evaluation.page import draw_all, write_report
    from trainer.evaluation.report import Evaluated, full
    from trainer.evaluation.watch import Budget, Watch
    from trainer.export.outputs import restore_estimator
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
        raise UsageError(f"{model_dir}: is not a model directory of millrace train: it has no model.json")
    return manifest.current


def _run(options: EvaluateOptions, prog: str) -> command.Report:
    with command.when_interrupted("no report was written"), interruptible(sigterm=True):
        done = evaluate(options)
    content = done.content
    lines = [*(f"note     {note}" for note in content["notes"])]
    lines += [f"{name:45} {value:.4g}" for name, value in content["metrics"].items() if value is not None]
    lines += [f"{name:45} undefined: {why}" for name, why in content["undefined"].items()]
    lines.append(f"report   {done.report}")
    kept = {name: content[name] for name in ("step", "rows", "metrics", "undefined", "notes", "export")}
    data = {"report": done.report, "report_json": f"{os.path.splitext(done.report)[0]}.json", **kept}
    return command.Report("\n".join(lines), data)


COMMAND = command.Command(prog=PROG, options=EvaluateOptions, work=_run, description=__doc__ or "")
parser, main = COMMAND.parser, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
