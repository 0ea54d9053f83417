"""What the canned models share: the choice of classifier or regressor, and ids prepared for feature columns."""

from __future__ import annotations

from typing import Any

from schemas.errors import MillraceError
from trainer.estimator import tf_estimator
from trainer.models.feature_columns import prepare
from trainer.spec.problem import Problem


def label_settings(problem: Problem) -> dict[str, Any]:
    """Keyword arguments of a canned Estimator that follow from the label."""
    settings: dict[str, Any] = {"weight_column": problem.weight}
    if problem.classes is not None:
        settings["n_classes"] = problem.classes
    return settings


def with_prepared_ids(estimator: Any, problem: Problem) -> Any:
    """The same Estimator, its features brought into the form that feature columns read (see `columns.prepare`)."""

    def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
        return estimator.model_fn(prepare(features, problem.inputs), labels, mode, config)

    return tf_estimator.Estimator(model_fn, config=estimator.config)


def classes_of(problem: Problem, model: str) -> int:
    """The number of classes.

    Raises:
      MillraceError: the label is a number.
    """
    if problem.classes is None:
        raise MillraceError(
            f"model {model!r} is for classification, but the label {problem.label!r} is a number; use dnn or linear"
        )
    return problem.classes
