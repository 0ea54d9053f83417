"""What an evaluation of images measures, and what it writes for TensorBoard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.support.written_records import pixels, read_summaries
from trainer.images.hooks import HARDEST, HardestImagesHook, name_split, recall_at

BATCHES: tuple[tuple[int, ...], ...] = ((0, 1, 1), (2,))
NAMES = ("ant", "bee", "cat")


def evaluate(model_dir: Path, make_hook, *, split: str | None = None, times: int = 1) -> None:
    """Runs batches of labels past the hook that `make_hook(model_dir, labels)` gives, as an evaluation does."""
    with tf.Graph().as_default():
        if split is not None:
            name_split(split)
        tf.compat.v1.train.create_global_step()
        data = tf.data.Dataset.from_generator(lambda: iter(BATCHES), output_signature=tf.TensorSpec([None], tf.int64))
        batches = tf.compat.v1.data.make_initializable_iterator(data)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS, batches.initializer)
        labels = batches.get_next()
        hook = make_hook(str(model_dir), labels)
        for _ in range(times):
            with tf.compat.v1.train.MonitoredSession(hooks=[hook]) as session:
                while not session.should_stop():
                    session.run(labels)


def hardest_hook(model_dir, labels):
    """Bees are guessed throughout; the images are as bright, and the losses as high, as the label."""
    images = tf.cast(tf.ones([1, 4, 6, 3], tf.int64) * labels[:, None, None, None], tf.uint8)
    return HardestImagesHook(
        model_dir,
        images=images,
        labels=labels,
        class_ids=tf.ones_like(labels),
        losses=tf.cast(labels, tf.float32),
        class_names=NAMES,
    )


def text(value) -> str:
    return value.tensor.string_val[0].decode()


@pytest.mark.parametrize("times", [1, 2])
def test_the_hardest_images(tmp_path, times):
    evaluate(tmp_path, hardest_hook, times=times)
    values = read_summaries(tmp_path / "eval")
    assert set(values) == {"hardest/classes", *(f"hardest/{i}" for i in range(4))}
    hardest = text(values["hardest/classes"]).splitlines()
    assert (hardest[2], hardest[-1]) == ("| 0 | cat | bee | 2 |", "| 3 | ant | bee | 0 |")
    np.testing.assert_array_equal(pixels(values["hardest/0"]), np.full((4, 6, 3), 2))


def test_no_more_than_the_hardest_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(f"{__name__}.BATCHES", ((0,) * 20, (2,), (1,) * 20))
    evaluate(tmp_path, hardest_hook)
    values = read_summaries(tmp_path / "eval")
    losses = [line.split(" | ")[-1] for line in text(values["hardest/classes"]).splitlines()[2:]]
    assert losses == ["2 |", *["1 |"] * (HARDEST - 1)]
    assert f"hardest/{HARDEST}" not in values


@pytest.mark.parametrize(("split", "folder"), [(None, "eval"), ("eval", "eval"), ("test", "eval_test")])
def test_is_in_estimators_folder_of_that_evaluation(tmp_path, split, folder):
    evaluate(tmp_path, hardest_hook, split=split)
    assert [path.name for path in tmp_path.iterdir()] == [folder]


def test_naming_the_split_outside_a_graph_does_nothing():
    name_split("test")


def recall(k: int, batches) -> float:
    """Over all batches of (labels, logits), as an evaluation computes it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        labels = tf.compat.v1.placeholder(tf.int64, [None])
        logits = tf.compat.v1.placeholder(tf.float32, [None, len(batches[0][1][0])])
        value, update = recall_at(k, labels, logits)
        session.run(tf.compat.v1.local_variables_initializer())
        for batch in batches:
            session.run(update, dict(zip((labels, logits), batch, strict=True)))
        return float(session.run(value))


class TestRecall:
    LOGITS = ((3.0, 2.0, 1.0, 0.0), (0.0, 3.0, 2.0, 1.0))

    @pytest.mark.parametrize(
        ("k", "labels", "share"),
        [(1, [0, 1], 1.0), (1, [0, 0], 0.5), (1, [3, 0], 0.0), (2, [1, 2], 1.0), (2, [2, 2], 0.5), (5, [3, 0], 1.0)],
    )
    def test_is_the_share_among_the_k_highest(self, k, labels, share):
        assert recall(k, [(labels, self.LOGITS)]) == share

    def test_is_computed_over_the_split_and_not_averaged_over_batches(self):
        batches = [([0, 1], self.LOGITS), ([3], self.LOGITS[:1])]
        assert recall(1, batches) == pytest.approx(2 / 3)

    def test_does_not_call_equal_logits_all_right(self):
        assert recall(1, [([0, 1, 2, 3], np.ones((4, 4)))]) == 0.25
