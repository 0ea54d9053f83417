"""How Beam learns the size of what passes between steps."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from apache_beam.typehints import Dict, Union

from beam_jobs.core.workers import PickleCoder
from beam_jobs.profiles import ProfileCoder
from schemas.profile.duplicates import ROWS, RecordHashes
from schemas.profile.leakage import LeakageProfile
from schemas.profile.statistics import Statistics

encoded = beam.coders.FastPrimitivesCoder().encode  # as Beam does without a coder of its own
OUTPUTS = Union[np.ndarray, tf.compat.v1.SparseTensorValue]
SPARSE = tf.compat.v1.SparseTensorValue(np.zeros((3, 2), np.int64), np.ones(3, np.float32), (4, 5))


class Unpicklable(Exception):
    """A value was pickled."""


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (np.zeros((10, 3), np.float32), 120),
        (tf.zeros((10, 3)), 120),
        (pa.array([[1, 2], [3]]), pa.array([[1, 2], [3]]).nbytes),
        (SPARSE, 3 * 2 * 8 + 3 * 4 + len(encoded(4)) + len(encoded(5))),
        (b"other", len(encoded(b"other"))),
        (None, len(encoded(None))),
    ],
    ids=["array", "tensor", "Arrow", "sparse", "other", "None"],
)
def test_sizes_are_those_of_the_values(value, size):
    assert PickleCoder().estimate_size(value) == size
    assert type(PickleCoder().decode(PickleCoder().encode(value))) is not None


def test_arrays_are_not_pickled_to_learn_their_size(monkeypatch):
    def refuse(*_: Any) -> bytes:
        raise Unpicklable

    monkeypatch.setattr(PickleCoder, "encode", refuse)
    for value in (np.zeros(3), tf.zeros(3), pa.array([[1]])):
        assert PickleCoder().estimate_size(value)
    hashes = RecordHashes(ROWS)
    hashes.add(
        {"hash": np.zeros(3, np.uint64), "split": np.zeros(3, np.int8), **dict.fromkeys(ROWS.names[2:], [0] * 3)}
    )
    assert ProfileCoder().estimate_size(LeakageProfile({"rows": hashes})) >= 3 * (8 + 1 + 8 + 8)


@pytest.mark.parametrize(
    ("kind", "coder"),
    [(pa.Array, PickleCoder), (OUTPUTS, PickleCoder), (Statistics, ProfileCoder), (LeakageProfile, ProfileCoder)],
)
def test_types_have_their_coder(kind, coder):
    assert type(beam.coders.registry.get_coder(kind)) is coder
    assert coder.__name__ in repr(beam.coders.registry.get_coder(Dict[str, kind]))


@pytest.mark.parametrize("kind", [np.int64, object, beam.typehints.Any, Union[int, str]])
def test_other_types_keep_the_coders_of_beam(kind):
    assert not isinstance(beam.coders.registry.get_coder(kind), PickleCoder)
