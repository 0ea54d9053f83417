"""Describes the measured CSV files to the rivals, which read no schema files.

Each table has the features of the schema of the same name. Every rival writes these columns in its own way; only the
one with tf.Transform writes crosses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

How = Literal["z_score", "log", "scale"] | tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NumericVector:
    """Columns, first to last, that make one float vector, and its transform; numbers are the bounds of buckets."""

    first: int
    last: int
    how: How = "z_score"

    @property
    def columns(self) -> range:
        return range(self.first, self.last + 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A CSV file, column by column.

    Attributes:
      columns: the names of all columns.
      header: whether the first line contains them.
      spaced: whether fields are separated by ', '.
      numeric: vectors by the feature's name.
      one_hot: first and last column of each one-hot group; the feature is the index of the 1.
      text: the columns of words; the feature is the word's index in a vocabulary.
      crosses: columns of words that are hashed together, and the number of buckets.
      label: the label's feature name.
      label_column: the label's column, the last or the first.
      labels: its values; the feature is the value's index.
    """

    columns: tuple[str, ...]
    header: bool = False
    spaced: bool = False
    numeric: Mapping[str, NumericVector]
    one_hot: Mapping[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    text: Mapping[str, int] = dataclasses.field(default_factory=dict)
    crosses: Mapping[str, tuple[tuple[str, ...], int]] = dataclasses.field(default_factory=dict)
    label: str
    label_column: int
    labels: tuple[str, ...]


_CENSUS = [
    *("age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship"),
    *("race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "ltgt50k"),
]
_WORDS = ("workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country")


def _one(column: str, how: How) -> NumericVector:
    at = _CENSUS.index(column)
    return NumericVector(first=at, last=at, how=how)


TABLES = {
    "covertype": Table(
        columns=tuple(f"c{i}" for i in range(55)),
        numeric={"terrain": NumericVector(first=0, last=9)},
        one_hot={"wilderness_area": (10, 13), "soil_type": (14, 53)},
        label="cover_type",
        label_column=54,
        labels=tuple("1234567"),
    ),
    "census": Table(
        columns=tuple(_CENSUS),
        spaced=True,
        numeric={
            "age": _one("age", (18, 21, 24, 27, 30, 33, 36, 40, 45, 50, 55, 60, 65, 70)),
            "education_num": _one("education_num", "z_score"),
            "capital_gain": _one("capital_gain", "log"),
            "capital_loss": _one("capital_loss", "log"),
            "hours_per_week": _one("hours_per_week", "z_score"),
        },
        text={name: _CENSUS.index(name) for name in _WORDS},
        crosses={
            "education_x_occupation": (("education", "occupation"), 1000),
            "relationship_x_occupation": (("relationship", "occupation"), 500),
            "age_x_education_x_relationship": (("age", "education", "relationship"), 5000),
        },
        label="income",
        label_column=14,
        labels=("<=50K", ">50K"),
    ),
    "mnist": Table(
        columns=("label", *(f"pixel{i}" for i in range(784))),
        header=True,
        numeric={"pixels": NumericVector(first=1, last=784, how="scale")},
        label="digit",
        label_column=0,
        labels=tuple("0123456789"),
    ),
}
