"""Which of two classes binary metrics are of."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from schemas.dataset import layout
from schemas.errors import UsageError
from tests.support.datasets import written_rows
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


def test_without_statistics_the_rarer_class_is_counted_in_the_records(tmp_path: Path) -> None:
    schema = """\
name: rare
format: csv
csv: {header: present}
features: [{name: age, kind: numeric}]
label: {name: late, kind: category, values: ["yes", "no"]}
"""
    rows = [f"{i},{'no' if i % 5 else 'yes'}" for i in range(60)]
    dataset = written_rows(tmp_path, schema, "age,late", rows, statistics=False)
    assert dataset.manifest.path_of(dataset.path, layout.STATISTICS_JSON) is None
    assert positive_class(dataset, ("yes", "no")) == 0
