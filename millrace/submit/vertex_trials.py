"""The trials of a study: what each was given, what it reported, and which is the best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from millrace.submit.vertex_study import Study
from schemas import storage


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
      id: its number, as text.
      state: such as ACTIVE, SUCCEEDED or INFEASIBLE.
      parameters: the values that it was given, by name.
      value: the best value of the metric that it has reported; None: none yet.
      step: the step of that value.
      why: why it is infeasible; "" otherwise.
    """

    id: str
    state: str
    parameters: dict[str, Any]
    value: float | None
    step: int | None
    why: str

    def told(self, metric: str) -> str:
        """It in one line."""
        given = " ".join(f"{name}={_short(value)}" for name, value in self.parameters.items())
        found = "" if self.value is None else f", {metric} {_short(self.value)} at step {self.step:,}"
        why = f" ({self.why})" if self.why else ""
        return f"{self.id:>3}  {self.state.lower()}{why}{found}: {given}"


def read_trials(job: Any, metric: str) -> list[Trial]:
    """The trials of a `HyperparameterTuningJob`, in the order of their numbers."""
    found = []
    for trial in job.trials:
        measured = trial.final_measurement
        values = [each.value for each in measured.metrics if each.metric_id == metric] if measured else []
        found.append(
            Trial(
                id=trial.id,
                state=trial.state.name,
                parameters={each.parameter_id: each.value for each in trial.parameters},
                value=values[0] if values else None,
                step=int(measured.step_count) if values else None,
                why=trial.infeasible_reason,
            )
        )
    return sorted(found, key=lambda trial: (len(trial.id), trial.id))


def best_trial(trials: Sequence[Trial], study: Study) -> Trial | None:
    """The trial with the best value; None where none has reported any. NaN is no value."""
    measured = [(trial.value, trial) for trial in trials if trial.value is not None and not math.isnan(trial.value)]
    if not measured:
        return None
    choose = max if study.maximize else min
    return choose(measured, key=lambda pair: pair[0])[1]


def model_dir(output_dir: str, trial: str) -> str:
    """The model directory of a trial: AIP_MODEL_DIR, as Vertex AI sets it there."""
    return storage.join(output_dir, trial, "model")


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
