"""What is taken out of Beam's start changes nothing but the time, and is still there to be taken out."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, StandardOptions, TypeOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import core, userstate

from beam_jobs.quick_beam import Options, remember_signatures, remembering


class TestOptions:
    def test_what_one_view_sets_the_others_see(self):
        options = Options(["--streaming"])
        assert options.view_as(StandardOptions).streaming
        options.view_as(StandardOptions).streaming = False
        assert options.view_as(StandardOptions) is options.view_as(StandardOptions)
        assert not options.view_as(TypeOptions).view_as(StandardOptions).streaming
        assert options.get_all_options()["streaming"] is False

    @pytest.mark.parametrize("copied", [copy.deepcopy, lambda options: pickle.loads(pickle.dumps(options))])
    def test_a_copy_is_for_itself(self, copied):
        options = Options(["--project", "p"])
        options.view_as(StandardOptions).streaming = True
        other = copied(options)
        assert type(other) is Options
        assert other.view_as(StandardOptions).streaming
        other.view_as(StandardOptions).streaming = False
        assert options.view_as(StandardOptions).streaming

    def test_an_account_to_impersonate_does_not_travel(self):
        options = Options(["--impersonate_service_account", "someone"])
        assert options.view_as(GoogleCloudOptions).impersonate_service_account == "someone"
        assert pickle.loads(pickle.dumps(options)).view_as(GoogleCloudOptions).impersonate_service_account is None


class Stateful(beam.DoFn):
    """Has a signature of every kind."""

    STATE = userstate.BagStateSpec("state", beam.coders.VarIntCoder())

    def process(self, element, state=beam.DoFn.StateParam(STATE), window=beam.DoFn.WindowParam, *, more=3):  # noqa: B008
        yield element


def test_what_is_remembered_is_what_beam_finds():
    inspect = getattr(core.get_function_args_defaults, "inspect", core.get_function_args_defaults)
    recall = remembering(inspect)
    for dofn in (Stateful(), Stateful(), core.CallableWrapperDoFn(len), core.CallableWrapperDoFn(pickle.dumps)):
        for f in (dofn.process, dofn.setup, dofn.default_type_hints, len, Stateful.process):
            assert recall(f) == inspect(f)
    names, defaults = recall(Stateful().process)
    names.clear()
    defaults.clear()
    assert recall(Stateful().process) == inspect(Stateful().process)
    assert userstate.get_dofn_specs(Stateful())[0] == {Stateful.STATE}


def test_a_transform_more_costs_no_parser_and_no_inspection_of_methods_that_are_known(monkeypatch):
    """Fails when Beam has changed, and `quick_beam` is to be changed or to go."""
    remember_signatures()
    remember_signatures()
    counts = {"parsers": 0, "inspections": 0}

    def count(what: str, f: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            counts[what] += 1
            return f(*args, **kwargs)

        return counted

    monkeypatch.setattr(PipelineOptions, "__init__", count("parsers", PipelineOptions.__init__))
    monkeypatch.setattr(core, "get_signature", count("inspections", core.get_signature))

    def cost(transforms: int) -> dict[str, int]:
        counts.update(parsers=0, inspections=0)
        pipeline = beam.Pipeline(runner=FnApiRunner(), options=Options([]))
        numbers = pipeline | beam.Create([1])
        for i in range(transforms):
            numbers = numbers | f"Same{i}" >> beam.ParDo(Same())
        pipeline.run().wait_until_finish()
        return dict(counts)

    cost(2)
    assert cost(12) == cost(2)


class Same(beam.DoFn):
    def process(self, element):
        yield element
