"""Refuses a training whose options or data do not fit, before TensorFlow is imported, which takes seconds."""

from __future__ import annotations

import os

from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.dataset.records import classes_of
from schemas.errors import UsageError
from schemas.spec.features import CategoryLabel
from schemas.storage.gcs_access import check_tensorflow
from trainer.evaluation.metrics import metric_names
from trainer.evaluation.slices import declared_parts
from trainer.loop.boosting import check_growing
from trainer.models import BUILT_IN, is_grown
from trainer.models.selection import check_model, check_reads
from trainer.spec.dataset_checks import check_split
from trainer.spec.metrics import best_metric
from trainer.spec.options import TrainingPlan, TrainOptions
from trainer.spec.task_spec import AS_IT_IS
from trainer.strategies.cluster import VARIABLE, check_cluster


def check_options(options: TrainOptions) -> None:
    """Checks the options that need no dataset.

    Raises:
      UsageError: a model, hyper-parameter, cluster or bucket does not exist, TensorFlow cannot use the path of the
        model directory, or the model directory lies in a dataset.
    """
    if options.model is not None:  # else the data decides on the model, which is then checked
        check_training(options)
    check_cluster(options.strategy)
    if options.profile and os.environ.get(VARIABLE):
        raise UsageError(f"--profile: measures a training in one process; unset {VARIABLE}, or leave out --profile")
    check_tensorflow(options.model_dir)
    check_model_dir(options.model_dir)
    for folder, flag in ((options.model_dir, "--model_dir "), (options.promote_to, "--promote_to ")):
        if folder is not None:
            layout.check_outside(folder, flag, layout.MANIFEST, itself=True)


def check_training(options: TrainOptions) -> None:
    """Checks the model, its hyper-parameters, and the flags that the model does not take.

    Raises:
      UsageError: the model or a hyper-parameter is unknown, or a flag is for models that train in steps but this model
        does not.
    """
    check_model(options)
    if is_grown(options.model):
        check_growing(options)


def check_model_dir(path: str, flag: str = "--model_dir") -> None:
    """Refuses a path at which no model directory can be created.

    Raises:
      UsageError: the path is a file, is not writable, or lies in a bucket that does not exist.
    """
    if not storage.is_local(path):
        storage.listdir(path)
    elif os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"{flag} {path}: is not a folder; use a folder, or a new name to create one")
    else:
        storage.local.check_writable(layout.join(path, layout.MODEL_JSON))


def check_data(dataset: OpenDataset, options: TrainingPlan) -> None:
    """Checks that the dataset has everything that the options need.

    Raises:
      UsageError: a split has no examples, the dataset has no images for --augment or lacks a feature of --slice_by, the
        model cannot read such data, or an evaluation has no such metric.
    """
    if options.model in BUILT_IN:  # checked before the model directory is written, which may hold another model
        check_reads(options.model, dataset.declared.examples)
    for split in ("train", *options.evaluated_splits):
        check_split(dataset, split)
    if options.augment and dataset.image_schema is None:
        raise UsageError(f"--augment is for images, but {dataset.path} contains none")
    check_slices(dataset, options.slice_by)
    if options.best_metric is not None and options.model in BUILT_IN:
        _check_metric(dataset, options)


def _check_metric(dataset: OpenDataset, options: TrainingPlan) -> None:
    """Checks `best_metric` against the metrics that an evaluation will have, if the classes are already known."""
    classes = classes_of(dataset.path, dataset.manifest, dataset.declared)
    if classes is None and isinstance(dataset.schema.label, CategoryLabel):
        return  # only the transform graph has the classes
    weights = (options.label or AS_IT_IS).class_weights
    if classes and options.label is None and BUILT_IN[options.model].scales_label and asks_for_class_weights(dataset):
        weights = (1.0,) * len(classes)  # the actual weights are measured later
    best_metric(dict.fromkeys(metric_names(classes, weights)), options.best_metric)


def asks_for_class_weights(dataset: OpenDataset) -> bool:
    """Returns whether the schema's label has `class_weights`."""
    label = None if dataset.image_schema is not None else dataset.schema.label
    return isinstance(label, CategoryLabel) and label.class_weights is not None


def check_slices(dataset: OpenDataset, slice_by: tuple[str, ...]) -> None:
    """Refuses a name in --slice_by that is not a feature of the schema, before anything is trained.

    Raises:
      UsageError: names the unknown feature, and the features that the schema has.
    """
    if not slice_by:
        return
    if dataset.image_schema is not None:
        raise UsageError(f"--slice_by {slice_by[0]}: {dataset.path} holds images, which have no features to slice by")
    parts = declared_parts(dataset.schema)
    for features_text in slice_by:
        for name in (part.strip() for part in features_text.split(",")):
            if name not in parts:
                raise UsageError(f"--slice_by {features_text}: no feature {name!r}; choose from {', '.join(parts)}")
