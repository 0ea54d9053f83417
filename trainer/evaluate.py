"""Evaluates a trained model on a split, and writes a report.

    python -m trainer.evaluate --data_dir out/ --model_dir model/ --split test --slice_by workclass sex,race

The weights are those of the best export, or of the one that is given. Beside its own metrics, the report has
slices, the rows that were most wrong, and the importance of features. It is written into --output as
report-<split>.html, report-<split>.json and predictions-<split>.arrow; those in the model directory are replaced,
others only with --overwrite.

With --compare_with, a second model is evaluated on the same rows, and compared-<split>.html shows both.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from schemas import command, storage
from schemas.dataset import OpenDataset, layout, open_dataset
from schemas.errors import UsageError
from schemas.exports.model import check_export
from schemas.exports.notes import EXPORT_HELP, export_of
from schemas.graphs.check import TRUST_HELP
from schemas.interrupts import interruptible
from schemas.options import VERBOSE_HELP, Options, option
from schemas.storage.gcs_access import check_tensorflow
from trainer.loop.checks import check_model_dir, check_slices
from trainer.model_dir.model_json import RecordedTraining, model_dir_of, read_model_manifest
from trainer.spec.dataset_checks import check_schema, check_split
from trainer.spec.metrics import figure
from trainer.spec.options import SPLITS, TrainingPlan
from trainer.spec.task_spec import AS_IT_IS
from trainer.start import start_tensorflow

if TYPE_CHECKING:
    from trainer.evaluation.report import Evaluated

PROG = "python -m trainer.evaluate"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """What an evaluation gave.

    Attributes:
      report: the page's path.
      content: what it says, as in `report-<split>.json`.
      compared: the path of the page of two models; None: there is one.
      verdict: its first sentence.
    """

    report: str
    content: dict[str, Any]
    compared: str | None = None
    verdict: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Options):
    """What is evaluated, on what, and where the report goes."""

    data_dir: str = option("the dataset directory", metavar="DIR")
    model_dir: str = option(EXPORT_HELP, metavar="DIR", check=storage.check_addresses)
    split: str = option("split to evaluate on (default: eval)", "eval", choices=SPLITS)
    saved_model: str | None = option(
        "the export whose weights are evaluated, if it lies elsewhere",
        None,
        metavar="DIR",
        check=storage.check_addresses,
    )
    compare_with: str | None = option(
        "another one, named like --model_dir: a page shows both on the same rows",
        None,
        metavar="DIR",
        check=storage.check_addresses,
    )
    slice_by: tuple[str, ...] = option(
        "features by whose values the report divides the rows, as in: workclass sex,race (each combination)",
        (),
        metavar="FEATURE",
    )
    eval_steps: int | None = option("evaluate on N batches (default: the complete split)", None)
    batch_size: int | None = option("rows or images in a batch (default: 2048 rows, 64 images)", None)
    output: str | None = option("folder of the report (default: the training's directory)", None, metavar="DIR")
    overwrite: bool = option("replace a report of the same split in --output", False)
    trust: bool = option(TRUST_HELP, False)
    verbose: bool = option(VERBOSE_HELP, False)


def evaluate(options: EvaluateOptions) -> Evaluation:
    """Evaluates an export's weights on a split, and writes the report.

    Raises:
      UsageError: no such model, export, split or feature, or data of another schema.
      MillraceError: the dataset or the export cannot be read.
    """
    dataset = open_dataset(options.data_dir, trust=options.trust)
    advice = "; give that directory, and the export as --saved_model"
    models = [_model(dataset, options.model_dir, options.saved_model, advice)]
    if options.compare_with is not None:
        models.append(_model(dataset, options.compare_with))
    split, folder = options.split, options.output or models[0].model_dir
    check_split(dataset, split)
    check_tensorflow(folder)
    flag = "--model_dir" if options.output is None else "--output"
    check_model_dir(folder, flag)
    if options.output is not None:
        layout.check_outside(folder, f"{flag} ", layout.MANIFEST, itself=True)
        for page in (f"report-{split}.json", *([f"compared-{split}.html"] if options.compare_with else [])):
            storage.check_output(layout.join(folder, page), overwrite=options.overwrite)
    check_slices(dataset, options.slice_by)
    plans = [_plan(dataset, model, options, folder) for model in models]
    start_tensorflow(verbose=options.verbose)
    from trainer.evaluation import report, versus
    from trainer.evaluation.page import predictions_path, write_report

    with _evaluating(dataset, plans[0], models[0]) as evaluated:
        path = predictions_path(folder, split)
        content = report.full(evaluated, slice_by=options.slice_by, predictions_path=path)
    content["export"] = models[0].export
    page = write_report(folder, split, content)
    if len(models) == 1:
        return Evaluation(page, content)
    with _evaluating(dataset, plans[1], models[1]) as other:
        other_content = {**report.summary(other), "export": models[1].export}
    names = _names(*models)
    first = versus.ComparedModel(names[0], content, evaluated.predictions)
    second = versus.ComparedModel(names[1], other_content, other.predictions)
    return Evaluation(page, content, versus.write_page(folder, split, first, second), versus.verdict(first, second))


@dataclasses.dataclass(frozen=True)
class _Model:
    """What is evaluated: an export's weights, in the model of a model directory."""

    model_dir: str
    export: str
    training: RecordedTraining

    @property
    def checkpoint(self) -> str:
        """The export's weights, as a checkpoint."""
        return layout.join(self.export, "variables", "variables")


