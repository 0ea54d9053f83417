"""A study of the tests' Vertex AI: its trials are jobs that really run, with values that lie evenly in their ranges.

Each trial's container is started with `--NAME=VALUE` behind its arguments and with CLOUD_ML_TRIAL_ID, and its metric is
read from the file that Google's cloudml-hypertune writes.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
from pathlib import Path
from typing import Any

from tests.support.vertex_replicas import Job, LogLine


class Refused(Exception):
    """The request is not what Vertex AI documents."""


@dataclasses.dataclass
class TuningJob:
    """A submitted study; see `vertex_replicas.Job` for what both have.

    Attributes:
      submitted: the request, a `google.cloud.aiplatform_v1.HyperparameterTuningJob`.
      trials: of each trial its `Trial`, in order, once it has begun.
      trial_jobs: the job of each of them.
    """

    submitted: Any
    name: str
    state: str = "JOB_STATE_PENDING"
    error: str = ""
    lines: list[LogLine] = dataclasses.field(default_factory=list)
    trials: list[Any] = dataclasses.field(default_factory=list)
    trial_jobs: list[Job] = dataclasses.field(default_factory=list)

    @property
    def id(self) -> str:
        return self.name.rpartition("/")[2]

    def described(self) -> dict[str, Any]:
        """What the service answers about it, beside its name and state."""
        return {"trials": list(self.trials)}

    def run(self, folder: Path, python: Path) -> tuple[str, str]:
        """Runs all trials, some at a time. Returns the state in which the study ends, and its error."""
        self.state = "JOB_STATE_RUNNING"
        count = self.submitted.max_trial_count
        with concurrent.futures.ThreadPoolExecutor(self.submitted.parallel_trial_count) as pool:
            list(pool.map(lambda i: self._run_trial(i, folder, python), range(count)))
        failed = sum(trial.state.name == "INFEASIBLE" for trial in self.trials)
        if failed >= (self.submitted.max_failed_trial_count or count):
            return "JOB_STATE_FAILED", f"{failed} trials have failed."
        return "JOB_STATE_SUCCEEDED", ""

    def end(self) -> None:
        """Ends the replicas of all trials."""
        for job in self.trial_jobs:
            job.end()

    def _run_trial(self, place: int, folder: Path, python: Path) -> None:
        from google.cloud import aiplatform_v1

        if self.state != "JOB_STATE_RUNNING":
            return
        study, own = self.submitted.study_spec, str(place + 1)
        share = place / max(1, self.submitted.max_trial_count - 1)
        chosen = {spec.parameter_id: _value(spec, share) for spec in study.parameters}
        trial = aiplatform_v1.Trial(name=f"{self.name}/trials/{own}", id=own, state="ACTIVE")
        trial.parameters = [{"parameter_id": name, "value": value} for name, value in chosen.items()]

        spec = aiplatform_v1.CustomJobSpec(self.submitted.trial_job_spec)
        spec.base_output_directory.output_uri_prefix = f"{spec.base_output_directory.output_uri_prefix}/{own}"
        for each in spec.worker_pool_specs:
            each.container_spec.args = [f"--{name}={_typed(value)}" for name, value in chosen.items()]
        custom = aiplatform_v1.CustomJob(display_name=f"{self.submitted.display_name}-{own}", job_spec=spec)
        (folder / own).mkdir()
        metrics = folder / own / "output.metrics"
        job = Job(custom, f"{self.name}-{own}", lines=self.lines, trial=own, metrics=metrics)
        self.trials.append(trial)
        self.trial_jobs.append(job)

        state, error = job.run(folder / own, python)
        trial.final_measurement = _best(metrics, study)
        trial.infeasible_reason = error
        trial.state = "SUCCEEDED" if state == "JOB_STATE_SUCCEEDED" else "INFEASIBLE"


def check_study(job: Any) -> None:
    """Refuses what Vertex AI's reference rules out.

    Raises:
      Refused: a field is missing or wrong.
    """
    if not 0 < job.parallel_trial_count <= job.max_trial_count:
        raise Refused("max_trial_count and parallel_trial_count are required, the latter not above the former")
    if len(job.study_spec.metrics) != 1 or not job.study_spec.metrics[0].goal or not job.study_spec.parameters:
        raise Refused("a metric with a goal, and a parameter, are required")
    if not job.trial_job_spec.base_output_directory.output_uri_prefix:
        raise Refused("these tests compare trials by their model directories")
    for spec in job.study_spec.parameters:
        if not any(kind in spec for kind in _KINDS):
            raise Refused(f"{spec.parameter_id}: a range or values are required")


_KINDS = ("double_value_spec", "integer_value_spec", "discrete_value_spec", "categorical_value_spec")


def _value(spec: Any, share: float) -> float | str:
    """A value at a share of a parameter's range."""
    kind = next(kind for kind in _KINDS if kind in spec)
    of = getattr(spec, kind)
    if kind in ("discrete_value_spec", "categorical_value_spec"):
        value: float | str = of.values[round(share * (len(of.values) - 1))]
        return value
    if spec.scale_type.name == "UNIT_LOG_SCALE":
        found = of.min_value * (of.max_value / of.min_value) ** share
    else:
        found = of.min_value + share * (of.max_value - of.min_value)
    return float(round(found) if kind == "integer_value_spec" else found)


def _typed(value: float | str) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value.is_integer() else str(value)


def _best(metrics: Path, study: Any) -> Any:
    """The best measurement of a trial, as cloudml-hypertune's file has them; an empty one without such a file."""
    if not metrics.exists():
        return {}
    (metric,) = study.metrics
    reported = [json.loads(line) for line in metrics.read_text().splitlines()]
    choose = max if metric.goal.name == "MAXIMIZE" else min
    best = choose(reported, key=lambda entry: float(entry[metric.metric_id]))
    value = {"metric_id": metric.metric_id, "value": float(best[metric.metric_id])}
    return {"step_count": int(best["global_step"]), "metrics": [value]}
