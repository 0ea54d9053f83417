"""How a person who knows the data would declare each column of some real files: what `millrace init` is compared with.

Written before the code that guesses, from each file's own description. A declaration is a kind, for numbers with their
transform where it is not z_score; `label` stands before the label's. A person names the label, and the rest is guessed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "tables"

Column = str | int | range | tuple[str, ...]  # a header's name, a position, or several of them


@dataclasses.dataclass(frozen=True)
class ByHand:
    """A file of `MILLRACE_TEST_DATA`, or of `tests/fixtures/tables`, and a person's declarations of its columns."""

    file: str
    label: str | None
    columns: Mapping[Column, str]
    in_fixtures: bool = False


COVERTYPE = ByHand(
    "covertype/covertype_100k.csv.gz",
    None,
    {
        range(10): "numeric",
        range(10, 14): "one_hot",  # wilderness areas
        range(14, 54): "one_hot",  # soil types
        54: "label category",
    },
)

CENSUS = ByHand(
    "census/adult.data",
    "ltgt50k",
    {
        "age": "numeric",
        "workclass": "category",
        "fnlwgt": "ignore",  # a sampling weight, and nothing about the person
        "education": "category",
        "education_num": "numeric",
        "marital_status": "category",
        "occupation": "category",
        "relationship": "category",
        "race": "category",
        "sex": "category",
        "capital_gain": "numeric log",
        "capital_loss": "numeric log",
        "hours_per_week": "numeric",
        "native_country": "category",
        "ltgt50k": "label category",
    },
)

MNIST = ByHand(
    "mnist/mnist_10k.csv.gz",
    None,
    {"label": "label category", tuple(f"pixel{i}" for i in range(784)): "numeric scale"},
)

TITANIC = ByHand(
    "titanic/titanic.csv",
    "survived",
    {
        "pclass": "category",
        "survived": "label category",
        "name": "key",
        "sex": "category",
        "age": "numeric",
        "sibsp": "numeric log",
        "parch": "numeric log",
        "ticket": "ignore",
        "fare": "numeric log",
        "cabin": "ignore",  # missing for three in four
        "embarked": "category",
        "boat": "ignore",  # who has one was saved
        "body": "ignore",  # who has one died
        "home.dest": "ignore",  # mostly one of a kind
    },
)

PENGUINS = ByHand(
    "penguins-raw.csv",
    "Species",
    {
        "studyName": "category",
        "Sample Number": "ignore",  # counts the samples of a species
        "Species": "label category",
        "Region": "ignore",  # always Anvers
        "Island": "category",
        "Stage": "ignore",  # always Adult, 1 Egg Stage
        "Individual ID": "ignore",  # an identifier, which two or three rows share
        "Clutch Completion": "bool",
        "Date Egg": "ignore",  # a date, which the schema cannot read
        "Culmen Length (mm)": "numeric",
        "Culmen Depth (mm)": "numeric",
        "Flipper Length (mm)": "numeric",
        "Body Mass (g)": "numeric",
        "Sex": "category",
        "Delta 15 N (o/oo)": "numeric",
        "Delta 13 C (o/oo)": "numeric",
        "Comments": "ignore",  # missing for five in six
    },
    in_fixtures=True,
)

ANES96 = ByHand(
    "anes96.csv",
    "vote",
    {
        "popul": "numeric log",  # of the place, in thousands: 0 to 7,300
        "TVnews": "numeric",  # times a week
        ("selfLR", "ClinLR", "DoleLR", "PID"): "numeric",  # scales from left to right
        "age": "numeric",
        "educ": "numeric",  # levels, in order
        "income": "numeric",  # brackets, in order
        "vote": "label category",
    },
    in_fixtures=True,
)

MODECHOICE = ByHand(
    "modechoice.csv",
    "choice",
    {
        "individual": "ignore",  # a number for each traveller, who has four rows
        "mode": "category",  # air, train, bus, car
        "choice": "label category",
        ("ttme", "invc", "invt", "gc"): "numeric",  # minutes and dollars
        "hinc": "numeric",
        "psize": "numeric",
    },
    in_fixtures=True,
)

# The files of csv-spectrum hold one to three records each, and no label: the last column that is always there.
_SPECTRUM: tuple[tuple[str, Mapping[Column, str]], ...] = (
    ("simple", {("a", "b"): "numeric", "c": "label numeric"}),
    ("simple_crlf", {("a", "b"): "numeric", "c": "label numeric"}),
    ("utf8", {("a", "b"): "numeric", "c": "label category"}),
    ("newlines", {"a": "category", "b": "numeric", "c": "label numeric"}),
    ("newlines_crlf", {"a": "category", "b": "numeric", "c": "label numeric"}),
    ("quotes_and_newlines", {"a": "numeric", "b": "label category"}),
    ("escaped_quotes", {"a": "numeric", "b": "label category"}),
    ("empty", {"a": "label numeric", ("b", "c"): "numeric"}),
    ("empty_crlf", {"a": "label numeric", ("b", "c"): "numeric"}),
    ("json", {"key": "numeric", "val": "label category"}),
    ("comma_in_quotes", {("first", "last", "address", "city"): "category", "zip": "label category"}),
    (
        "location_coordinates",
        {
            "Contact Phone Number": "ignore",
            ("Location Coordinates", "Cities"): "category",
            "Counties": "label category",
        },
    ),
)
SPECTRUM = tuple(ByHand(f"csv_spectrum/csvs/{name}.csv", None, columns) for name, columns in _SPECTRUM)

TABLES = (COVERTYPE, CENSUS, MNIST, TITANIC, PENGUINS, ANES96, MODECHOICE)
