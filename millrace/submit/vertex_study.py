"""`--tune`: the study of a HyperparameterTuningJob, which trains by values that Vertex AI chooses, trial by trial."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from millrace.submit.training import TRAIN, Training, read_training
from schemas.errors import UsageError
from trainer.replica.trial import trial_arguments
from trainer.spec.metrics import higher_is_better

DOUBLE, INTEGER, DISCRETE, CATEGORICAL = "double", "integer", "discrete", "categorical"  # as Vertex AI calls them
SCALES = {"linear": "UNIT_LINEAR_SCALE", "log": "UNIT_LOG_SCALE", "reverse_log": "UNIT_REVERSE_LOG_SCALE"}
SEARCHES = {"bayesian": "ALGORITHM_UNSPECIFIED", "grid": "GRID_SEARCH", "random": "RANDOM_SEARCH"}
TRIALS, PARALLEL = 10, 2
_FORMS = (
    "NAME=double:MIN:MAX, NAME=integer:MIN:MAX (both also with :log or :reverse_log behind), "
    "NAME=discrete:NUMBER:NUMBER:... or NAME=categorical:TEXT:TEXT:..."
)
_FIXED = ("data_dir", "model_dir", "best_metric")
_WITHIN = 0.618  # of a range: a value that is no whole number by chance


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What a trial is given a value of: a hyper-parameter of the model, or a flag of the training.

    Attributes:
      name: its name.
      kind: DOUBLE, INTEGER, DISCRETE or CATEGORICAL.
      values: least and largest of a range; or all values, as they were typed.
      scale: one of SCALES; None: Vertex AI's own choice.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    scale: str | None = None

    @property
    def tried(self) -> Iterator[str]:
        """Values that a trial may be given: of a range its ends and one within."""
        yield from self.values
        if self.kind == DOUBLE:
            least, largest = map(float, self.values)
            yield str(least + _WITHIN * (largest - least))

    def spec(self) -> dict[str, Any]:
        """It as fields of `StudySpec.ParameterSpec`."""
        number = int if self.kind == INTEGER else float
        value: dict[str, Any]
        if self.kind in (DOUBLE, INTEGER):
            value = {"min_value": number(self.values[0]), "max_value": number(self.values[1])}
        else:
            value = {"values": list(self.values) if self.kind == CATEGORICAL else [float(v) for v in self.values]}
        scale = {} if self.scale is None else {"scale_type": SCALES[self.scale]}
        return {"parameter_id": self.name, f"{self.kind}_value_spec": value, **scale}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study:
    """The trials of a job, and by what they are compared.

    Raises:
      UsageError: a number is out of its range, or the search cannot be made over these parameters.
    """

    parameters: tuple[Parameter, ...]
    metric: str
    trials: int = TRIALS
    parallel: int = PARALLEL
    failed: int = 0
    search: str = "bayesian"

    def __post_init__(self) -> None:
        for flag, count, least in (("trials", self.trials, 1), ("parallel_trials", self.parallel, 1)):
            if count < least:
                raise UsageError(f"--{flag} {count}: must be {least} or more")
        if self.parallel > self.trials:
            raise UsageError(f"--parallel_trials {self.parallel}: there are only --trials {self.trials}")
        if not 0 <= self.failed <= self.trials:
            raise UsageError(f"--failed_trials {self.failed}: must be 0 to {self.trials}, the number of trials")
        double = next((p.name for p in self.parameters if p.kind == DOUBLE), None)
        if self.search == "grid" and double is not None:
            raise UsageError(f"--search grid: {double} is a double, of which there is no grid; make it discrete")

    @property
    def maximize(self) -> bool:
        """Whether the larger value of the metric is the better one."""
        return higher_is_better(self.metric)

    def fields(self) -> dict[str, Any]:
        """What a HyperparameterTuningJob has of it, as fields of the message."""
        goal = "MAXIMIZE" if self.maximize else "MINIMIZE"
        spec = {
            "metrics": [{"metric_id": self.metric, "goal": goal}],
            "parameters": [parameter.spec() for parameter in self.parameters],
            "algorithm": SEARCHES[self.search],
            # A trial's best export is that of its best evaluation, which is not always the last one.
            "measurement_selection_type": "BEST_MEASUREMENT",
        }
        counts = {"max_trial_count": self.trials, "parallel_trial_count": self.parallel}
        return {"study_spec": spec, **counts, "max_failed_trial_count": self.failed}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a study."""
    add = parser.add_argument_group("hyper-parameter tuning").add_argument
    add(
        "--tune",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=KIND:VALUES",
        help=f"submit a study, whose trials try values of these hyper-parameters or flags of train: {_FORMS}; the "
        "metric is train's --best_metric",
    )
    add("--trials", type=int, metavar="N", help=f"how many trials (default: {TRIALS})")
    add("--parallel_trials", type=int, metavar="N", help=f"how many run at a time (default: {PARALLEL})")
    add("--failed_trials", type=int, metavar="N", help="give up after N failed trials (default: Vertex AI decides)")
    add(
        "--search",
        choices=tuple(SEARCHES),
        help="bayesian learns from earlier trials, grid tries all combinations (default: bayesian)",
    )


