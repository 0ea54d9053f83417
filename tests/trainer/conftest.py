"""Datasets that the job wrote, and models trained on them, shared by a session's tests; none changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.dataset import OpenDataset
from schemas.samples.tables import write_sample
from tests.support.csv_datasets import (
    NUMBERS,
    PEOPLE,
    PEOPLE_HEADER,
    REMARKS,
    WAGES,
    people_row,
    remark_row,
)
from tests.support.datasets import Folder, written, written_rows
from tests.support.drawn_datasets import write_colors, write_patterns, write_stripes
from tests.support.training import TrainedModel, brief_config, measured, train_own
from trainer import task
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.export.exporters import CheckedExport
from trainer.models import BUILT_IN
from trainer.spec.task_spec import read_task_spec

ROOT = Path(__file__).parent.parent.parent

# What takes seconds to build: whatever needs one of these is slow.
SLOW = {"titanic", "colors", "stripes", "patterns", "titanic_model", "stripes_model", "patterns_model"}
SLOW |= {"make_estimator", "people_estimator", "people_export"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is slow by its fixtures, whether it has them as arguments or asks for a parameter's."""
    for item in items:
        fixture_names = {*getattr(item, "fixturenames", ())}
        if hasattr(item, "callspec"):
            fixture_names |= {value for value in item.callspec.params.values() if isinstance(value, str)}
        if Path(__file__).parent in item.path.parents and fixture_names & SLOW:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def people_csv(share) -> Path:
    """600 rows of every kind of column."""
    rows = [PEOPLE_HEADER, *map(people_row, range(600))]
    return share("people_raw", lambda folder: Folder(folder).write("people.csv", rows)) / "people.csv"


@pytest.fixture(scope="session")
def people(share_dataset, people_csv) -> OpenDataset:
    """Every kind of feature, a key, a weight, and a label of two classes."""
    return share_dataset("people", lambda folder: written(folder, PEOPLE, str(people_csv), num_shards=2))


@pytest.fixture(scope="session")
def wages(share_dataset) -> OpenDataset:
    """A regression, without key and weight."""
    rows = [f"{20 + i % 40},{'abc'[i % 3]},{100 + 10 * (i % 40)}" for i in range(300)]
    return share_dataset("wages", lambda folder: written_rows(folder, WAGES, "age,work,wage", rows))


@pytest.fixture(scope="session")
def remarks(share_dataset) -> OpenDataset:
    """Texts as weighted n-grams, and a number; the raw files are beside it."""

    def write(folder: Path) -> None:
        for split, rows in (("train", range(300)), ("eval", range(300, 350))):
            Folder(folder).write(f"{split}.csv", ["remark,stars,liked", *map(remark_row, rows)])
        written(folder, REMARKS, f"{folder}/*.csv", num_shards=2)

    return share_dataset("remarks", write)


@pytest.fixture(scope="session")
def numbers(share_dataset) -> OpenDataset:
    """400 records in four shards a split, each known by its number."""
    rows = [f"{i},{i}" for i in range(400)]
    return share_dataset("numbers", lambda folder: written_rows(folder, NUMBERS, "x,y", rows, num_shards=4))


@pytest.fixture(scope="session")
def titanic_csv(share) -> Path:
    """A generated sample with quoted commas and quotes in its keys."""
    name = "titanic.csv"
    return share("titanic_raw", lambda folder: write_sample("titanic", str(folder / name), rows=1000, seed=1)) / name


@pytest.fixture(scope="session")
def titanic(share_dataset, titanic_csv) -> OpenDataset:
    """The generated sample, by the schema that ships."""
    schema = (ROOT / "schemas" / "titanic.yaml").read_text()
    return share_dataset("titanic", lambda folder: written(folder, schema, str(titanic_csv), num_shards=2))


@pytest.fixture(scope="session")
def titanic_model(share, titanic) -> TrainedModel:
    """A model that the command trained on the sample."""

    def train(folder: Path) -> None:
        argv = ["--data_dir", titanic.path, "--model_dir", str(folder / "model"), "--model", "dnn"]
        argv += ["--max_steps", "60", "--save_checkpoints_steps", "60", "--batch_size", "64", "--seed", "1"]
        argv += ["--no_report"]
        assert task.main(argv) == 0

    return TrainedModel(share("titanic_model", train) / "model")


@pytest.fixture(scope="session")
def make_estimator(tmp_path_factory) -> Callable[..., object]:
    """Trains an Estimator for a few steps: `make(dataset, model="dnn", steps=20)`, or one that is given."""

    def make(
        dataset: OpenDataset,
        *,
        model: str = "dnn",
        steps: int = 20,
        estimator: object = None,
        model_dir: str | None = None,
    ) -> object:
        if estimator is None:
            model_dir = model_dir or str(tmp_path_factory.mktemp("model"))
            config = brief_config(model_dir)
            estimator = BUILT_IN[model].build(read_task_spec(dataset), BUILT_IN[model].hparams(), config)
        wrapped = measured(estimator, dataset)
        mode, options = tf_estimator.ModeKeys.TRAIN, InputOptions(batch_size=32, seed=1, deterministic=True)
        wrapped.train(lambda: input_fn(dataset, "train", mode=mode, options=options), max_steps=steps)
        return wrapped

    return make


@pytest.fixture(scope="session")
def people_estimator(share, people, make_estimator):
    """A dnn, as trainer.task wraps it."""
    folder = share("people_estimator", lambda folder: make_estimator(people, model_dir=str(folder)))
    return make_estimator(people, model_dir=str(folder))  # which trains no more than its 20 steps


@pytest.fixture(scope="session")
def people_export(share, people, people_estimator) -> str:
    """Its export, which the parity check has passed."""

    def write(folder: Path) -> None:
        checkpoint = people_estimator.latest_checkpoint()
        CheckedExport(people).write(people_estimator, export_path=str(folder), checkpoint_path=checkpoint)

    (export,) = share("people_export", write).iterdir()
    return str(export)


@pytest.fixture(scope="session")
def colors(share_dataset) -> OpenDataset:
    """Images of seven classes, stored as raw pixels."""
    return share_dataset("colors", write_colors)


@pytest.fixture(scope="session")
def stripes(share_dataset) -> OpenDataset:
    """Images of three classes, stored as JPEGs of many sizes; the files lie in `raw/<class>/`."""
    return share_dataset("stripes", write_stripes)


@pytest.fixture(scope="session")
def patterns(share_dataset) -> OpenDataset:
    """Pairs of images; the files lie in `raw/<identity>/`."""
    return share_dataset("patterns", write_patterns)


@pytest.fixture(scope="session")
def stripes_model(share, stripes) -> TrainedModel:
    """A model of one's own that the command trained on `stripes`."""
    return TrainedModel(share("stripes_model", lambda folder: train_own(stripes, folder / "model", steps=60)) / "model")


@pytest.fixture(scope="session")
def patterns_model(share, patterns) -> TrainedModel:
    """The same on `patterns`."""
    name = "patterns_model"
    return TrainedModel(share(name, lambda folder: train_own(patterns, folder / "model", steps=20)) / "model")
