"""Data sets that the job wrote, and models trained on them, shared by a session's tests; none changes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from beam_jobs.job import run_job
from beam_jobs.options import JobOptions
from schemas.dataset import Dataset, open_dataset
from schemas.samples import write_sample
from tests.trainer.drawn_datasets import write_colors, write_patterns, write_stripes
from trainer import task
from trainer.estimator import tf_estimator
from trainer.export import CheckedExport
from trainer.inputs import InputOptions, input_fn
from trainer.models import BUILT_IN
from trainer.predictions import with_keys_and_classes
from trainer.problem import read_problem

ROOT = Path(__file__).parent.parent.parent

PEOPLE = """\
name: people
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: z_score, missing: mean, indicator: true}
  - {name: scores, columns: [s0, s2], kind: numeric, transform: {scale: [0, 10]}, missing: 0.0}
  - {name: hours, kind: numeric, transform: log}
  - {name: work, kind: category, missing: "<unknown>"}
  - {name: city, kind: category, values: [Oslo, Rome], missing: "<unknown>"}
  - {name: pet, columns: [pet0, pet2], kind: one_hot}
  - {name: member, kind: bool, missing: false}
  - {name: title, kind: text, length: 3}
  - {name: words, kind: text}
  - {name: w, kind: weight}
  - {name: work_x_city, kind: cross, of: [work, city], buckets: 20}
label: {name: income, kind: category, values: ["<=50K", ">50K"]}
split: {by: row, train: 0.8, eval: 0.1, test: 0.1}
"""

PEOPLE_HEADER = "id,age,s0,s1,s2,hours,work,city,pet0,pet1,pet2,member,title,words,w,income"


def people_row(i: int) -> str:
    """A valid row whose label follows from the age and the pet; with missing values here and there."""
    age, pet = 20 + 37 * i % 50, i % 3
    scores = ",".join("?" if i % 13 == k else str((i + k) % 10) for k in range(3))
    work = ["Private", " Private", "State-gov", "?", "", "Self "][i % 6]
    label = ">50K" if age + 10 * pet > 55 else "<=50K"
    return (
        f"k{i},{'?' if i % 7 == 0 else age},{scores},{i % 60},{work},{['Oslo', 'Rome', '?', 'Paris'][i % 4]},"
        f"{['1,0,0', '0,1,0', '0,0,1'][pet]},{['yes', 'No', '?'][i % 3]},The {'big ' * (i % 4)}cat,"
        f"{' '.join('abcde'[: i % 6])},{1 + i % 2},{label}"
    )


WAGES = """\
name: wages
format: csv
csv: {header: present}
features:
  - {name: age, kind: numeric}
  - {name: work, kind: category}
label: {name: wage, kind: numeric}
"""


def write_dataset(folder: Path, *, schema: str, csv: Path) -> Dataset:
    """Runs the job on one file; `schema` is a schema file's text."""
    (folder / "schema.yaml").write_text(schema)
    options = JobOptions(
        schema=str(folder / "schema.yaml"), input=(str(csv),), output=str(folder / "out"), num_shards=2, quiet=True
    )
    run_job(options)
    return open_dataset(options.output)


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


@dataclasses.dataclass(frozen=True)
class TrainedModel:
    """A model directory of `trainer.task`, and its best export."""

    model_dir: Path
    export: Path


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
            estimator = BUILT_IN[model].build(read_problem(dataset), BUILT_IN[model].hparams(), config)
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


def train_own(dataset: Dataset, model_dir: Path, *, steps: int) -> TrainedModel:
    """Trains `own_image_models`, evaluates and exports it once."""
    argv = ["--data_dir", dataset.path, "--model_dir", str(model_dir)]
    argv += ["--model", "tests.trainer.own_image_models:model_fn", "--max_steps", str(steps), "--batch_size", "16"]
    assert task.main([*argv, "--save_checkpoints_steps", str(steps), "--seed", "1"]) == 0
    (export,) = (path for path in (model_dir / "export" / "best").iterdir() if path.name.isdecimal())
    return TrainedModel(model_dir, export)