def check_trials_apart(options: argparse.Namespace, given: Sequence[str] | None) -> None:
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


def read_study(options: argparse.Namespace, training: Training, prog: str) -> Study | None:
    """The study that the flags describe; None without --tune.

    Args:
      options: the command's flags.
      training: the training, with the model directory of a trial.
      prog: the command as it was typed.

    Raises:
      UsageError: a flag of a study without --tune, a parameter that the training has not, or a value that it refuses.
    """
    numbers = {"trials": options.trials, "parallel": options.parallel_trials, "failed": options.failed_trials}
    asked = {name: value for name, value in {**numbers, "search": options.search}.items() if value is not None}
    if not options.tune:
        for name in asked:
            flag = {"parallel": "parallel_trials", "failed": "failed_trials"}.get(name, name)
            raise UsageError(f"--{flag}: is for a study; say what to tune with --tune {_FORMS}")
        return None
    metric = training.options.best_metric
    if metric is None:
        raise UsageError(
            "--tune: the tuner needs the name of the metric; add --best_metric to the training, such as "
            "-- train ... --best_metric accuracy"
        )
    parameters = read_parameters(options.tune)
    for parameter in parameters:
        _check(parameter, training, prog)
    asked.setdefault("parallel", min(PARALLEL, asked.get("trials", TRIALS)))
    return Study(parameters=parameters, metric=metric, **asked)


def read_parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """The parameters of `--tune`.

    Raises:
      UsageError: one has none of the forms, or is given twice.
    """
    found: dict[str, Parameter] = {}
    for text in texts:
        name, _, rest = text.partition("=")
        kind, *values = rest.split(":")
        if not name or kind not in (DOUBLE, INTEGER, DISCRETE, CATEGORICAL):
            raise UsageError(f"--tune {text}: expected {_FORMS}")
        if name in found:
            raise UsageError(f"--tune {text}: {name} is given twice")
        found[name] = _parameter(name, kind, values, f"--tune {text}")
    return tuple(found.values())


def _parameter(name: str, kind: str, values: Sequence[str], flag: str) -> Parameter:
    if kind == CATEGORICAL:
        if len(values) < 2 or len(set(values)) < len(values):
            raise UsageError(f"{flag}: expected two or more different values, such as {name}=categorical:relu:tanh")
        return Parameter(name, kind, tuple(values))
    if kind == DISCRETE:
        numbers = [_number(value, float, flag) for value in values]
        if len(values) < 2 or any(a >= b for a, b in itertools.pairwise(numbers)):
            raise UsageError(f"{flag}: expected two or more numbers that rise, such as {name}=discrete:64:128:256")
        return Parameter(name, kind, tuple(values))
    if len(values) not in (2, 3) or (values[2:] and values[2] not in SCALES):
        raise UsageError(f"{flag}: expected {name}={kind}:MIN:MAX, or with one of :{', :'.join(SCALES)} behind it")
    least, largest = (_number(value, int if kind == INTEGER else float, flag) for value in values[:2])
    scale = values[2] if len(values) == 3 else None
    if least >= largest:
        raise UsageError(f"{flag}: the range ends at {values[1]}, which is not above {values[0]}, where it begins")
    if least <= 0 and scale not in (None, "linear"):
        raise UsageError(f"{flag}: a {scale} scale has no place for {values[0]}; begin above 0, or use linear")
    return Parameter(name, kind, tuple(values[:2]), scale)


def _number(text: str, kind: type[int] | type[float], flag: str) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{flag}: {text or 'nothing'} is no {'whole number' if kind is int else 'number'}")
    return number


def _check(parameter: Parameter, training: Training, prog: str) -> None:
    """Reads the training's arguments as a trial would, with values of the parameter."""
    if parameter.name in _FIXED:
        raise UsageError(f"--tune {parameter.name}: is the same for all trials of a study")
    for value in parameter.tried:
        given = ["--model_dir", training.options.model_dir, *training.args, f"--{parameter.name}={value}"]
        try:
            read_training([TRAIN, *trial_arguments(given, prog)], prog)
        except UsageError as error:
            said = str(error).partition("\n")[0]
            raise UsageError(f"--tune {parameter.name}: a trial with {value} would end with: {said}") from None
