"""A training that begins with the weights of another one: what is taken, what is told, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from schemas.errors import UsageError
from tests.support.training import run
from trainer.models.warm_start import checkpoint_at
from trainer.spec.options import TrainOptions

pytestmark = pytest.mark.long

KERNEL, BIAS = "dense/kernel", "dense/bias"


@pytest.fixture(scope="module")
def first(late, tmp_path_factory) -> Path:
    """20 steps of `softmax`."""
    folder = tmp_path_factory.mktemp("warm") / "first"
    assert run(late, folder, "--hparams", "learning_rate=0.1", steps=20) == 0
    return folder


def exported(model_dir: Path) -> Path:
    (export,) = (path for path in (model_dir / "export" / "final").iterdir() if path.name.isdecimal())
    return export


def value(model_dir: Path, name: str) -> np.ndarray:
    return np.asarray(tf.train.load_variable(str(model_dir), name))


def shape(model_dir: Path) -> list[int]:
    return list(value(model_dir, KERNEL).shape)


@pytest.mark.slow
class TestTraining:
    def test_begins_with_the_weights_and_tells_each(self, late, first, tmp_path, capsys):
        path = first / "model.ckpt-20"
        argv = ("--warm_start_from", str(path), "--hparams", "learning_rate=0")
        assert run(late, tmp_path / "second", *argv, steps=1) == 0
        err = capsys.readouterr().err
        for name in (KERNEL, BIAS):
            np.testing.assert_array_equal(value(tmp_path / "second", name), value(first, name))
        assert "warm start: 2 of 2 variables are taken from " in err
        assert f"  {KERNEL} {shape(first)}: taken\n" in err
        assert "learning rate: 0 at step 0, 0 at the last step, 0" in err
        squares = f"{KERNEL}/Adam_1"  # of the gradients, summed up by the optimizer
        assert value(tmp_path / "second", squares).sum() < value(first, squares).sum() / 4
        assert value(tmp_path / "second", "global_step") == 1
        assert f'"warm_start_from": "{path}"' in (tmp_path / "second" / "model.json").read_text()

    def test_takes_what_fits_of_another_model_and_resumes_from_its_own(self, late, people, first, tmp_path, capsys):
        """`people` has other features, and as many classes."""
        argv = ("--warm_start_from", str(first), "--hparams", "learning_rate=0")
        assert run(people, tmp_path / "model", *argv, steps=1) == 0
        err = capsys.readouterr().err
        assert "warm start: 1 of " in err
        assert f"begins anew, since its shape there is {shape(first)}" in err
        assert "begins anew, since it is not there" in err
        np.testing.assert_array_equal(value(tmp_path / "model", BIAS), value(first, BIAS))
        assert run(people, tmp_path / "model", *argv, steps=2) == 0
        err = capsys.readouterr().err
        assert f"warm start: none, since {tmp_path / 'model'} has a checkpoint of its own" in err
        assert "learning rate: 0 at step 1, 0 at the last step, 1" in err

    def test_a_keras_model(self, late, tmp_path, capsys):
        """Estimator itself warm-starts these, from the weights that the model was built with."""
        model = "tests.support.own_models:keras_model"
        tf.keras.backend.clear_session()  # in the name of a layer is how many the process has made
        assert run(late, tmp_path / "first", model=model, steps=20) == 0
        tf.keras.backend.clear_session()
        argv = ("--warm_start_from", str(tmp_path / "first"), "--hparams", "learning_rate=0")
        assert run(late, tmp_path / "second", *argv, model=model, steps=1) == 0
        assert "warm start: 4 of 4 variables are taken from " in capsys.readouterr().err
        for name in (KERNEL, "dense_1/kernel"):
            np.testing.assert_array_equal(value(tmp_path / "second", name), value(tmp_path / "first", name))

    def test_of_an_export_what_a_pattern_names(self, late, first, tmp_path, capsys):
        source = ("--warm_start_from", str(exported(first)), "--warm_start_vars", "bias$")
        assert run(late, tmp_path / "model", *source, "--hparams", "learning_rate=0", steps=1) == 0
        line = f"  {KERNEL} {shape(first)}: begins anew, since --warm_start_vars leaves it out"
        assert line in capsys.readouterr().err
        np.testing.assert_array_equal(value(tmp_path / "model", BIAS), value(first, BIAS))
        assert (value(tmp_path / "model", KERNEL) != value(first, KERNEL)).any()

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (("--warm_start_from", "/nowhere"), "--warm_start_from /nowhere: no checkpoint there"),
            (("--warm_start_from", "{first}", "--warm_start_vars", "gru"), "no variable of the model fits "),
        ],
    )
    def test_refuses(self, late, first, tmp_path, capsys, argv, message):
        assert run(late, tmp_path / "model", *(part.format(first=first) for part in argv)) == 2
        assert message in capsys.readouterr().err


def test_averages_are_taken_and_what_the_optimizer_keeps_is_not(first, tmp_path):
    from trainer.models.warm_start import models_variables

    with tf.Graph().as_default():
        x = tf.keras.layers.BatchNormalization()(tf.keras.layers.Dense(2)(tf.ones([4, 3])), training=True)
        step = tf.compat.v1.train.get_or_create_global_step()
        tf.compat.v1.train.AdamOptimizer().minimize(tf.reduce_sum(x), step)
        names = {v.op.name for v in models_variables()}
    averages = {f"batch_normalization/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")}
    assert names == {KERNEL, BIAS, *averages}


def test_a_network_of_keras_is_for_another_model(tmp_path):
    x, path = tf.keras.layers.Input((4,)), tmp_path / "m"
    tf.keras.Model(x, tf.keras.layers.Dense(2)(x)).save(path, save_format="tf")
    with pytest.raises(UsageError) as refused:
        checkpoint_at(str(path), flag="--warm_start_from ")
    assert str(refused.value).startswith(f"--warm_start_from {path}: is damaged, or no checkpoint of a training; give ")
    assert "by --model backbone --hparams path=SAVED_MODEL pixels=..." in str(refused.value)


def test_the_latest_checkpoint_of_a_folder_of_an_export_or_of_a_folder_of_exports(first, tmp_path):
    assert checkpoint_at(str(first), flag="") == f"{first}/model.ckpt-20"
    assert checkpoint_at(str(exported(first)), flag="") == f"{exported(first)}/variables/variables"
    assert checkpoint_at(str(exported(first).parent), flag="") == f"{exported(first)}/variables/variables"
    shutil.copytree(exported(first), tmp_path / "moved")
    assert checkpoint_at(str(tmp_path / "moved"), flag="") == f"{tmp_path}/moved/variables/variables"
    with pytest.raises(UsageError, match=r"x=.*: no checkpoint there"):
        checkpoint_at(str(tmp_path), flag="x=")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"warm_start_vars": "x"}, "--warm_start_vars x: give --warm_start_from, too"),
        ({"warm_start_vars": "(", "warm_start_from": "d"}, r"--warm_start_vars \(: not a regular expression"),
    ],
)
def test_refuses_options(options, message):
    with pytest.raises(UsageError, match=message):
        TrainOptions(data_dir="d", model_dir="m", **options)
