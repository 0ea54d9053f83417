"""Datasets that the job wrote, and models trained on them, shared by a session's tests; none changes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.dataset import Dataset
from schemas.samples.tables import write_sample
from tests.support.csv_datasets import LATE, PEOPLE, PEOPLE_HEADER, WAGES, people_row, write_dataset
from tests.support.drawn_datasets import write_colors, write_patterns, write_stripes
from tests.support.training import TrainedModel, train_own
from trainer import task
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.estimator import tf_estimator
from trainer.export.exporters import CheckedExport
from trainer.export.outputs import with_keys_and_classes
from trainer.models import BUILT_IN
from trainer.spec.task_spec import read_task_spec

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def people_csv(tmp_path_factory) -> Path:
    """600 rows of every kind of column."""
    path = tmp_path_factory.mktemp("people_raw") / "people.csv"
    path.write_text("\n".join([PEOPLE_HEADER, *map(people_row, range(600))]) + "\n")
    return path


@pytest.fixture(scope="session")
def people(tmp_path_factory, people_csv) -> Dataset:
    """Every kind of feature, a key, a weight, and a label of two classes."""
    return write_dataset(tmp_path_factory.mktemp("people"), schema=PEOPLE, csv=people_csv)


@pytest.fixture(scope="session")
def late(tmp_path_factory) -> Dataset:
    """A label of two classes, a key and three features: a training and an export take a third of what `people` does."""
    folder = tmp_path_factory.mktemp("late")
    rows = (f"r{i},{20 + i % 40},{i % 60},{'abc'[i % 3]},{'yes' if i % 40 > 20 else 'no'}" for i in range(300))
    (folder / "late.csv").write_text("\n".join(["id,age,hours,work,late", *rows]) + "\n")
    return write_dataset(folder, schema=LATE, csv=folder / "late.csv")


@pytest.fixture(scope="session")
def wages(tmp_path_factory) -> Dataset:
    """A regression, without key and weight."""
    folder = tmp_path_factory.mktemp("wages")
    rows = (f"{20 + i % 40},{'abc'[i % 3]},{100 + 10 * (i % 40)}" for i in range(300))
    (folder / "wages.csv").write_text("\n".join(["age,work,wage", *rows]) + "\n")
    return write_dataset(folder, schema=WAGES, csv=folder / "wages.csv")


@pytest.fixture(scope="session")
def titanic_csv(tmp_path_factory) -> Path:
    """A generated sample with quoted commas and quotes in its keys."""
    path = tmp_path_factory.mktemp("titanic_raw") / "titanic.csv"
    write_sample("titanic", str(path), rows=1000, seed=1)
    return path


@pytest.fixture(scope="session")
def titanic(tmp_path_factory, titanic_csv) -> Dataset:
    """The generated sample, by the schema that ships."""
    schema = (ROOT / "schemas" / "titanic.yaml").read_text()
    return write_dataset(tmp_path_factory.mktemp("titanic"), schema=schema, csv=titanic_csv)


@pytest.fixture(scope="session")
def titanic_model(tmp_path_factory, titanic) -> TrainedModel:
    """A model that the command trained on the sample."""
    model_dir = tmp_path_factory.mktemp("titanic_model") / "model"
    argv = ["--data_dir", titanic.path, "--model_dir", str(model_dir), "--model", "dnn"]
    argv += ["--max_steps", "60", "--save_checkpoints_steps", "60", "--batch_size", "64", "--seed", "1"]
    assert task.main(argv) == 0
    (export,) = (path for path in (model_dir / "export" / "best").iterdir() if path.name.isdecimal())
    return TrainedModel(model_dir, export)


@pytest.fixture(scope="session")
def make_estimator(tmp_path_factory) -> Callable[..., object]:
    """Trains an Estimator for a few steps: `make(dataset, model="dnn", steps=20)`, or one that is given."""

    def make(dataset: Dataset, *, model: str = "dnn", steps: int = 20, estimator: object = None) -> object:
        if estimator is None:
            config = tf_estimator.RunConfig(model_dir=str(tmp_path_factory.mktemp("model")), tf_random_seed=1)
            estimator = BUILT_IN[model].build(read_task_spec(dataset), BUILT_IN[model].hparams(), config)
        wrapped = with_keys_and_classes(estimator, dataset)
        mode, options = tf_estimator.ModeKeys.TRAIN, InputOptions(batch_size=32, seed=1)
        wrapped.train(lambda: input_fn(dataset, "train", mode=mode, options=options), max_steps=steps)
        return wrapped

    return make


@pytest.fixture(scope="session")
def people_estimator(people, make_estimator):
    """A dnn, as trainer.task wraps it."""
    return make_estimator(people)


@pytest.fixture(scope="session")
def people_export(tmp_path_factory, people, people_estimator) -> str:
    """Its export, which the parity check has passed."""
    base = str(tmp_path_factory.mktemp("export"))
    checkpoint = people_estimator.latest_checkpoint()
    return CheckedExport(people).write(people_estimator, export_path=base, checkpoint_path=checkpoint)


@pytest.fixture(scope="session")
def colors(tmp_path_factory) -> Dataset:
    """Images of seven classes, stored as raw pixels."""
    return write_colors(tmp_path_factory.mktemp("colors"))


@pytest.fixture(scope="session")
def stripes(tmp_path_factory) -> Dataset:
    """Images of three classes, stored as JPEGs of many sizes; the files lie in `raw/<class>/`."""
    return write_stripes(tmp_path_factory.mktemp("stripes"))


@pytest.fixture(scope="session")
def patterns(tmp_path_factory) -> Dataset:
    """Pairs of images; the files lie in `raw/<identity>/`."""
    return write_patterns(tmp_path_factory.mktemp("patterns"))


@pytest.fixture(scope="session")
def stripes_model(tmp_path_factory, stripes) -> TrainedModel:
    """A model of one's own that the command trained on `stripes`."""
    return train_own(stripes, tmp_path_factory.mktemp("stripes_model") / "model", steps=60)


@pytest.fixture(scope="session")
def patterns_model(tmp_path_factory, patterns) -> TrainedModel:
    """The same on `patterns`."""
    return train_own(patterns, tmp_path_factory.mktemp("patterns_model") / "model", steps=20)
