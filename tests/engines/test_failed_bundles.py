"""Every bundle fails once, after its work, on a runner that retries: each record is written and counted once.

`tests/beam_jobs/runs/test_retried.py` has bundles that are run twice on this machine's runner, and replays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct import executor
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.direct.evaluation_context import EvaluationContext

from beam_jobs.core.accounting import TooManyRejects
from schemas.dataset import OpenDataset
from schemas.dataset.prune import foreign
from tests.support.datasets import accounts_hold, contents, folder_of_people, rejects_of
from tests.support.drawn_datasets import KINDS
from tests.support.people import MEASURED_SCHEMA, people_csv

NAME = f"{__name__}.FailingOnceRunner"
failed: list[str] = []  # the steps of the bundles that were made to fail


class Injected(Exception):
    """The fault."""


class FailingOnceRunner(BundleBasedDirectRunner):
    """Runs each bundle at least twice; what the first attempt gives is dropped.

    It is Beam's BundleBasedDirectRunner, which runs a bundle up to four times. Unlike this project's local runner, it
    is handled as a cluster: the records go through the runner's shuffle. Where a side input is one of several outputs
    of a step, that runner of Beam 2.77 gives it the elements of all of them; this is corrected here.
    """

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


pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", ["covertype", "images"])
def test_records_come_once_where_each_bundle_fails_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "in").mkdir()
    inputs = KINDS[kind](tmp_path / "in")
    once = inputs.written(f"{tmp_path}/in", f"{tmp_path}/once", runner="FnApiRunner")
    retried = inputs.written(f"{tmp_path}/in", f"{tmp_path}/retried", runner=NAME)
    accounts_hold(retried)
    assert contents(retried) == contents(once)
    assert retried.manifest.counts == once.manifest.counts
    assert sorted(r.to_json() for r in rejects_of(retried)) == sorted(r.to_json() for r in rejects_of(once))
    assert {path.partition("/")[2] for path in names(retried)} == {path.partition("/")[2] for path in names(once)}
    assert foreign(retried.path) == []
    reading, writing = ("Ingest", "WriteShards") if kind != "covertype" else ("ReadAll", "WriteShards")
    for step in (reading, writing, "WriteResult"):
        assert any(step in name for name in failed), failed


def names(dataset: OpenDataset) -> list[str]:
    """The files that the manifest names beside the shards."""
    return [file.path for file in dataset.manifest.files]


def test_a_failed_job_counts_and_keeps_its_rejects_once(tmp_path: Path) -> None:
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * 20)
    with pytest.raises(TooManyRejects, match="rejected 20 of 320 read so far") as raised:
        job.run(runner=NAME, range_mb=0.01)
    assert "rejected: too_few_columns 20" in str(raised.value)
    (rejects_path,) = (job.output / "failed").glob("*/rejects-*.jsonl")
    assert len(rejects_path.read_text().splitlines()) == 20
