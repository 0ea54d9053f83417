"""Beam's in-process runner without what only a cluster has a use for.

Every transform costs some 5 ms to build, pickle and run, and every stage as much again, however few rows there are; and
many of the transforms that tf.Transform applies spread work over workers. A runner is asked to expand each composite
transform, which is where they are left out: no other code knows of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner


class LocalRunner(FnApiRunner):
    """Runs pipelines in this process, and expands some transforms in a shorter way that gives the same elements."""

    def apply(self, transform: beam.PTransform, given: Any, options: PipelineOptions) -> Any:
        """What the transform makes of `given`; Beam calls this for each transform, those inside others included."""
        if isinstance(transform, beam.Reshuffle):  # there is but one worker to spread elements over
            return given
        if isinstance(transform, beam.Create):
            values = beam.ParDo(Values(transform.values)).with_output_types(transform.get_output_type())
            return given | beam.Impulse() | values
        if isinstance(transform, beam.CombineGlobally) and transform.fanout:  # likewise
            transform = transform.with_fanout(None)
        return super().apply(transform, given, options)


class Values(beam.DoFn):
    """Anything -> the values, pickled as they are, and not encoded to be decoded by a transform of its own."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = values

    def process(self, _: bytes) -> Iterable[Any]:
        return self.values
