"""`--tune`: the study of a HyperparameterTuningJob, which trains by values that Vertex AI chooses, trial by trial.

The trials of a study: what each was given, what it reported, and which is the best.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from millrace.submit.command import PARALLEL, TRIALS, VertexOptions
from millrace.submit.training import TRAIN, Training, read_training
from millrace.tune import space
from schemas import storage
from schemas.errors import UsageError
from trainer.replica.command import trial_arguments
from trainer.spec.metrics import higher_is_better


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


_SCALES = {space.LINEAR: "UNIT_LINEAR_SCALE", space.LOG: "UNIT_LOG_SCALE", space.REVERSE_LOG: "UNIT_REVERSE_LOG_SCALE"}
_SEARCHES = {"bayesian": "ALGORITHM_UNSPECIFIED", "grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"}
_TUNE = "--tune"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """The trials of a job, and by what they are compared.

    Raises:
      UsageError: a number is out of its range, or the search cannot be made over these parameters.
    """

    parameters: tuple[space.Parameter, ...]
    metric: str
    trials: int = TRIALS
    parallel_trials: int = PARALLEL
    failed_trials: int = 0
    search: str = "bayesian"

    def __post_init__(self) -> None:
        if self.parallel_trials > self.trials:
            raise UsageError(f"--parallel_trials {self.parallel_trials}: there are only --trials {self.trials}")
        if not 0 <= self.failed_trials <= self.trials:
            raise UsageError(f"--failed_trials {self.failed_trials}: must be 0 to {self.trials}, the number of trials")
        if self.search == "grid":
            space.check_grid(self.parameters)

    @property
    def maximize(self) -> bool:
        """Whether the larger value of the metric is the better one."""
        return higher_is_better(self.metric)

    def fields(self) -> dict[str, Any]:
        """What a HyperparameterTuningJob has of it, as fields of the message."""
        goal = "MAXIMIZE" if self.maximize else "MINIMIZE"
        spec = {
            "metrics": [{"metric_id": self.metric, "goal": goal}],
            "parameters": [parameter_spec(parameter) for parameter in self.parameters],
            "algorithm": _SEARCHES[self.search],
            # A trial's best export is that of its best evaluation, which is not always the last one.
            "measurement_selection_type": "BEST_MEASUREMENT",
        }
        counts = {"max_trial_count": self.trials, "parallel_trial_count": self.parallel_trials}
        return {"study_spec": spec, **counts, "max_failed_trial_count": self.failed_trials}


def check_trials_apart(options: VertexOptions, given: Sequence[str] | None) -> None:
    """Refuses trials that would write to one model directory, or whose metric would not be found.

    Raises:
      UsageError: there is no base output directory, a model directory, or more than one process.
    """
    if options.output_dir is None:
        raise UsageError("--tune: each trial has a model directory of its own; give --output_dir, which holds them")
    if any(argument.partition("=")[0] == "--model_dir" for argument in given or ()):
        raise UsageError(
            "--model_dir: all trials would write there; leave it out: --output_dir holds a folder for each"
        )
    if options.workers or options.ps or options.evaluator:
        raise UsageError(
            "--tune: a trial is one process, which reports the metric; leave out --workers, --ps, --evaluator"
        )


def read_study(options: VertexOptions, training: Training, prog: str) -> Study | None:
    """The study that the flags describe; None without --tune.

    Args:
      options: the command's flags.
      training: the training, with the model directory of a trial.
      prog: the command as it was typed.

    Raises:
      UsageError: a flag of a study without --tune, a parameter that the training has not, or a value that it refuses.
    """
    names = ("trials", "parallel_trials", "failed_trials", "search")
    asked: dict[str, Any] = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    if not options.tune:
        for name in asked:
            raise UsageError(f"--{name}: is for a study; say what to tune with --tune {space.FORMS}")
        return None
    metric = training.options.best_metric
    if metric is None:
        raise UsageError(
            "--tune: the tuner needs the name of the metric; add --best_metric to the training, such as "
            "-- train ... --best_metric accuracy"
        )
    parameters = space.read_parameters(options.tune, _TUNE)
    for parameter in parameters:
        _check(parameter, training, prog)
    asked.setdefault("parallel_trials", min(PARALLEL, asked.get("trials", TRIALS)))
    return Study(parameters=parameters, metric=metric, **asked)


def parameter_spec(parameter: space.Parameter) -> dict[str, Any]:
    """A parameter as fields of `StudySpec.ParameterSpec`."""
    kind, values = parameter.kind, parameter.values
    number = int if kind == space.INTEGER else float
    value: dict[str, Any]
    if kind in (space.DOUBLE, space.INTEGER):
        value = {"min_value": number(values[0]), "max_value": number(values[1])}
    else:
        value = {"values": list(values) if kind == space.CATEGORICAL else [float(v) for v in values]}
    scale = {} if parameter.scale is None else {"scale_type": _SCALES[parameter.scale]}
    return {"parameter_id": parameter.name, f"{kind}_value_spec": value, **scale}


def _check(parameter: space.Parameter, training: Training, prog: str) -> None:
    """Reads the training's arguments as a trial would, with values of the parameter."""

    def read_trial(value: str) -> Training:
        given = ["--model_dir", training.options.model_dir, *training.args, f"--{parameter.name}={value}"]
        return read_training([TRAIN, *trial_arguments(given, prog)], prog, trial=True)

    space.check(parameter, _TUNE, read_trial)
