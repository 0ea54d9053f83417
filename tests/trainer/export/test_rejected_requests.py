"""No served model gives a prediction for what the job rejects: every kind of input, every rule, every kind of model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_jobs import preprocess
from schemas.exports.model import ServedModel
from schemas.spec.table import Schema
from tests.support.datasets import written_rows
from tests.support.model_server import Client, serving
from tests.support.predicted import read_lines
from tests.support.rejected_requests import check_rejections
from tests.support.training import brief_config
from tests.support.written_records import example
from trainer import predict
from trainer.estimator import tf_estimator
from trainer.export import row_errors
from trainer.export.exporters import CheckedExport
from trainer.models import custom
from trainer.spec.task_spec import read_table_task_spec

NAN, INF = float("nan"), float("inf")

STRICT = """\
name: strict
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric}
  - {name: pay, kind: numeric, transform: log}
  - {name: hours, kind: numeric, transform: none}
  - {name: size, kind: numeric, transform: {bucketize: 4}}
  - {name: steps, kind: numeric, transform: {bucketize: [10, 20]}}
  - {name: point, columns: [p0, p2], kind: numeric, transform: {scale: [0, 10]}}
  - {name: height, kind: numeric, missing: median}
  - {name: city, kind: category}
  - {name: grade, kind: category, values: [a, b], missing_tokens: ["-", ""]}
  - {name: street, kind: category, hash_buckets: 50, missing_tokens: [""]}
  - {name: work, kind: category, missing: none}
  - {name: member, kind: bool, true: [JÁ, " yes "], false: ["no"]}
  - {name: pet, columns: [pet0, pet2], kind: one_hot}
  - {name: words, kind: text, length: 3, max_bytes: 20}
  - {name: city_x_grade, kind: cross, of: [city, grade], buckets: 20}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: [id], train: 0.8, eval: 0.1, test: 0.1}
