"""Checks that a split of a dataset can be used with a model, for training, evaluation and promotion."""

from __future__ import annotations

from schemas.dataset import OpenDataset, layout, read_checked
from schemas.dataset.statistics import read_statistics
from schemas.errors import UsageError
from schemas.spec.differences import difference
from schemas.spec.loader import AnySchema


def check_split(dataset: OpenDataset, split: str) -> None:
    """Refuses a split without examples, or with weights that are all 0, because metrics would be undefined.

    Raises:
      UsageError: names the splits that the dataset has.
    """
    if split not in dataset.splits or not dataset.rows(split):
        raise UsageError(
            f"{dataset.path}: no examples in split {split!r}; it has {', '.join(dataset.splits)}. The schema's "
            "`split:` says which share of the records each split gets; change it, and preprocess them again"
        )
    weight = dataset.schema.weight if dataset.image_schema is None else None
    if weight is not None and _largest(dataset, weight.name, split) == 0:
        raise UsageError(
            f"{dataset.path}: the weight {weight.name!r} is 0 in all {dataset.rows(split):,} records of split "
            f"{split!r}, so that none of them counts; correct the weights, and preprocess them again, or name another "
            f"split of {', '.join(dataset.splits)}"
        )


def _largest(dataset: OpenDataset, name: str, split: str) -> float | None:
    """Returns the largest value of a feature in a split; None if the dataset has no statistics of the feature."""
    if read_checked(dataset.path).path_of(dataset.path, layout.STATISTICS_JSON) is None:
        return None
    features = read_statistics(dataset.path)["features"]
    return next((item["splits"].get(split, {}).get("max") for item in features if item["name"] == name), None)


def check_schema(export: str, schema: AnySchema, dataset: OpenDataset, advice: str) -> None:
    """Refuses an export that was trained with another schema than the dataset's.

    Args:
      export: the path of the export, for the message.
      schema: the schema of the export.
      dataset: the dataset.
      advice: the end of the message.

    Raises:
      UsageError: the schemas differ.
    """
    if dataset.declared.fingerprint != schema.fingerprint:
        difference_text = difference(schema, dataset.declared, called=("the model", "the data"))
        raise UsageError(
            f"{export}: was trained with another schema than that of {dataset.path} ({difference_text}); {advice}"
        )
