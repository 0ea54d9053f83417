"""The runner of one machine gives what Beam's own gives, of fewer transforms."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, StandardOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_jobs.engines import runner
from beam_jobs.engines.runner import LocalOptions, LocalRunner
from schemas.dataset import Dataset
from tests.support.people import MEASURED_SCHEMA, make_job
from tests.support.written_records import records

pytestmark = pytest.mark.slow

# A mean, quantiles and a vocabulary: each is combined in another way.
SCHEMA = MEASURED_SCHEMA.replace(
    "size, kind: numeric, transform: none", "size, kind: numeric, transform: {bucketize: 4}"
)
SCHEMA = SCHEMA.replace("city, kind: ignore", "city, kind: category, missing: nowhere")


@dataclasses.dataclass
class Run:
    dataset: Dataset
    transforms: list[str]


def run(folder: Any, cls: type[FnApiRunner]) -> Run:
    """The job on people, and the transforms that were run."""

    class Leaves(PipelineVisitor):
        def visit_transform(self, transform_node: AppliedPTransform) -> None:
            names.append(transform_node.full_label)

    class Listing(cls):
        def run_pipeline(self, pipeline: beam.Pipeline, options: Any) -> Any:
            pipeline.visit(Leaves())
            return super().run_pipeline(pipeline, options)

    names: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "make_runner", lambda options: Listing())
        return Run(make_job(folder, SCHEMA).run(), names)


@pytest.fixture(scope="module")
def beams(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("beams"), FnApiRunner)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(tmp_path_factory.mktemp("ours"), LocalRunner)


@pytest.mark.parametrize("split", ["train", "eval", "test"])
def test_the_records_are_the_same(ours, beams, split):
    assert records(ours.dataset, split) == records(beams.dataset, split)


def test_the_account_is_the_same(ours, beams):
    for field in ("read", "written", "rejected"):
        assert getattr(ours.dataset.manifest, field) == getattr(beams.dataset.manifest, field)


def test_nothing_is_spread_over_workers(ours, beams):
    """Fails when Beam or tf.Transform has changed, and `local_runner` is to be changed or to go."""
    left_out = ("SplitHotCold", "Map(decode)")
    for part in left_out:
        assert any(part in name for name in beams.transforms), part
        assert not any(part in name for name in ours.transforms), part
    assert len(ours.transforms) < 0.9 * len(beams.transforms)


def test_elements_are_unchanged():
    values = [{"a": 1}, {"a": 2, "b": (3, None)}]
    with beam.Pipeline(runner=LocalRunner()) as pipeline:
        assert_that(pipeline | "Some" >> beam.Create(values) | beam.Reshuffle(), equal_to(values), label="some")
        assert_that(pipeline | "None" >> beam.Create([]), equal_to([]), label="none")


def test_what_is_combined_in_many_places_is_combined_in_one():
    with beam.Pipeline(runner=LocalRunner()) as pipeline:
        numbers = pipeline | beam.Create(range(100))
        assert_that(numbers | beam.CombineGlobally(sum).with_fanout(4), equal_to([4950]))


class TestOptions:
    def test_a_view_is_made_once_and_all_views_share_their_values(self):
        options = LocalOptions(["--direct_num_workers", "2"])
        view = options.view_as(DirectOptions)
        assert view.direct_num_workers == 2
        view.direct_num_workers = 3
        assert options.view_as(DirectOptions) is view
        assert options.view_as(StandardOptions).view_as(DirectOptions).direct_num_workers == 3
        assert options.get_all_options()["direct_num_workers"] == 3

    def test_a_copy_has_values_of_its_own(self):
        """Beam copies the options that it is given."""
        options = LocalOptions(["--direct_num_workers", "2"])
        options.view_as(DirectOptions).direct_num_workers = 3
        copied = copy.deepcopy(options)
        copied.view_as(DirectOptions).direct_num_workers = 4
        assert [given.view_as(DirectOptions).direct_num_workers for given in (options, copied)] == [3, 4]
        assert copied.get_all_options()["direct_num_workers"] == 4
