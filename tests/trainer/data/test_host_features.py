"""What the host of a TPU makes of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from schemas.errors import MillraceError, UsageError
from trainer.data import host_features as module
from trainer.data.host_features import host_features, longest_bags, note_host_features
from trainer.data.input_fn import input_fn
from trainer.data.input_options import InputOptions
from trainer.images.inputs import normalized


def read(dataset, **options):
    in_order: dict[str, Any] = {"shuffle_buffer": 0, "deterministic": True, "seed": 1}
    settings = InputOptions(batch_size=16, drop_remainder=True, num_epochs=1, **in_order, **options)
    return input_fn(dataset, "train", mode="train", options=settings)


def test_bags_are_padded_to_the_longest(people):
    prepared = read(people, on_host=host_features(people, batch_size=16))
    assert longest_bags(people, ["words"]) == {"words": 5}
    assert prepared.element_spec[0]["words"] == tf.TensorSpec([16, 5], tf.int64)
    for (usual, label), (dense, same) in zip(read(people), prepared, strict=True):
        np.testing.assert_array_equal(label, same)
        assert usual.keys() == dense.keys()
        np.testing.assert_array_equal(tf.sparse.to_dense(usual.pop("words"), -1), trimmed(dense.pop("words").numpy()))
        for name, value in usual.items():
            np.testing.assert_array_equal(value, dense[name])


def trimmed(padded):
    """Without the columns at the end in which no bag has an id."""
    return padded[:, : (padded >= 0).sum(axis=1).max()]


def test_strings_and_what_else_is_sparse_are_left_out(people):
    prepare = host_features(people, batch_size=2)
    words = tf.sparse.from_dense(tf.constant([[1, 2], [3, 0]], tf.int64))
    given = {"age": tf.zeros([2]), "note": tf.constant(["a", "b"]), "words": words, "shares": words}
    found, _ = prepare(given, tf.zeros([2], tf.int64))
    assert sorted(found) == ["age", "words"]
    np.testing.assert_array_equal(found["words"], [[1, 2, -1, -1, -1], [3, -1, -1, -1, -1]])


def test_a_batch_that_would_not_fit_is_refused(people, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 16 * 5 * 8 - 1)
    with pytest.raises(UsageError, match="the longest 'words' of the train split has 5 ids; filled up to that, 16 ex"):
        host_features(people, batch_size=16)


def test_images_are_normalized_once(colors):
    transform_output = tft.TFTransformOutput(colors.graphs_dir)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        iterators = [
            tf.compat.v1.data.make_initializable_iterator(read(colors, **more))
            for more in ({}, {"on_host": host_features(colors, batch_size=16)})
        ]
        usual, prepared = (iterator.get_next()[0]["image"] for iterator in iterators)
        tensors = normalized(usual, transform_output), prepared
        session.run([tf.compat.v1.tables_initializer(), *(iterator.initializer for iterator in iterators)])
        expected, found = session.run(tensors)
        note_host_features(colors, {"image": prepared})
        assert normalized(prepared, transform_output) is prepared
        with pytest.raises(MillraceError, match="images are normalized before the model gets them"):
            normalized(usual, transform_output)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
