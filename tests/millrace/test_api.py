"""The Python API: it returns what the commands write, and raises errors; every example of docs/api.md is run."""

from __future__ import annotations

import csv
import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import millrace
from beam_jobs.preprocess import main as preprocess_main
from schemas.errors import UsageError
from schemas.exports.notes import read_notes
from tests.support.commands import assert_held, run_program
from tests.support.csv_datasets import PEOPLE_HEADER
from trainer import predict as predict_command

ROOT = Path(__file__).parent.parent.parent

# So few features of the same rows that the job is quick.
_IGNORED = [name for name in PEOPLE_HEADER.split(",") if name not in ("id", "hours", "income")]
FEW = "\n".join(
    [
        "name: people",
        "format: csv",
        'csv: {header: present, missing: ["?", ""]}',
        "features:",
        "  - {name: id, kind: key}",
        "  - {name: hours, kind: numeric, transform: none}",
        *(f"  - {{name: {name}, kind: ignore}}" for name in _IGNORED),
        'label: {name: income, kind: category, values: ["<=50K", ">50K"]}',
        "split: {by: row, train: 0.8, eval: 0.1, test: 0.1}",
    ]
)


@pytest.fixture(scope="module")
def export_dir(people: millrace.Dataset, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of `people`."""
    model_dir = tmp_path_factory.mktemp("people") / "model"
    return millrace.train(
        data_dir=people.path, model_dir=model_dir, model="softmax", max_steps=2, hparams={"embedding_size": 4}, seed=1,
        quiet=True, no_report=True,
    ).export_dir  # fmt: skip


def test_names_are_looked_up_when_they_are_used():
    code = (
        "import sys, millrace\n"
        "heavy = {'tensorflow', 'apache_beam', 'numpy', 'pyarrow'}\n"
        "assert not heavy & set(sys.modules)\n"
        "assert set(millrace.__all__) | {'__version__'} <= set(dir(millrace))\n"
        "from millrace import *\n"
        "assert Dataset.open and preprocess and train and load_model and issubclass(UsageError, MillraceError)\n"
        "assert not {'tensorflow', 'apache_beam'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        millrace.nothing  # noqa: B018


# All that a notebook does, in a process where nobody has set TensorFlow up.
NOTEBOOK = """
import os, sys
from millrace import Dataset, load_model, preprocess, train

schema, people, out = sys.argv[1:]
dataset = preprocess(schema=schema, input=people, output=f"{out}/data", quiet=True)
trained = train(data_dir=dataset, model_dir=f"{out}/model", model="softmax", max_steps=2, quiet=True)
model = load_model(trained.export_dir)
print(model.predict([{"id": "1", "hours": 40}])["error"][0])
next(iter(dataset.as_tf_dataset("train", batch_size=8)))
assert "TF_CPP_MIN_LOG_LEVEL" not in os.environ
"""


@pytest.mark.slow
def test_quiet_means_that_nothing_is_printed(people_csv: Path, tmp_path: Path) -> None:
    schema = tmp_path / "few.yaml"
    schema.write_text(FEW)
    env = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = run_program(NOTEBOOK, schema, people_csv, tmp_path / "out", env=env, timeout=600)
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.slow
def test_a_comparison_with_images_holds_back_what_the_start_writes(shapes: millrace.Dataset, tmp_path: Path) -> None:
    assert_held(["beam_jobs.compare", shapes.path, str(Path(shapes.path).parent / "raw")], tmp_path)


class TestPreprocess:
    @pytest.mark.slow
    def test_it_is_the_command(self, people_csv, tmp_path, capsys):
        schema = tmp_path / "few.yaml"
        schema.write_text(FEW)
        people = millrace.preprocess(schema=schema, input=people_csv, output=tmp_path / "api", num_shards=2, quiet=True)
        argv = ["--schema", str(schema), "--input", str(people_csv), "--output", str(tmp_path / "out")]
        assert preprocess_main([*argv, "--num_shards", "2", "--quiet", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert {name: split["rows"] for name, split in answer["splits"].items()} == {
            name: split.rows for name, split in people.splits.items()
        }
        assert answer["notes"] == []
        assert preprocess_main([*argv, "--json"]) == 2
        assert "Give --overwrite" in json.loads(capsys.readouterr().out)["error"]

    def test_a_usage_error_is_raised(self, people, people_csv, tmp_path):
        with pytest.raises(UsageError, match="already contains a dataset"):
            millrace.preprocess(schema=people_csv.parent / "people.yaml", input=people_csv, output=people.path)
        with pytest.raises(UsageError, match=r"preprocess\(\) has no option 'max_reject'; did you mean max_rejects"):
            millrace.preprocess(schema="x", input="y", output=tmp_path, max_reject=1)


class TestTrain:
    def test_unknown_names_are_refused_before_tensorflow_is_needed(self, people, tmp_path):
        with pytest.raises(UsageError, match=r"did you mean max_steps"):
            millrace.train(data_dir=people, model_dir=tmp_path, max_step=1)
        with pytest.raises(UsageError, match="has no hyper-parameter 'units'"):
            millrace.train(data_dir=people, model_dir=tmp_path, hparams={"units": 3})
        with pytest.raises(UsageError, match="--model forest"):
            millrace.train(data_dir=people, model_dir=tmp_path, model="forest")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.slow
    def test_it_resumes(self, people, export_dir, capsys):
        model_dir = Path(export_dir).parent.parent.parent
        again = millrace.train(
            data_dir=people, model_dir=model_dir, model="softmax", max_steps=5, hparams={"embedding_size": 4}, seed=1,
            quiet=True, early_stopping_steps=0, no_report=True,
        )  # fmt: skip
        assert (again.global_step, again.steps) == (5, 3)
        assert again.metrics["eval"]["global_step"] == read_notes(again.export_dir)[1].global_step  # the best one's
        assert set(again.exports) == {"best", "final"}
        assert capsys.readouterr().out == ""


@pytest.fixture(scope="module")
def command(export_dir, people_csv, tmp_path_factory) -> list[dict]:
    """What `millrace predict` writes for the same file."""
    output = tmp_path_factory.mktemp("predictions") / "p.jsonl"
    argv = ["--saved_model", export_dir, "--input", str(people_csv), "--output", str(output), "--quiet"]
    assert predict_command.main(argv) == 0
    return [json.loads(line) for line in output.read_text().splitlines()]


@pytest.fixture(scope="module")
def rows(people_csv) -> list[dict]:
    """The file's rows by feature, several columns of one feature together."""
    with people_csv.open(newline="") as file:
        records = list(csv.DictReader(file))
    for row in records:
        row["scores"] = [row.pop(f"s{i}") for i in range(3)]
        row["pet"] = [row.pop(f"pet{i}") for i in range(3)]
    return records


@pytest.fixture(scope="module")
def model(export_dir):
    with millrace.load_model(export_dir) as model:
        yield model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* have a value of `city` that is not among the schema's `values`")
class TestPredict:
    def test_rows_get_what_the_command_gives_them(self, model, command, rows):
        answers = model.predict(rows)
        by_key = {line["key"]: line for line in command}
        answered = [i for i, error in enumerate(answers["error"]) if not error]
        assert {answers["key"][i] for i in answered} == set(by_key)
        for i in answered:
            line = by_key[answers["key"][i]]
            assert answers["class"][i] == line["class"]
            assert answers["probabilities"][i] == pytest.approx(list(line["probabilities"].values()), rel=1e-5)
        refused = [i for i in range(len(rows)) if i not in answered]
        assert all(answers["error"][i] == "hours: not_finite" for i in refused)  # the log of no hours
        assert all(answers["class"][i] == "" and answers["class_id"][i] == -1 for i in refused)
        assert [answers["key"][i] for i in refused] == [rows[i]["id"] for i in refused]

    def test_predictions_are_the_columns_of_a_data_frame(self, model, rows):
        answers = model.predict(rows)
        frame = pd.DataFrame(answers)
        assert list(frame)[:5] == ["key", "class", "class_id", "probability_<=50K", "probability_>50K"]
        assert list(frame)[-1] == "error"
        assert len(frame) == len(rows)
        np.testing.assert_array_equal(frame[["probability_<=50K", "probability_>50K"]], answers["probabilities"])
        with pytest.raises(KeyError, match="nothing"):
            answers["nothing"]
        assert len(pd.DataFrame(model.predict([]))) == 0

    def test_the_order_of_rows_does_not_depend_on_batches(self, model, rows):
        many = model.predict([*rows[1:3], *rows] * 20)
        assert many["key"].tolist() == [row["id"] for row in [*rows[1:3], *rows] * 20]
        assert {name: values.shape[0] for name, values in model.predict([]).items()} == dict.fromkeys(many, 0)

    def test_without_keys(self, model, rows):
        answers = model.predict([{name: value for name, value in rows[1].items() if name != "id"}])
        assert (answers["key"].tolist(), answers["error"].tolist()) == ([""], [""])

    def test_what_is_no_export(self, people):
        with pytest.raises(UsageError, match="holds a dataset; expected a model directory"):
            millrace.load_model(people.path)


@pytest.mark.slow
def test_a_model_of_images(shapes, tmp_path):
    trained = millrace.train(
        data_dir=shapes,
        model_dir=tmp_path / "m",
        model="softmax",
        max_steps=2,
        batch_size=8,
        seed=1,
        quiet=True,
        no_report=True,
    )
    files = sorted((Path(shapes.path).parent / "raw").rglob("*.png"))
    with millrace.load_model(trained.export_dir) as model:
        by_path, by_bytes = model.predict(files), model.predict([file.read_bytes() for file in files])
        assert set(by_path["class"]) <= {"disc", "square", "triangle"}
        assert by_path["error"].tolist() == [""] * len(files)
        np.testing.assert_array_equal(by_path["probabilities"], by_bytes["probabilities"])
        mixed = model.predict([files[0], b"no image", *files[1:70]])
        assert mixed["error"].tolist()[:2] == ["", "image: not_an_image"]
        np.testing.assert_allclose(mixed["probabilities"][2], by_path["probabilities"][1], rtol=1e-5)
        assert {name: len(values) for name, values in model.predict([]).items()} == dict.fromkeys(mixed, 0)


@pytest.mark.slow
def test_every_example_on_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # Markdown's fences would be read as expected output, had each block not an empty line at its end.
    results = doctest.testfile(str(ROOT / "docs" / "api.md"), module_relative=False, encoding="utf-8")
    assert results.failed == 0, capsys.readouterr().out
    assert results.attempted > 30
