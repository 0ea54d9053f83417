"""Collected resources leave a graph alone that is being built."""

from __future__ import annotations

from typing import ClassVar

import pytest
import tensorflow as tf

from trainer.estimator import tf_estimator  # noqa: F401 - importing it is what puts this in place


class Table(tf.saved_model.experimental.TrackableResource):
    destroyed: ClassVar[list[str]] = []

    def _destroy_resource(self) -> None:
        self.destroyed.append("destroyed")
        tf.no_op()


@pytest.fixture(autouse=True)
def _forget() -> None:
    Table.destroyed.clear()


def test_nothing_is_added_to_a_graph():
    table = Table()
    with tf.Graph().as_default() as graph:
        del table
        assert graph.get_operations() == []
    assert Table.destroyed == []


def test_other_resources_are_destroyed():
    table = Table()
    del table
    assert Table.destroyed == ["destroyed"]
