"""Learning rates by step."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from trainer.models.optimizers import polynomial_decay


@pytest.mark.parametrize(
    ("step", "options", "rate"),
    [
        (0, {}, 1.0),
        (50, {}, 0.25),
        (90, {}, 0.01),
        (100, {}, 0.0),
        (150, {}, 0.0),
        (50, {"power": 1.0}, 0.5),
        (0, {"warmup_steps": 20}, 0.0),
        (5, {"warmup_steps": 20}, 0.25),
        (0, {"warmup_steps": 20, "warmup_start": 0.2}, 0.2),
        (10, {"warmup_steps": 20, "warmup_start": 0.2}, 0.6),
        (20, {"warmup_steps": 20, "warmup_start": 0.2}, 1.0),
        (60, {"warmup_steps": 20}, 0.25),
        (100, {"warmup_steps": 20}, 0.0),
        (10**9, {"max_steps": None}, 1.0),
        (5, {"max_steps": None, "warmup_steps": 20}, 0.25),
    ],
)
def test_warms_up_in_a_line_and_decays_with_the_square(step, options, rate):
    assert float(polynomial_decay(step, **{"base": 1.0, "max_steps": 100, **options})) == pytest.approx(rate, abs=1e-6)


def test_is_continuous_and_takes_many_steps_at_once():
    rates = polynomial_decay(np.arange(101), base=0.4, max_steps=100, warmup_steps=10, warmup_start=0.1).numpy()
    assert np.argmax(rates) == 10
    assert rates[10] == pytest.approx(0.4)
    assert np.abs(np.diff(rates)).max() < 0.031


def test_follows_the_global_step_of_a_graph():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        step = tf.compat.v1.train.get_or_create_global_step()
        rate = polynomial_decay(step, base=1.0, max_steps=10)
        session.run(tf.compat.v1.global_variables_initializer())
        assert session.run(rate) == 1.0
        session.run(tf.compat.v1.assign(step, 5))
        assert session.run(rate) == 0.25


@pytest.mark.parametrize(
    "options", [{"base": -1.0}, {"power": -1.0}, {"warmup_steps": -1}, {"warmup_start": -0.1}, {"warmup_steps": 100}]
)
def test_refuses(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        polynomial_decay(0, **{"base": 1.0, "max_steps": 100, **options})
