"""The model `convnet`: how its labels are smoothed, and that it trains, resumes and is exported by the command."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tests.support.training import run
from trainer.model_dir.model_json import read_evaluations
from trainer.models.convnet import smoothed


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_smoothed_labels_are_kerass(share):
    logits = tf.constant(np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32))
    labels = tf.one_hot(np.arange(8) % 3, 3)
    plain, expected = (
        tf.keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=part)(labels, logits)
        for part in (0.0, share)
    )
    np.testing.assert_allclose(smoothed(plain, logits, share), expected, rtol=1e-5)


def test_the_command_trains_resumes_and_exports_it(colors, tmp_path, capsys):
    """Of these sheets of one colour it learns all, where a guess is right in a seventh."""
    hparams = ("--hparams", "width=4", "learning_rate=0.01")
    assert run(colors, tmp_path, *hparams, model="convnet") == 0
    assert run(colors, tmp_path, model="convnet", steps=60) == 0
    assert "convnet, 60 steps of 32 examples" in (err := capsys.readouterr().err)
    assert "learning rate: 0.0025 at step 40, " in err
    evaluations = read_evaluations(str(tmp_path))
    assert [e["global_step"] for e in evaluations] == [20, 40, 60]
    assert evaluations[-1]["accuracy"] > 0.5
    exports = [path for path in (tmp_path / "export" / "best").iterdir() if path.name.isdecimal()]
    assert exports  # their answers are the Estimator's: an export is compared before it gets its name