def _model(dataset: OpenDataset, path: str, saved_model: str | None = None, advice: str = "") -> _Model:
    from schemas.exports.words import differing_words

    export = export_of(saved_model or path)
    model_dir = model_dir_of(path)
    if model_dir is None or (manifest := read_model_manifest(model_dir)) is None:
        raise UsageError(f"{path}: lies in no model directory of millrace train, so its network is not known{advice}")
    schema, _ = check_export(export, trust=True)  # only its variables are loaded
    check_schema(export, schema, dataset, "give a dataset of the same schema")
    if differences := differing_words(export, dataset):
        raise UsageError(
            f"{export}: does not fit {dataset.path}: {'; '.join(differences)}. Evaluate it on the dataset that it was "
            "trained on, or write this one with preprocess --transform_from, which keeps that one's classes and words."
        )
    return _Model(model_dir, export, manifest.current)


def _names(first: _Model, second: _Model) -> tuple[str, str]:
    """What two models are called: by the folders that differ."""
    folders = (model.model_dir.rstrip("/") for model in (first, second))
    ends = tuple(os.path.basename(os.path.abspath(path) if storage.is_local(path) else path) for path in folders)
    if ends[0] != ends[1]:
        return ends[0], ends[1]
    paths = tuple("/".join(model.export.split("/")[-2:]) for model in (first, second))
    return (paths[0], paths[1]) if paths[0] != paths[1] else (first.export, second.export)


def _plan(dataset: OpenDataset, model: _Model, options: EvaluateOptions, folder: str) -> TrainingPlan:
    plan = model.training.plan
    return TrainingPlan(
        **{**dict(plan), "batch_size": options.batch_size or plan.batch_size, "eval_split": options.split},
        data_dir=options.data_dir,
        model_dir=folder,
        model=model.training.model,
        eval_steps=options.eval_steps,
        slice_by=options.slice_by,
    )


@contextlib.contextmanager
def _evaluating(dataset: OpenDataset, plan: TrainingPlan, model: _Model) -> Iterator[Evaluated]:
    """Evaluates a model; its Estimator can be used in the `with` block."""
    from trainer.data.input_fn import input_fn
    from trainer.data.input_options import input_options
    from trainer.evaluation.report import Evaluated
    from trainer.evaluation.watch import Watch, predicted_again
    from trainer.export.outputs import restore_estimator
    from trainer.loop.evaluations import plain_metrics, read_curves

    split, steps, checkpoint = plan.eval_split, plan.eval_steps, model.checkpoint
    reading = input_options(dataset, plan, split=split, mode="eval")
    with tempfile.TemporaryDirectory(prefix="millrace-evaluate-") as scratch:
        watch = Watch(dataset, (plan.label or AS_IT_IS).class_weights)
        estimator = restore_estimator(model.model_dir, dataset, scratch=scratch, watch=watch)
        metrics = plain_metrics(
            estimator.evaluate(
                lambda: input_fn(dataset, split, mode="eval", options=reading), steps=steps, checkpoint_path=checkpoint
            )
        )
        predictions = watch.last
        if predictions is None:
            predictions = predicted_again(estimator, checkpoint, dataset, split, reading, steps=steps)
        curves = read_curves(dataset, dataclasses.replace(plan, model_dir=model.model_dir), training=True)
        if (split, dataset.run) != (model.training.plan.eval_split, model.training.data.run):
            curves = {**curves, "panels": []}  # they are of the rows that the training evaluated
        yield Evaluated(dataset, split, reading, plan.model, estimator, checkpoint, metrics, predictions, curves)


def _run(options: EvaluateOptions, prog: str) -> command.Report:
    with command.when_interrupted("no report was written"), interruptible(sigterm=True):
        done = evaluate(options)
    content = done.content
    lines = [*(f"note     {note}" for note in content["notes"])]
    positive = content.get("positive_class")
    metrics = dict(content["metrics"])
    if positive is not None:
        row = next(row for row in content["classes"] if row["class"] == positive)
        metrics[f'precision of "{positive}"'], metrics[f'recall of "{positive}"'] = row["precision"], row["recall"]
        metrics[f'average_precision of "{positive}"'] = metrics.pop("average_precision")
    lines += [f"{name:45} {figure(value)}" for name, value in metrics.items() if value is not None]
    lines += [f"{name:45} undefined: {why}" for name, why in content["undefined"].items()]
    if done.compared is not None:
        lines += [f"compared {done.verdict}", f"page     {done.compared}"]
    lines.append(f"report   {done.report}")
    summary = {name: content[name] for name in ("step", "rows", "metrics", "undefined", "notes", "export")}
    data = {"report": done.report, "report_json": f"{os.path.splitext(done.report)[0]}.json", **summary}
    if done.compared is not None:
        data |= {"compared": done.compared, "verdict": done.verdict}
    return command.Report("\n".join(lines), data)


COMMAND = command.Command(prog=PROG, options=EvaluateOptions, work=_run, description=__doc__ or "")
app, main = COMMAND.app, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
