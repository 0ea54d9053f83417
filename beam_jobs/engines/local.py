"""Beam's in-process runner, without the transforms that only help on a cluster.

Every transform takes about 5 ms to build, pickle and run, and so does every stage, however few rows there are. Many of
the transforms that tf.Transform applies only distribute work over workers. They are left out where the runner expands
composite transforms, so no other code depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

Options = TypeVar("Options", bound=PipelineOptions)


class LocalOptions(PipelineOptions):
    """Beam's options, of which each view is made once.

    Beam asks for a view some 500 times while it builds and runs one pipeline, and makes an argument parser for each,
    which is a fifth of what a small job takes. Views share their values, so that one is as good as another.
    """

    def view_as(self, cls: type[Options]) -> Options:
        views: dict[type[PipelineOptions], Any] = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]

    def __getstate__(self) -> dict[str, Any]:
        """Without the views: a copy has values of its own."""
        return {name: value for name, value in super().__getstate__().items() if name != "_views"}


class LocalRunner(FnApiRunner):
    """Runs pipelines in this process, and expands some transforms in a shorter way that gives the same elements."""

    def apply(self, transform: beam.PTransform, given: Any, options: PipelineOptions) -> Any:
        """Applies a transform to `given`. Beam calls this for every transform, including nested ones."""
        if isinstance(transform, beam.Reshuffle) and options.view_as(DirectOptions).direct_num_workers == 1:
            return given
        if isinstance(transform, beam.Create):
            values = beam.ParDo(Values(transform.values)).with_output_types(transform.get_output_type())
            return given | beam.Impulse() | values
        if isinstance(transform, beam.CombineGlobally) and transform.fanout:
            transform = transform.with_fanout(None)
        return super().apply(transform, given, options)


class Values(beam.DoFn):
    """Any element -> the values. They are pickled; `Create` encodes them and decodes them in another transform."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.values = values

    def process(self, _: bytes) -> Iterable[Any]:
        return self.values
