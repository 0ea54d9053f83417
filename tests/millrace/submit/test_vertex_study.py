"""The request for a study, as Google's own message takes it, and which of its trials is the best."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.submit.training import Pools
from millrace.submit.vertex_job import JobSettings, tuning_job
from millrace.submit.vertex_study import Study, Trial, best_trial, read_trials
from millrace.tune.space import read_parameters

ALL = [
    "learning_rate=double:0.0001:0.1:log",
    "units=integer:1:8",
    "batch_size=discrete:64:128:256",
    "hidden_units=categorical:256,128:512,256",
]


def study(**settings: Any) -> Study:
    return Study(**{"parameters": read_parameters(ALL, "--tune"), "metric": "auc", **settings})


def message(of: Study) -> Any:
    """The request, which Google's client would refuse if it had another field, or a value of another type."""
    from google.cloud import aiplatform_v1

    settings = JobSettings(name="job", pools=Pools(), image="us-docker.pkg.dev/p/r/m:1", output_dir="gs://b/out")
    return aiplatform_v1.HyperparameterTuningJob(tuning_job(settings, ["python", "-c", "x"], of))


def test_parameters_are_of_the_kinds_and_scales_that_were_asked_for() -> None:
    rate, units, batch, hidden = message(study()).study_spec.parameters
    assert (rate.parameter_id, rate.scale_type.name) == ("learning_rate", "UNIT_LOG_SCALE")
    assert (rate.double_value_spec.min_value, rate.double_value_spec.max_value) == (0.0001, 0.1)
    assert (units.integer_value_spec.min_value, units.integer_value_spec.max_value) == (1, 8)
    assert units.scale_type.name == "SCALE_TYPE_UNSPECIFIED"
    assert list(batch.discrete_value_spec.values) == [64, 128, 256]
    assert list(hidden.categorical_value_spec.values) == ["256,128", "512,256"]


def test_trials_are_jobs_like_others() -> None:
    job = message(study(trials=20, parallel_trials=4, failed_trials=3))
    assert (job.display_name, job.max_trial_count, job.parallel_trial_count, job.max_failed_trial_count) == (
        "job",
        20,
        4,
        3,
    )
    (pool,) = job.trial_job_spec.worker_pool_specs
    assert list(pool.container_spec.command) == ["python", "-c", "x"]
    assert job.trial_job_spec.base_output_directory.output_uri_prefix == "gs://b/out"


@pytest.mark.parametrize(
    ("metric", "goal"), [("auc", "MAXIMIZE"), ("average_loss", "MINIMIZE"), ("rmse/w", "MINIMIZE")]
)
def test_the_goal_is_that_by_which_the_best_export_is_chosen(metric: str, goal: str) -> None:
    spec = message(study(metric=metric)).study_spec
    assert [(each.metric_id, each.goal.name) for each in spec.metrics] == [(metric, goal)]
    assert spec.measurement_selection_type.name == "BEST_MEASUREMENT"


@pytest.mark.parametrize(("search", "name"), [("bayesian", "ALGORITHM_UNSPECIFIED"), ("random", "RANDOM_SEARCH")])
def test_the_search_is_named_as_google_does(search: str, name: str) -> None:
    assert message(study(search=search)).study_spec.algorithm.name == name


def test_the_best_trial_is_the_one_with_the_best_value_that_is_a_number() -> None:
    from google.cloud import aiplatform_v1

    def trial(own: int, state: str, value: float | None) -> dict[str, Any]:
        metrics = [] if value is None else [{"metric_id": "auc", "value": value}]
        return {"id": str(own), "state": state, "final_measurement": {"step_count": 7, "metrics": metrics}}

    values = [
        trial(10, "SUCCEEDED", 0.7),
        trial(2, "SUCCEEDED", 0.9),
        trial(9, "INFEASIBLE", None),
        trial(3, "SUCCEEDED", float("nan")),
    ]
    trials = read_trials(aiplatform_v1.HyperparameterTuningJob(trials=values), "auc")
    assert [each.id for each in trials] == ["2", "3", "9", "10"]
    best, worst = best_trial(trials, study()), best_trial(trials, study(metric="loss"))
    assert best is not None
    assert worst is not None
    assert (best.id, best.value, best.step, worst.id) == ("2", 0.9, 7, "10")
    assert best_trial(trials[1:3], study()) is None


def test_a_trial_is_told_in_one_line() -> None:
    found = Trial("3", "SUCCEEDED", {"learning_rate": 0.01, "units": 64.0, "decay": "true"}, 0.873456, 4000, "")
    assert found.told("auc") == "  3  succeeded, auc 0.873456 at step 4,000: learning_rate=0.01 units=64 decay=true"
    failed = Trial("12", "INFEASIBLE", {"units": 64.0}, None, None, "exit code 2")
    assert failed.told("auc") == " 12  infeasible (exit code 2): units=64"
