"""The space of a search: which hyper-parameters and flags of a training vary, and between which values.

A parameter is written as `NAME=KIND:VALUES`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from schemas.errors import UsageError
from schemas.options import typed
from trainer.loop.checks import check_training
from trainer.models import is_grown
from trainer.spec.options import TrainOptions
from trainer.task import parse_options

if TYPE_CHECKING:
    from optuna import Trial

FORMS = "NAME=float:MIN:MAX, NAME=int:MIN:MAX (both also with :log at the end) or NAME=categorical:VALUE:VALUE:..."
_TRAIN_FLAGS = frozenset(field.name for field in dataclasses.fields(TrainOptions))
_FIXED = ("data_dir", "model_dir", "best_metric")
# Flags that say nothing about the trained model: a study may be continued with other values of these.
_INCIDENTAL = frozenset({"quiet", "verbose", "trust", "cache_dir", "cache_gb", "inter_op_threads", "intra_op_threads"})
_DIGITS = 6  # of a float that a trial gets: more would only make command lines unreadable


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A hyper-parameter of the model, or a flag of `millrace train`, that varies between trials.

    Attributes:
      name: its name.
      kind: "float", "int" or "categorical".
      values: the smallest and largest value of a range, or all values of a category, as typed.
      log: whether a range is searched on a logarithmic scale.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    log: bool = False

    def __str__(self) -> str:
        return f"{self.name}={':'.join((self.kind, *self.values, *(('log',) if self.log else ())))}"

    @property
    def choices(self) -> Sequence[str | int] | None:
        """All values, or None for a range of floats."""
        if self.kind == "int":
            return range(int(self.values[0]), int(self.values[1]) + 1)
        return self.values if self.kind == "categorical" else None

    def suggest(self, trial: Trial) -> str | int | float:
        """Has Optuna choose the value of a trial."""
        if self.kind == "categorical":
            return trial.suggest_categorical(self.name, self.values)
        if self.kind == "int":
            return trial.suggest_int(self.name, int(self.values[0]), int(self.values[1]), log=self.log)
        return trial.suggest_float(self.name, float(self.values[0]), float(self.values[1]), log=self.log)

    def as_typed(self, value: Any) -> str:
        """A value that Optuna has drawn, as it stands on a command line.

        >>> Parameter("learning_rate", "float", ("0.001", "0.1"), log=True).as_typed(0.0123456789)
        '0.0123457'
        """
        if self.kind != "float":
            return str(value)
        low, high = map(float, self.values)
        return str(min(max(float(f"{value:.{_DIGITS}g}"), low), high))


@dataclasses.dataclass(frozen=True)
class TrialCommand:
    """The training that every trial of a study is.

    Attributes:
      flags: the flags of `millrace train` that are the same for all trials, by name.
      parameters: what varies.
    """

    flags: Mapping[str, Any]
    parameters: Sequence[Parameter]

    def arguments(self, values: Mapping[str, str], model_dir: str) -> list[str]:
        """The arguments of `millrace train` for one trial.

        Args:
          values: the trial's value of each parameter, as typed.
          model_dir: the trial's model directory.
        """
        flags = {**self.flags, "model_dir": model_dir}
        flags |= {name: value for name, value in values.items() if name in _TRAIN_FLAGS}
        hparams = [f"{name}={value}" for name, value in values.items() if name not in _TRAIN_FLAGS]
        if is_grown(flags.get("model")):
            flags.pop("best_metric", None)  # a model with a single evaluation has no best one; the study compares it
        if hparams:
            flags["hparams"] = [*flags.get("hparams", ()), *hparams]
        return [part for name, value in flags.items() for part in typed(name, value)]

    def options(self, values: Mapping[str, str], model_dir: str = "") -> TrainOptions:
        """The options that a trial's training reads from these arguments.

        Raises:
          UsageError: the training would refuse them.
        """
        options = parse_options(self.arguments(values, model_dir))
        check_training(options)
        return options

    def check(self) -> TrainOptions:
        """Tries both ends of each range, and each value of a category. Returns the options of one trial.

        Raises:
          UsageError: a parameter must not vary, or a trial would refuse one of its values.
        """
        first = {parameter.name: parameter.values[0] for parameter in self.parameters}
        for parameter in self.parameters:
            if parameter.name in _FIXED:
                raise UsageError(f"--space {parameter.name}: must be the same for all trials of a study")
            for value in _probes(parameter):
                try:
                    self.options({**first, parameter.name: value})
                except UsageError as error:
                    reason = str(error).partition("\n")[0]
                    raise UsageError(
                        f"--space {parameter.name}: a trial with {value} would end with: {reason}"
                    ) from None
        return self.options(first)

    def identity(self) -> list[str]:
        """The arguments that must not change if the trials of a study are to be comparable."""
        return [part for name in sorted(self.flags.keys() - _INCIDENTAL) for part in typed(name, self.flags[name])]


def _probes(parameter: Parameter) -> Iterator[str]:
    yield from parameter.values
    if parameter.kind == "float":  # also a value that is surely not a whole number
        low, high = map(float, parameter.values)
        yield str(low + 0.618 * (high - low))


def read_parameters(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """Reads the parameters of a space, each `NAME=KIND:VALUES`.

    Raises:
      UsageError: a text does not have this form, or a name occurs twice.

    >>> [str(parameter) for parameter in read_parameters(["depth=int:1:8", "activation=categorical:relu:tanh"])]
    ['depth=int:1:8', 'activation=categorical:relu:tanh']
    """
    parameters: dict[str, Parameter] = {}
    for text in texts:
        parameter = _parameter(text)
        if parameter.name in parameters:
            raise UsageError(f"--space {text}: {parameter.name} is given twice")
        parameters[parameter.name] = parameter
    return tuple(parameters.values())


def _parameter(text: str) -> Parameter:
    name, _, definition = text.partition("=")
    kind, *values = definition.split(":")
    place = f"--space {text}"
    if not name or kind not in ("float", "int", "categorical"):
        raise UsageError(f"{place}: expected {FORMS}")
    if kind == "categorical":
        if len(values) < 2 or len(set(values)) < len(values):
            raise UsageError(f"{place}: expected two or more different values, such as {name}=categorical:relu:tanh")
        return Parameter(name, kind, tuple(values))
    log = values[2:] == ["log"]
    if len(values) != 2 + log:
        raise UsageError(f"{place}: expected {name}={kind}:MIN:MAX or {name}={kind}:MIN:MAX:log")
    low, high = (_number(value, kind, place) for value in values[:2])
    if low >= high:
        raise UsageError(f"{place}: MAX {values[1]} must be greater than MIN {values[0]}")
    if log and low <= 0:
        raise UsageError(f"{place}: a logarithmic scale needs a MIN greater than 0, and it is {values[0]}")
    return Parameter(name, kind, tuple(values[:2]), log)


def _number(text: str, kind: str, place: str) -> float:
    try:
        number = int(text) if kind == "int" else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{place}: {text!r} is not a {'whole number' if kind == 'int' else 'number'}")
    return number
