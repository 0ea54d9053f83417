"""The prefixes of the input that the doctor measures."""

from __future__ import annotations

import itertools

import pytest

from trainer.input_stages import WHOLE, prefixes
from trainer.inputs import InputOptions


@pytest.mark.parametrize(
    ("name", "options", "stages"),
    [
        ("wages", {}, ["gather"]),
        ("wages", {"hold": 0}, ["read", "parse", "shuffle"]),
        ("people", {"hold": 0}, ["read", "shuffle", "parse"]),  # sparse features: what is shuffled is not parsed yet
        ("wages", {"shuffle_buffer": 0}, ["read", "parse"]),
    ],
)
def test_stages_of_rows_follow_one_another(request, name, options, stages):
    found = prefixes(request.getfixturevalue(name), InputOptions(batch_size=16, **options))
    assert list(found) == [*stages, WHOLE]
    for batches in found.values():
        assert len(list(itertools.islice(batches, 200))) == 200  # they go on for ever
