"""Checks that a split of a dataset can be read with a model, in training, evaluation and promotion."""

from __future__ import annotations

from schemas.dataset import OpenDataset, layout, read_checked
from schemas.dataset.statistics import read_statistics
from schemas.errors import UsageError
from schemas.spec.differences import difference
from schemas.spec.loader import AnySchema


def check_split(dataset: OpenDataset, split: str) -> None:
    """Refuses a split without examples, and one whose weights are all 0, of which no metric is defined.

    Raises:
      UsageError: names the splits that there are.
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
    """The largest value of a feature in a split; None where the dataset has no statistics of it."""
    if read_checked(dataset.path).path_of(dataset.path, layout.STATISTICS_JSON) is None:
        return None
    features = read_statistics(dataset.path)["features"]
    return next((item["splits"].get(split, {}).get("max") for item in features if item["name"] == name), None)


def check_schema(export: str, schema: AnySchema, dataset: OpenDataset, advice: str) -> None:
    """Refuses an export of another schema than the dataset's.

    Raises:
      UsageError: ends in the advice.
    """
    if dataset.declared.fingerprint != schema.fingerprint:
        difference_text = difference(schema, dataset.declared, called=("the model", "the data"))
        raise UsageError(
            f"{export}: was trained with another schema than that of {dataset.path} ({difference_text}); {advice}"
        )
