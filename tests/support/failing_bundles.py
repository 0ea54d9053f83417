"""A runner on which the first attempt at every bundle fails, when all of its work is done: the bundle is run again.

    --runner tests.support.failing_bundles.FailingOnceRunner

It is Beam's BundleBasedDirectRunner, which runs a bundle up to four times. Unlike this project's local runner, it is
handled as a cluster: the records go through the runner's shuffle.

Where a side input is one of several outputs of a step, that runner of Beam 2.77 gives it the elements of all of them.
This is corrected here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any
from unittest import mock

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct import executor
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.direct.evaluation_context import EvaluationContext

NAME = f"{__name__}.FailingOnceRunner"
failed: list[str] = []  # the steps of the bundles that were made to fail


class Injected(Exception):
    """The fault."""


class FailingOnceRunner(BundleBasedDirectRunner):
    """Runs each bundle at least twice; what the first attempt gives is dropped."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Any:
        logging.getLogger("apache_beam.runners").setLevel(logging.CRITICAL)  # it logs each fault
        failed.clear()
        attempt = executor.TransformExecutor.attempt_call

        def attempt_call(self: Any, *args: Any) -> Any:
            if self._retry_count:
                return attempt(self, *args)
            failed.append(self._applied_ptransform.full_label)
            with mock.patch.object(self, "_completion_callback", mock.Mock(handle_result=_refuse)):
                return attempt(self, *args)

        with (
            mock.patch.object(executor.TransformExecutor, "attempt_call", attempt_call),
            mock.patch.object(EvaluationContext, "_update_side_inputs_container", _add_side_inputs),
        ):
            result = super().run_pipeline(pipeline, options)
            result.wait_until_finish()
        return result


def _refuse(*_: object) -> None:
    raise Injected


def _add_side_inputs(self: Any, committed_bundles: Iterable[Any], _: object) -> None:
    for bundle in committed_bundles:
        for view in self._pcollection_to_views.get(bundle.pcollection, ()):
            self._side_inputs_container.add_values(view, bundle.get_elements_iterable(make_copy=True))
