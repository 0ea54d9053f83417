"""Texts as weighted n-grams: what models read of them, that each learns, and what an export answers to raw strings."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from sklearn.feature_extraction.text import TfidfVectorizer

from schemas.dataset import layout
from schemas.exports import model
from schemas.exports.model import ServedModel
from tests.support.training import TrainedModel, brief_config, run
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.models import BUILT_IN
from trainer.models.canned import wide_rate
from trainer.models.hyperparameters import WideDeepHparams
from trainer.spec.task_spec import Dense, Ids, TaskSpec, read_table_task_spec


def raw(remarks, split: str) -> list[dict[str, str]]:
    with Path(remarks.path).with_name(f"{split}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def words_of(remarks) -> list[str]:
    path = Path(remarks.run_dir, layout.TRANSFORM_FN, "assets", "remark")
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_a_model_reads_the_ids_with_their_weights(remarks):
    assert read_table_task_spec(remarks).inputs == (
        Ids("remark", 1 + len(words_of(remarks)), length=None, weights="remark_tfidf"),
        Dense("stars", z_score=True),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "steps", "embeds"),
    [("linear", 300, False), ("dnn", 300, True), ("wide_deep", 300, False), ("softmax", 1, True)],
)
def test_each_model_learns_from_them(remarks, make_estimator, model, steps, embeds):
    """The deep part of wide_deep reads the number alone."""
    estimator = make_estimator(remarks, model=model, steps=steps)
    metrics = estimator.evaluate(lambda: input_fn(remarks, "eval", mode="eval", options=InputOptions()))
    assert metrics["accuracy"] > 0.85 or steps == 1  # each ninth text is empty, and pairs of words decide
    names = estimator.get_variable_names()
    assert any("remark" in name and "embedding" in name for name in names) == embeds


@pytest.mark.parametrize(
    ("weights", "hparams", "rate"),
    [("t_tfidf", {}, 0.01), (None, {}, 0.001), ("t_tfidf", {"linear_learning_rate": 0.3}, 0.3)],
)
def test_the_wide_part_learns_ngrams_faster_by_default(weights, hparams, rate):
    wide = [Ids("c", 5), Ids("t", 5, length=None, weights=weights)]
    assert wide_rate(WideDeepHparams(**hparams), wide) == rate


def test_the_deep_part_reads_ngrams_where_there_is_nothing_else(tmp_path):
    task_spec = TaskSpec((Ids("t", 5, length=None, weights="t_tfidf"),), label="y", classes=2)
    estimator = BUILT_IN["wide_deep"].build(task_spec, BUILT_IN["wide_deep"].hparams(), brief_config(tmp_path))
    spec = {"t": tf.io.VarLenFeature(tf.int64), "t_tfidf": tf.io.VarLenFeature(tf.float32)}

    def empty() -> tf.data.Dataset:
        record = tf.data.Dataset.from_tensors([tf.train.Example().SerializeToString()])
        return record.map(lambda serialized: (tf.io.parse_example(serialized, spec), tf.constant([1], tf.int64)))

    estimator.train(empty, max_steps=1)
    assert any("embedding_weights" in name for name in estimator.get_variable_names())


@pytest.fixture(scope="module")
def export(remarks, tmp_path_factory) -> Path:
    """Of a linear model, by the command: it passed the skew check on the job's parity records."""
    folder = tmp_path_factory.mktemp("model")
    assert run(remarks, folder, model="linear") == 0
    return TrainedModel(folder).export


REQUESTS = [
    "good flight",
    "not GOOD flight!",
    "bad sëat x",
    "",
    "  ",
    "never seen before",
    "crew 航班",
    "crew\n航班\0bad",
    "good flight " * 8_000,
    "\u0000",
    "😀",
]


@pytest.mark.slow
def test_texts_are_answered_in_pieces_as_they_are_together(export, monkeypatch):
    texts = np.array([text.encode() for text in REQUESTS] * 3, object)
    inputs = {"remark": texts, "stars": np.full(len(texts), 3.0, "f")}
    with ServedModel(str(export)) as served:
        together = served.predict(inputs)
        monkeypatch.setattr(model, "NGRAM_BATCH_BYTES", 20)
        in_pieces = served.predict(inputs)
    for name, values in together.items():
        np.testing.assert_array_equal(in_pieces[name], values)


@pytest.mark.slow
def test_a_text_that_is_too_long_gets_an_error_and_takes_no_memory(export):
    """Its n-grams would take some 440 times as much as itself: 11 GB."""
    texts = np.array([b"x" * 25_000_000, b"good flight"], object)
    with ServedModel(str(export)) as served:
        answer = served.predict({"remark": texts, "stars": np.full(2, 3.0, "f")})
    assert answer["error"].tolist() == [b"remark: too_long", b""]


@pytest.mark.slow
def test_an_export_answers_raw_strings_as_sklearn_and_the_weights_say(remarks, export):
    vectorizer = TfidfVectorizer(token_pattern=r"\w+", ngram_range=(1, 2), vocabulary=words_of(remarks))
    train = raw(remarks, "train")
    vectorizer.fit(row["remark"] for row in train)
    stars = np.array([float(row["stars"]) for row in train])
    variables = tf.train.load_checkpoint(str(export / "variables" / "variables"))

    def read(name: str) -> np.ndarray:
        return np.asarray(variables.get_tensor(f"linear/linear_model/{name}")).reshape(-1)

    logits = (
        vectorizer.transform(REQUESTS) @ read("remark_weighted_by_remark_tfidf/weights")[1:]
        + (3 - stars.mean()) / stars.std() * read("stars/weights")
        + read("bias_weights")
    )
    texts = np.array([text.encode() for text in REQUESTS], object)
    rows = [{"remark": texts[i : i + 1], "stars": np.array([3.0], "f")} for i in range(len(texts))]
    with ServedModel(str(export)) as served:
        together = served.predict({"remark": texts, "stars": np.full(len(texts), 3.0, "f")})["probabilities"]
        alone = [served.predict(row)["probabilities"] for row in rows]
        broken = served.predict({"remark": np.array([b"good \xff", b"good"], object), "stars": np.zeros(2, "f")})
    np.testing.assert_allclose(together[:, 1], 1 / (1 + np.exp(-logits)), rtol=1e-4)
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=1e-6)
    assert together[0, 1] != pytest.approx(together[1, 1], rel=1e-3)
    assert [bool(error) for error in broken["error"]] == [True, False]  # a job rejects the row as not_utf8