"""

GOOD = {
    "id": "k1",
    "age": 40.0,
    "pay": 1.5,
    "hours": 38.0,
    "size": 3.0,
    "steps": 12.0,
    "point": [1.0, 2.0, 3.0],
    "height": 1.8,
    "city": "Oslo",
    "grade": "a",
    "street": "Main St",
    "work": "?",
    "member": " já ",
    "pet": [0.0, 1.0, 0.0],
    "words": "a b",
}


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strict")
    rows = [
        f"k{i},{20 + i % 50},{i % 9},{i % 60},{i % 7},{i % 30},{i % 10},{i % 8},{i % 6},{150 + i % 40},"
        f"{['Oslo', 'Rome', 'Zürich'][i % 3]},{'ab'[i % 2]},S{i % 20},{['x', '?'][i % 2]},{['jÁ', 'NO', 'Yes'][i % 3]},"
        f"{['1,0,0', '0,1,0', '0,0,1'][i % 3]},{'abc'[i % 3]} b,{['no', 'yes'][i % 5 < 2]}"
        for i in range(400)
    ]
    header = "id,age,pay,hours,size,steps,p0,p1,p2,height,city,grade,street,work,member,pet0,pet1,pet2,words,y"
    return written_rows(folder, STRICT, header, rows)


def own_model_fn(features, labels, mode):
    """A model with custom outputs, which fails on numbers that are not finite."""
    ages = tf.debugging.check_numerics(features["age"], "an age is not finite")
    logits = tf.keras.layers.Dense(2)(tf.stack([ages, features["pay"]], axis=1))
    predictions = {
        "logits": logits,
        "shout": tf.strings.upper(features["words_said"]) if "words_said" in features else logits,
    }
    step = tf.compat.v1.train.get_or_create_global_step()
    loss = tf.reduce_mean(logits)
    return tf_estimator.EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=step.assign_add(1))


@pytest.fixture(scope="module")
def softmax(strict, make_estimator):
    """A softmax regression after one step, for what does not depend on the model: its graphs are the smallest."""
    return make_estimator(strict, model="softmax", steps=1)


@pytest.fixture(scope="module")
def export(strict, softmax, make_estimator, tmp_path_factory):
    """The export of a model by its name; each has passed the check that every export passes."""
    made: dict[str, str] = {}
    writer = CheckedExport(strict)

    def of(model: str) -> str:
        if model not in made:
            folder, own = tmp_path_factory.mktemp("model"), None
            if model == "own model_fn":
                own = tf_estimator.Estimator(own_model_fn, config=brief_config(folder))
            elif model == "own Keras model":
                loaded = custom.load("tests.support.own_models:keras_model")
                own = loaded.build(read_table_task_spec(strict), loaded.hparams(), brief_config(folder))
            estimator = softmax if model == "softmax" else make_estimator(strict, model=model, steps=1, estimator=own)
            made[model] = writer.write(
                estimator, export_path=str(folder / "export"), checkpoint_path=estimator.latest_checkpoint()
            )
        return made[model]

    return of


def batch(*rows):
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {n: np.array(v, object if isinstance(v[0], str | bytes) else np.float32) for n, v in columns.items()}


BAD: list[tuple[dict[str, Any], bytes]] = [
    ({"age": NAN}, b"age: missing_value"),
    ({"age": INF}, b"age: out_of_range"),
    ({"height": -INF}, b"height: out_of_range"),
    ({"pay": NAN}, b"pay: missing_value"),
    ({"pay": -1.0}, b"pay: not_finite"),
    ({"pay": -5.0}, b"pay: not_finite"),
    ({"size": NAN}, b"size: missing_value"),
    ({"steps": NAN}, b"steps: missing_value"),
    ({"point": [1.0, NAN, 3.0]}, b"point: missing_value"),
    ({"city": "?"}, b"city: missing_value"),
    ({"city": " "}, b"city: missing_value"),
    ({"city": b"\xff"}, b"city: not_utf8"),
    ({"city": "Os\nlo"}, b"city: line_end_in_value"),
    ({"work": "a\rb"}, b"work: line_end_in_value"),
    ({"grade": ""}, b"grade: missing_value"),
    ({"grade": " -"}, b"grade: missing_value"),
    ({"street": ""}, b"street: missing_value"),
    ({"member": ""}, b"member: missing_value"),
    ({"member": "Banana"}, b"member: not_a_bool"),
    ({"member": "yes\0x"}, b"member: not_a_bool"),
    ({"pet": [0.0, 0.0, 0.0]}, b"pet: not_one_hot"),
    ({"pet": [1.0, 1.0, 0.0]}, b"pet: not_one_hot"),
    ({"pet": [0.0, 2.0, 0.0]}, b"pet: not_one_hot"),
    ({"pet": [0.0, NAN, 1.0]}, b"pet: missing_value"),
    ({"pet": [0.0, 1.0, 1e-40]}, b"pet: not_one_hot"),  # subnormal: to TensorFlow, a zero
    ({"pet": [-1e-45, 1.0, 0.0]}, b"pet: not_one_hot"),
    ({"words": b"a \xff"}, b"words: not_utf8"),
    ({"words": "a " * 11}, b"words: too_long"),
    ({"words": b"\xff" * 21}, b"words: too_long"),
    ({"id": b"\xff"}, b"id: not_utf8"),
    ({"age": NAN, "pay": NAN}, b"age: missing_value"),  # the first in the schema's order
    ({"words": b"\xff", "pay": -5.0}, b"words: not_utf8"),  # errors of reading come before errors of the transform
]
TAKEN: list[dict[str, Any]] = [
    {},
    {"height": NAN},
    {"work": ""},
    {"grade": "never seen"},
    {"grade": "?"},
    {"street": "?"},
    {"words": ""},
    {"words": "é" * 10},
    {"member": "YES"},
    {"id": ""},
    {"pet": [-0.0, 1.0, 0.0]},
    {"grade": "a\nb"},
    {"words": "a\nb"},
]


class TestNoModelAnswersWhatTheJobRejects:
    @pytest.mark.slow
    @pytest.mark.parametrize("model", ["linear", "dnn", "own model_fn", "own Keras model"])
    def test_whatever_the_model(self, export, model):
        with ServedModel(export(model)) as served:
            answer = served.predict(batch(GOOD, *({**GOOD, **bad} for bad, _ in BAD), GOOD))
            alone = served.predict(batch(*[GOOD] * (len(BAD) + 2)))
        assert answer["error"].tolist() == [b"", *(error for _, error in BAD), b""]
        assert np.isnan(answer["probabilities"][1:-1]).all()
        assert np.isnan(answer["logits"][1:-1]).all() if "logits" in answer else True
        assert set(answer["class"][1:-1]) == {b""}
        assert set(answer["class_id"][1:-1]) == {-1}
        for name, values in answer.items():
            np.testing.assert_array_equal(values[[0, -1]], alone[name][[0, -1]])

    def test_what_the_job_takes_is_answered(self, export):
        with ServedModel(export("softmax")) as served:
            answer = served.predict(batch(*({**GOOD, **taken} for taken in TAKEN)))
        assert set(answer["error"]) == {b""}
        assert np.isfinite(answer["probabilities"]).all()
        assert set(answer["class"]) <= {b"no", b"yes"}

    def test_examples_are_judged_alike(self, export):
        left_out = {name: value for name, value in GOOD.items() if name != "age"}
        sent = [example(GOOD), *(example({**GOOD, **bad}) for bad, _ in BAD), example(left_out)]
        with ServedModel(export("softmax")) as served:
            answer = served.predict({"examples": sent}, signature="examples:serving_default")
        assert answer["error"].tolist() == [b"", *(error for _, error in BAD), b"age: missing_value"]


# As they stand in a file and in JSON: subnormals, zeros, and what rounds to the ends of a float32's range.
EDGES = """\
    0 -0.0 1e-46 7e-46 7.1e-46 1e-45 -1e-45 1e-40 -1e-40 1.1754942e-38 -1.1754942e-38 1.17549435e-38
    0.99999994 0.99999997 0.99999998 1 1.0000001 -1 -0.99999994 -1.0000001 9.999999 10 10.000001
    3.4028233e38 3.4028235e38 -3.4028235e38 3.4028235677973362e38
    3.4028235677973366e38 -3.4028235677973366e38 1e39 -1e308
