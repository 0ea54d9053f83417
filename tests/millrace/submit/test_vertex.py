"""The requests for a CustomJob and for a study, as Google's own messages take them; which trial is the best."""

from __future__ import annotations

from typing import Any

import pytest

from millrace.submit.command import VertexOptions
from millrace.submit.training import Packages
from millrace.submit.vertex_job import custom_job, tuning_job
from millrace.submit.vertex_study import Study, Trial, best_trial, read_trials
from millrace.tune.space import read_parameters

IMAGE = "us-docker.pkg.dev/p/r/millrace:1"
COMMAND = Packages("gs://b/staging/job", {}).command(("--data_dir", "gs://b/data"))


ALL = [
    "learning_rate=double:0.0001:0.1:log",
    "units=integer:1:8",
    "batch_size=discrete:64:128:256",
    "hidden_units=categorical:256,128:512,256",
]


def asked(**flags: Any) -> VertexOptions:
    place: dict[str, Any] = {"project": "p", "region": "us-central1", "staging_bucket": "gs://b/staging"}
    return VertexOptions(**place, job_name="job", image=IMAGE, **flags)


def message(**flags: Any) -> Any:
    """The request, which Google's client would refuse if it had another field, or a value of another type."""
    from google.cloud import aiplatform_v1

    return aiplatform_v1.CustomJob(custom_job(asked(**flags), COMMAND))


def study(**settings: Any) -> Study:
    return Study(**{"parameters": read_parameters(ALL, "--tune"), "metric": "auc", **settings})


def study_message(of: Study) -> Any:
    from google.cloud import aiplatform_v1

    return aiplatform_v1.HyperparameterTuningJob(tuning_job(asked(output_dir="gs://b/out"), COMMAND, of))


def test_a_chief_alone_is_one_pool() -> None:
    job = message()
    (pool,) = job.job_spec.worker_pool_specs
    assert (job.display_name, pool.replica_count, pool.machine_spec.machine_type) == ("job", 1, "n1-standard-8")
    assert pool.container_spec.image_uri == IMAGE
    assert list(pool.container_spec.command) == COMMAND
    assert {each.name: each.value for each in pool.container_spec.env}["MILLRACE_JOB"] == "job"
    assert not job.job_spec.scheduling.strategy


@pytest.mark.parametrize(
    ("flags", "counts"),
    [
        ({"evaluator": True}, [1, 0, 0, 1]),
        ({"ps": 1}, [1, 0, 1, 1]),
        ({"workers": 3, "ps": 2}, [1, 3, 2, 1]),
    ],
)
def test_a_role_has_its_place_among_the_pools(flags: dict[str, Any], counts: list[int]) -> None:
    found = message(**flags).job_spec.worker_pool_specs
    assert [pool.replica_count for pool in found] == counts
    assert all(bool(pool.container_spec.image_uri) == bool(pool.replica_count) for pool in found)


def test_machines_and_accelerators_are_given_by_role() -> None:
    job = message(
        workers=2,
        ps=1,
        machine_type=("n1-standard-16", "ps=n1-highmem-4", "evaluator=n1-standard-4"),
        accelerator=("nvidia-tesla-t4:2", "evaluator=NVIDIA_L4:1"),
    )
    machines = [pool.machine_spec for pool in job.job_spec.worker_pool_specs]
    types = [machine.machine_type for machine in machines]
    assert types == ["n1-standard-16", "n1-standard-16", "n1-highmem-4", "n1-standard-4"]
    assert [(machine.accelerator_type.name, machine.accelerator_count) for machine in machines] == [
        ("NVIDIA_TESLA_T4", 2),
        ("NVIDIA_TESLA_T4", 2),
        ("ACCELERATOR_TYPE_UNSPECIFIED", 0),
        ("NVIDIA_L4", 1),
    ]


def test_everything_else_is_in_its_field() -> None:
    job = message(
        disk_gb=200,
        spot=True,
        restart_job=True,
        timeout_hours=1.5,
        env=("A=b=c",),
        labels=("team=forest", "empty="),
        service_account="trainer@p.iam.gserviceaccount.com",
        network="projects/1/global/networks/n",
        tensorboard="projects/p/locations/us-central1/tensorboards/7",
        output_dir="gs://b/out",
    )
    spec = job.job_spec
    assert (spec.scheduling.strategy.name, spec.scheduling.timeout.seconds) == ("SPOT", 5400)
    assert spec.scheduling.restart_job_on_worker_restart
    assert dict(job.labels) == {"team": "forest", "empty": ""}
    assert (spec.service_account, spec.network) == ("trainer@p.iam.gserviceaccount.com", "projects/1/global/networks/n")
    assert spec.tensorboard == "projects/p/locations/us-central1/tensorboards/7"
    assert spec.base_output_directory.output_uri_prefix == "gs://b/out"
    (pool,) = spec.worker_pool_specs
    assert pool.disk_spec.boot_disk_size_gb == 200
    assert {each.name: each.value for each in pool.container_spec.env}["A"] == "b=c"


def test_parameters_are_of_the_kinds_and_scales_that_were_asked_for() -> None:
    rate, units, batch, hidden = study_message(study()).study_spec.parameters
    assert (rate.parameter_id, rate.scale_type.name) == ("learning_rate", "UNIT_LOG_SCALE")
    assert (rate.double_value_spec.min_value, rate.double_value_spec.max_value) == (0.0001, 0.1)
    assert (units.integer_value_spec.min_value, units.integer_value_spec.max_value) == (1, 8)
    assert units.scale_type.name == "SCALE_TYPE_UNSPECIFIED"
    assert list(batch.discrete_value_spec.values) == [64, 128, 256]
    assert list(hidden.categorical_value_spec.values) == ["256,128", "512,256"]


def test_trials_are_jobs_like_others() -> None:
    job = study_message(study(trials=20, parallel_trials=4, failed_trials=3))
    assert (job.display_name, job.max_trial_count, job.parallel_trial_count, job.max_failed_trial_count) == (
        "job",
        20,
        4,
        3,
    )
    (pool,) = job.trial_job_spec.worker_pool_specs
    assert list(pool.container_spec.command) == COMMAND
    assert job.trial_job_spec.base_output_directory.output_uri_prefix == "gs://b/out"


@pytest.mark.parametrize(
    ("metric", "goal"), [("auc", "MAXIMIZE"), ("average_loss", "MINIMIZE"), ("rmse/w", "MINIMIZE")]
)
def test_the_goal_is_that_by_which_the_best_export_is_chosen(metric: str, goal: str) -> None:
    spec = study_message(study(metric=metric)).study_spec
    assert [(each.metric_id, each.goal.name) for each in spec.metrics] == [(metric, goal)]
    assert spec.measurement_selection_type.name == "BEST_MEASUREMENT"


@pytest.mark.parametrize(("search", "name"), [("bayesian", "ALGORITHM_UNSPECIFIED"), ("random", "RANDOM_SEARCH")])
def test_the_search_is_named_as_google_does(search: str, name: str) -> None:
    assert study_message(study(search=search)).study_spec.algorithm.name == name


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
