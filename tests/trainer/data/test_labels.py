"""Which of two classes binary metrics are of."""

from __future__ import annotations

import dataclasses

import pytest

from schemas.errors import UsageError
from trainer.data.labels import positive_class
from trainer.export.outputs import classes_of


def test_binary_metrics_are_of_the_rarer_class_or_the_one_that_the_schema_names(late) -> None:
    def named(positive: str | None) -> str:
        label = late.schema.label.model_copy(update={"positive": positive})
        dataset = dataclasses.replace(late, declared=late.schema.model_copy(update={"label": label}))
        classes = classes_of(late)
        return classes[positive_class(dataset, classes)]

    assert named(None) == "yes"  # of 300 rows, 139
    assert named("no") == "no"
    with pytest.raises(UsageError, match=r"'yess' is no class of the label; did you mean yes\?; it has "):
        named("yess")