"""
HEADER = "id,age,pay,hours,size,steps,p0,p1,p2,height,city,grade,street,work,member,pet0,pet1,pet2,words,y"
WIDTHS = {"age": 1, "pay": 1, "hours": 1, "size": 1, "steps": 1, "height": 1, "point": 3, "pet": 3}


def test_of_numbers_at_the_ends_of_their_range_a_server_says_what_the_job_says(export, strict, tmp_path):
    rows = []
    for name, width in WIDTHS.items():
        for place in range(width):
            for text in EDGES.split():
                cells = {n: [str(v) for v in np.ravel(np.array(GOOD[n]))] for n in WIDTHS}
                cells[name][place] = text
                rows.append(cells)
    lines = []
    for i, cells in enumerate(rows):
        fields = {**{n: str(GOOD[n]) for n in GOOD}, **{n: ",".join(c) for n, c in cells.items()}, "id": f"e{i}"}
        lines.append(",".join([*fields.values(), "yes"]))
    (tmp_path / "edges.csv").write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    copy = shutil.copytree(strict.path, tmp_path / "copy")
    argv = ["--append_to", str(copy), "--input", str(tmp_path / "edges.csv"), "--max_rejects", "9999", "--quiet"]
    assert preprocess.main(argv) == 0
    rejects = [json.loads(line) for path in copy.rglob("rejects*") for line in path.read_text().splitlines()]
    feature = {"p0": "point", "p1": "point", "p2": "point", "pet0": "pet", "pet1": "pet", "pet2": "pet"}
    job = {r["raw"].split(",")[0]: f"{feature.get(r['column'], r['column'])}: {r['reason']}" for r in rejects}

    def sent(i: int, cells: dict[str, list[str]]) -> dict[str, Any]:
        numbers = {n: [float(t) for t in c] for n, c in cells.items()}
        return {**GOOD, "id": f"e{i}", **{n: v if WIDTHS[n] > 1 else v[0] for n, v in numbers.items()}}

    with serving(Path(export("softmax")).parent) as server, Client(server) as client:
        status, answer = client.predict({"instances": [sent(i, cells) for i, cells in enumerate(rows)]})
    assert status == 200
    served = {row["key"]: row["error"] for row in answer["predictions"] if row["error"]}
    assert served == job
    assert {error.split(": ")[1] for error in job.values()} == {"not_one_hot", "out_of_range", "not_finite"}


class TestRequests:
    def test_inputs_of_different_numbers_of_rows_are_no_request(self, export):
        rows = {name: values for name, values in batch(GOOD, GOOD).items() if name != "id"}
        with (
            ServedModel(export("softmax")) as served,
            pytest.raises(tf.errors.InvalidArgumentError, match="one value for each row in each of age, pay"),
        ):
            served.predict({**rows, "age": rows["age"][:1]}, signature="without_key:serving_default")

    def test_a_batch_of_no_examples_is_answered_with_nothing(self, export):
        with ServedModel(export("softmax")) as served:
            answer = served.predict({"examples": []}, signature="examples:serving_default")
        assert {len(values) for values in answer.values()} == {0}


class TestTheCheckOfAnExport:
    """Job and export agree on every rule."""

    @pytest.mark.slow
    def test_job_and_export_agree(self, export, strict):
        check_rejections(strict, export("softmax"))

    def test_job_and_export_of_images_agree(self, stripes, stripes_model):
        check_rejections(stripes, str(stripes_model.export))


class TestPredict:
    def test_a_row_that_the_transform_cannot_take_is_a_reject_with_its_bytes(self, export, tmp_path):
        header = "id,age,pay,hours,size,steps,p0,p1,p2,height,city,grade,street,work,member,pet0,pet1,pet2,words"
        rows = [
            f"k{i},40,{pay},38,3,12,1,2,3,180,Oslo,a,S1,x,no,0,1,0,a b" for i, pay in enumerate([1, -5, 2, "x", -1])
        ]
        (tmp_path / "rows.csv").write_text("\n".join([header, *rows]) + "\n")
        argv = ["--saved_model", export("softmax"), "--input", str(tmp_path / "rows.csv")]
        assert predict.main([*argv, "--output", str(tmp_path / "out.jsonl")]) == 0
        lines = read_lines(tmp_path / "out.jsonl")
        rejects = read_lines(tmp_path / "out.rejects.jsonl")
        assert [(line["row"], line["key"]) for line in lines] == [(0, "k0"), (2, "k2")]
        assert sorted((r["reason"], r["column"], r["raw"]) for r in rejects) == [
            ("not_a_number", "pay", rows[3]),
            ("not_finite", "pay", rows[1]),
            ("not_finite", "pay", rows[4]),
        ]


def test_an_empty_category_is_no_word_of_a_vocabulary_whatever_means_missing():
    schema = Schema.model_validate(
        {
            "name": "t",
            "format": "csv",
            "csv": {"missing": ("?",)},
            "features": (
                {"name": "word", "kind": "category"},
                {"name": "given", "kind": "category", "values": ("a",)},
                {"name": "filled", "kind": "category", "missing": "none"},
            ),
            "label": {"name": "y", "kind": "numeric"},
        }
    )
    sent = ["", " \x0b", "?", "a\nb", "x"]
    errors = row_errors.raw_errors({name: tf.constant(sent) for name in ("word", "given", "filled")}, schema)
    assert errors.numpy().tolist() == [
        b"word: missing_value",
        b"word: missing_value",
        b"word: missing_value",
        b"word: line_end_in_value",
        b"",
    ]
    alone = row_errors.raw_errors({"given": tf.constant(sent)}, schema)
    assert alone.numpy().tolist() == [b"", b"", b"given: missing_value", b"", b""]
