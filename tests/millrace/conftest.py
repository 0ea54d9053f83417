"""Datasets that the Python API wrote, shared by a session's tests; none changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import millrace
from schemas.samples.images import write_shapes
from tests.support.csv_datasets import PEOPLE, PEOPLE_HEADER, people_row

ROOT = Path(__file__).parent.parent.parent
Share = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def people_csv(share: Share) -> Path:
    """300 rows of every kind of column, next to their schema, `people.yaml`."""

    def write(folder: Path) -> None:
        (folder / "people.csv").write_text("\n".join([PEOPLE_HEADER, *map(people_row, range(300))]) + "\n")
        (folder / "people.yaml").write_text(PEOPLE)

    return share("api_people_raw", write) / "people.csv"


@pytest.fixture(scope="session")
def people(share: Share, people_csv: Path) -> millrace.Dataset:
    """A dataset of every kind of feature."""
    schema = people_csv.parent / "people.yaml"

    def write(folder: Path) -> None:
        millrace.preprocess(schema=schema, input=people_csv, output=folder / "out", num_shards=2, quiet=True)

    return millrace.Dataset.open(share("api_people", write) / "out")


@pytest.fixture(scope="session")
def shapes(share: Share) -> millrace.Dataset:
    """36 drawn images; the files are in `raw/<class>/`, next to the dataset."""
    schema = ROOT / "schemas" / "shapes.yaml"

    def write(folder: Path) -> None:
        write_shapes(str(folder / "raw"), per_shape=12, seed=1)
        images = [folder / "raw" / "*" / "*"]
        millrace.preprocess(schema=schema, input=images, output=folder / "out", compression="gzip", quiet=True)

    return millrace.Dataset.open(share("api_shapes", write) / "out")
