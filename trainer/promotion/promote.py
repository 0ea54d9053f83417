"""Promotes an export: checks it, scores it beside the one in service, and puts it in service or says why not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from schemas import storage
from schemas.dataset import OpenDataset, layout, open_dataset
from schemas.errors import UsageError, counted
from schemas.exports.model import ServedModel, check_export
from schemas.exports.notes import ExportNotes, export_of, read_notes
from schemas.spec.differences import difference
from schemas.spec.features import CategoryLabel
from schemas.spec.forms import PromoteRules
from schemas.spec.loader import AnySchema, load_schema
from schemas.spec.table import Schema
from trainer.evaluation.metrics import CLASS_METRICS, VALUE_METRICS
from trainer.model_dir.model_json import model_dir_of, read_model_manifest
from trainer.promotion.gate import Decision, Judgement, Outcome, default_metrics, digest_of, judge
from trainer.promotion.options import PromoteOptions
from trainer.promotion.serving_folder import ServingFolder
from trainer.spec.dataset_checks import check_schema, check_split
from trainer.start import start_tensorflow

if TYPE_CHECKING:
    from trainer.evaluation.scoring import EvalRows, Scored

Say = Callable[[str], None]


def promote(options: PromoteOptions, *, verified: bool = False, say: Say = lambda text: None) -> Decision:
    """Promotes an export, or refuses it; the decision is logged in the folder that is served.

    Args:
      options: what, where to, and what decides.
      verified: skip the parity check: this process has just made it.
      say: called with what is being done.

    Raises:
      UsageError: no such export or dataset, or exports that cannot be compared.
      MillraceError: the export fails a check, the rows cannot be read, or another export was promoted meanwhile.
    """
    export = export_of(options.export or "")
    schema, notes = check_export(export, trust=True)  # its graph is checked below, unless it is in service
    serving = ServingFolder(options.to)
    current = serving.current()
    if current is not None and os.path.realpath(serving.folder(current)) == os.path.realpath(export):
        raise UsageError(f"{export}: is in service already")
    digest = digest_of(notes)
    decision = Decision("promoted", export, digest, serving.path, None, current, ())
    if current is not None and digest_of(read_notes(serving.folder(current))[1]) == digest:
        return dataclasses.replace(decision, outcome="unchanged", version=current)
    if not options.trust:
        from schemas.graphs.check import check_graph

        check_graph(export)
    model_dir = model_dir_of(export)
    dataset = _dataset(options, export, model_dir)
    check_schema(export, schema, dataset, "give --data_dir: the dataset that it was trained on")
    check_split(dataset, options.split)
    rules = _rules(options, schema)
    start_tensorflow(verbose=options.verbose)
    parity_notes = [] if verified else _check_parity(export, notes, model_dir, dataset, say)
    scored, rows = _scored(decision, options, dataset, rules, say)
    judgement = judge(scored, rules, options.metrics or default_metrics(scored.classes), options.margins)
    scored_rows = {"rows": len(scored.answered[0]), "of": rows.expected}
    data = {"path": dataset.path, "run": dataset.run, "split": options.split, **scored_rows}
    decision = dataclasses.replace(decision, data=data, notes=(*parity_notes, *rows.notes, *judgement.notes))
    decision = _decided(decision, judgement, options)
    if decision.outcome != "promoted":
        serving.log(decision.record())
        return decision
    say("copying the export")
    with serving.copied(export) as aside:
        version = serving.publish(aside, decision.record(), after=current, keep=options.keep)
    return dataclasses.replace(decision, version=version)


def roll_back(options: PromoteOptions) -> Decision:
    """Puts the export of an earlier version in service again, as a new version.

    Raises:
      UsageError: there is no such version.
      MillraceError: its files differ from its checksums, or another version was put in service meanwhile.
    """
    serving = ServingFolder(options.to)
    current = serving.current()
    if current is None:
        raise UsageError(f"{serving.path}: nothing is in service")
    earlier = [version for version in serving.versions() if version < serving.origin(current)]
    version = options.to_version if options.to_version is not None else max(earlier, default=None)
    if version is None:
        raise UsageError(f"{serving.path}: there is no version before {serving.origin(current)} to return to")
    if version not in serving.versions() or version == current:
        choices = ", ".join(str(v) for v in serving.versions() if v != current) or "none"
        raise UsageError(f"{serving.path}: cannot return to version {version}; there are {choices}")
    export = serving.folder(version)
    digest = digest_of(read_notes(export)[1])
    restores = serving.origin(version)
    why = f"version {current} was rolled back to version {restores}"
    decision = Decision("rolled_back", export, digest, serving.path, None, current, (why,), restores=restores)
    with serving.copied(export) as aside:
        number = serving.publish(aside, decision.record(), after=current, keep=options.keep)
    return dataclasses.replace(decision, version=number)


def _dataset(options: PromoteOptions, export: str, model_dir: str | None) -> OpenDataset:
    path = options.data_dir
    if path is None:
        manifest = read_model_manifest(model_dir) if model_dir is not None else None
        if manifest is None:
            raise UsageError(f"{export}: is not in a model directory, so its dataset is not known; give --data_dir")
        path = manifest.current.data.path
        if not storage.exists(layout.join(path, layout.MANIFEST)):
            raise UsageError(
                f"{export}: was trained on the dataset {path}, which is not there; give --data_dir, the folder where "
                "that dataset is now"
            )
    return open_dataset(path, trust=options.trust)


def _rules(options: PromoteOptions, schema: AnySchema) -> PromoteRules:
    if options.schema is not None:
        file_schema = load_schema(options.schema)
        if file_schema.fingerprint != schema.fingerprint:
            difference_text = difference(schema, file_schema, called=("the model", "this file"))
            raise UsageError(
                f"{options.schema}: declares other data than the schema of {options.export}: {difference_text}"
            )
        schema = file_schema
    rules = schema.promote if isinstance(schema, Schema) else PromoteRules()
    metric_names: tuple[str, ...] = CLASS_METRICS
    if isinstance(schema, Schema) and not isinstance(schema.label, CategoryLabel):
        metric_names = VALUE_METRICS
    for name in (*rules.thresholds, *options.metrics, *filter(None, options.margins)):
        if name not in metric_names:
            raise UsageError(f"{name}: is not a metric of this label; it has {', '.join(metric_names)}")
    margin = options.margins.get("")
    return rules if margin is None else rules.model_copy(update={"margin": margin})


def _check_parity(export: str, notes: ExportNotes, model_dir: str | None, dataset: OpenDataset, say: Say) -> list[str]:
    """Compares the export with its Estimator on the dataset's records, where that is possible; else why it is not."""
    made = "that was checked when it was exported"
    if model_dir is None:
        return [f"not compared with its Estimator, since no model.json is three folders above it; {made}"]
    if notes.dataset_run not in dataset.manifest.runs:
        return [f"not compared with its Estimator, since {dataset.path} was measured anew since; {made}"]
    from trainer.export.skew_check import check_saved_model

    say("comparing the export with its Estimator")
    check_saved_model(dataset, export, model_dir)
    return []


