"""Keeps the garbage collector from adding operations to a graph, which can block training for good.

A transform graph that is loaded while a TF1 graph is built brings its vocabularies as Python objects that own a hash
table, in a circle that only the garbage collector takes apart. On collection such an object runs the operation that
destroys its table: in whatever graph is then the default one. The collector runs at any moment, also while that graph
is adding an operation and holds its lock; the same thread then waits for itself. (Seen with TensorFlow 2.21.)

In a TF1 graph the tables belong to the `tf.Session`, which destroys them: there is nothing for the object to do.
"""

from __future__ import annotations

import importlib
from typing import Any


def leave_to_sessions() -> None:
    """From now on, TensorFlow's resource objects collected while a graph is built leave it alone.

    Those collected elsewhere destroy their resource as before. Does nothing the second time. TensorFlow must have been
    imported (see `trainer.estimator`).
    """
    executing_eagerly = importlib.import_module("tensorflow").executing_eagerly
    resource: Any = importlib.import_module("tensorflow.python.trackable.resource").CapturableResource
    original = resource.__del__
    if getattr(original, "leaves_graphs_alone", False):
        return

    def collect(self: Any) -> None:
        if executing_eagerly():
            original(self)

    collect.leaves_graphs_alone = True  # type: ignore[attr-defined]
    resource.__del__ = collect  # private: nothing public runs before a destructor
