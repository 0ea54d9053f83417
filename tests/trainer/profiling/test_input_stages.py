"""The prefixes of the input that the doctor measures."""

from __future__ import annotations

import itertools

import pytest
import tensorflow as tf

from trainer.data.input_options import InputOptions
from trainer.profiling.input_stages import WHOLE, made_ahead, prefixes


@pytest.mark.parametrize(
    ("name", "options", "stages"),
    [
        ("wages", {}, ["gather"]),
        ("wages", {"cache_bytes": 0}, ["read", "parse", "shuffle"]),
        (
            "people",
            {"cache_bytes": 0},
            ["read", "shuffle", "parse"],
        ),  # sparse features: what is shuffled is not parsed yet
        ("wages", {"shuffle_buffer": 0}, ["read", "parse"]),
    ],
)
def test_stages_of_rows_follow_one_another(request, name, options, stages):
    found = prefixes(request.getfixturevalue(name), InputOptions(batch_size=16, **options))
    assert list(found) == [*stages, WHOLE]
    for batches in found.values():
        assert len(list(itertools.islice(batches, 70))) == 70  # they go on for ever


@pytest.mark.parametrize("deterministic", [True, False])
def test_stages_of_images_are_deterministic_if_training_is(stripes, monkeypatch, deterministic):
    asked = []
    plain = tf.data.Dataset.map

    def noted(self, *args, **kwargs):
        asked.append(kwargs.get("deterministic"))
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(tf.data.Dataset, "map", noted)
    prefixes(stripes, InputOptions(batch_size=16, deterministic=deterministic))
    assert {order for order in asked if order is not None} == {deterministic}


def test_two_windows_are_made_ahead_of_rows_that_are_not_held(wages, stripes):
    rows = wages.rows("train")
    assert made_ahead(wages, InputOptions(batch_size=16, cache_bytes=0)) == -(
        -2 * rows // 16
    )  # all of so few are one window
    assert made_ahead(wages, InputOptions(batch_size=16)) == 0
    assert made_ahead(wages, InputOptions(batch_size=16, shuffle_buffer=0)) == 0
    assert made_ahead(stripes, InputOptions(batch_size=16)) == 0
