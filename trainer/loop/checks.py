"""Refuses a training whose options or data do not fit, before TensorFlow is started, which takes seconds."""

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
    """Checks what needs no dataset.

    Raises:
      UsageError: no such model, hyper-parameter, cluster or bucket, or a model directory that TensorFlow cannot use or
        that is in a dataset.
    """
    if options.model is not None:  # else it is chosen by the data, and checked then
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
    """Checks the model, and the flags that it does not take.

    Raises:
      UsageError: no such model or hyper-parameter, or a flag of models that train in steps for one that does not.
    """
    check_model(options)
    if is_grown(options.model):
        check_growing(options)


def check_model_dir(path: str, flag: str = "--model_dir") -> None:
    """Refuses a path where no model directory can be.

    Raises:
      UsageError: it is a file, not writable, or in no bucket that there is.
    """
    if not storage.is_local(path):
        storage.listdir(path)
    elif os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"{flag} {path}: is not a folder; use a folder, or a new name to create one")
    else:
        storage.local.check_writable(layout.join(path, layout.MODEL_JSON))


def check_data(dataset: OpenDataset, options: TrainingPlan) -> None:
    """Checks that the dataset has what the options ask for.

    Raises:
      UsageError: a split without examples, or images, or features, that it does not have; a model of other data; or a
        metric that no evaluation has.
    """
    if options.model in BUILT_IN:  # before anything is written: the directory may hold another model
        check_reads(options.model, dataset.declared.examples)
    for split in ("train", *options.evaluated_splits):
        check_split(dataset, split)
    if options.augment and dataset.image_schema is None:
        raise UsageError(f"--augment is for images, but {dataset.path} contains none")
    check_slices(dataset, options.slice_by)
    if options.best_metric is not None and options.model in BUILT_IN:
        _check_metric(dataset, options)


def _check_metric(dataset: OpenDataset, options: TrainingPlan) -> None:
    classes = classes_of(dataset.path, dataset.manifest, dataset.declared)
    if classes is None and isinstance(dataset.schema.label, CategoryLabel):
        return  # only the transform's graph knows them
    weights = (options.label or AS_IT_IS).class_weights
    if classes and options.label is None and BUILT_IN[options.model].scales_label and asks_for_class_weights(dataset):
        weights = (1.0,) * len(classes)  # they are measured later
    best_metric(dict.fromkeys(metric_names(classes, weights)), options.best_metric)


def asks_for_class_weights(dataset: OpenDataset) -> bool:
    """Returns whether the schema has `class_weights`."""
    label = None if dataset.image_schema is not None else dataset.schema.label
    return isinstance(label, CategoryLabel) and label.class_weights is not None


def check_slices(dataset: OpenDataset, slice_by: tuple[str, ...]) -> None:
    """Refuses to slice by what is no feature of the schema, before anything is trained.

    Raises:
      UsageError: names the feature, and those that there are.
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