def _scored(
    decision: Decision, options: PromoteOptions, dataset: OpenDataset, rules: PromoteRules, say: Say
) -> tuple[Scored, EvalRows]:
    """Scores the export and the one in service on the same rows, and returns these rows, too."""
    from trainer.evaluation.scoring import ScoredExport, eval_images, eval_rows, score

    split, images = options.split, dataset.image_schema
    rows = (
        eval_rows(dataset, split, options.eval_input)
        if images is None
        else eval_images(dataset, images, split, options.eval_input)
    )
    classes = images is not None or isinstance(dataset.schema.label, CategoryLabel)
    serving = ServingFolder(options.to)
    paths = [decision.export, *([serving.folder(decision.against)] if decision.against is not None else [])]
    say(f"scoring {counted(len(paths), 'exports')} on the raw rows of the split {options.split!r}")
    with contextlib.ExitStack() as stack:
        exports = []
        for path in paths:
            schema, notes = read_notes(path)
            if bool(notes.classes) != classes:
                raise UsageError(f"{path}: predicts something else than the label of {dataset.path}")
            if images is None and isinstance(schema, Schema) and schema.split != dataset.schema.split:
                note = f"{path} was trained with another split: it may have seen some of these rows"
                rows = dataclasses.replace(rows, notes=(*rows.notes, note))
            model = stack.enter_context(ServedModel(path, trust=options.trust))
            exports.append(ScoredExport(path, schema, notes.classes, model))
        return score(exports, rows, rules.slices), rows


def _decided(decision: Decision, judgement: Judgement, options: PromoteOptions) -> Decision:
    """What becomes of the export; with `--force`, it is promoted all the same."""
    decision = dataclasses.replace(decision, metrics=judgement.metrics, slices=judgement.slices)
    if not judgement.refusals and options.if_undecided == "accept":
        return dataclasses.replace(decision, notes=(*decision.notes, *(f"undecided: {d}" for d in judgement.doubts)))
    reasons = (*judgement.refusals, *judgement.doubts)
    if not reasons:
        return decision
    outcome: Outcome = "promoted" if options.force else "refused" if judgement.refusals else "undecided"
    return dataclasses.replace(decision, outcome=outcome, reasons=reasons, forced=options.force)
