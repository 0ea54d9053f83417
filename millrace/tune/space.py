"""Reads a search space as Optuna's distributions, and makes the command line of a trial."""

from __future__ import annotations

import dataclasses
import functools
import itertools
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
    from optuna.distributions import BaseDistribution

FORMS = "NAME=float:MIN:MAX, NAME=int:MIN:MAX (both also with :log at the end) or NAME=categorical:VALUE:VALUE:..."
_TRAIN_FLAGS = frozenset(field.name for field in dataclasses.fields(TrainOptions))
_FIXED = ("data_dir", "model_dir", "best_metric")
# Flags that do not change the trained model. A study may be continued with other values of these flags.
_INCIDENTAL = frozenset({"quiet", "verbose", "trust", "cache_dir", "cache_gb", "inter_op_threads", "intra_op_threads"})


def read_space(texts: Sequence[str]) -> dict[str, BaseDistribution]:
    """Parses a search space. Each parameter is written as `NAME=KIND:VALUES`.

    Raises:
      UsageError: a text does not have this form, or a name occurs twice.

    >>> read_space(["activation=categorical:relu:tanh"])
    {'activation': CategoricalDistribution(choices=('relu', 'tanh'))}
    """
    space: dict[str, BaseDistribution] = {}
    for text in texts:
        name, _, definition = text.partition("=")
        try:
            distribution = _distribution(*definition.split(":"))
        except ValueError as error:
            raise UsageError(f"--space {text}: {error}; expected {FORMS}") from None
        if name in space:
            raise UsageError(f"--space {text}: {name} is given twice")
        space[name] = distribution
    return space


def _distribution(kind: str, *values: str) -> BaseDistribution:
    """Returns the distribution for the parts of `KIND:VALUES`; raises ValueError if they are malformed."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if kind == "categorical":
        return CategoricalDistribution(values)
    if kind not in ("float", "int"):
        raise ValueError(f"{kind!r} is not a kind of values")
    low, high, *scale = values if len(values) > 1 else ("", "")
    if scale not in ([], ["log"]):
        raise ValueError(f"{':'.join(scale)!r} after MAX is not log")
    if kind == "int":
        return IntDistribution(_number(int, low), _number(int, high), log=bool(scale))
    return FloatDistribution(_number(float, low), _number(float, high), log=bool(scale))


def _number(kind: type[Any], text: str) -> Any:
    """Parses a finite number; raises ValueError if it is not one."""
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a {'whole number' if kind is int else 'number'}")
    return number


def as_typed(value: Any) -> str:
    """Formats a value that Optuna has chosen for a command line: floats with six digits.

    >>> as_typed(0.0123456789), as_typed(256), as_typed("relu")
    ('0.0123457', '256', 'relu')
    """
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@dataclasses.dataclass(frozen=True)
class TrialCommand:
    """The training that all trials of a study share, and the parameters that vary.

    Attributes:
      flags: the flags of `millrace train` that are the same for all trials, by name.
      space_texts: the search space as the user typed it, such as `learning_rate=float:0.001:0.1:log`.
    """

    flags: Mapping[str, Any]
    space_texts: tuple[str, ...]

    @functools.cached_property
    def space(self) -> dict[str, BaseDistribution]:
        """The hyper-parameters and flags that vary: by name, the distribution of their values."""
        return read_space(self.space_texts)

    def arguments(self, values: Mapping[str, str], model_dir: str) -> list[str]:
        """Returns the arguments of `millrace train` for one trial.

        Args:
          values: the trial's value of each parameter, formatted for a command line.
          model_dir: the trial's model directory.
        """
        flags = {**self.flags, "model_dir": model_dir}
        flags |= {name: value for name, value in values.items() if name in _TRAIN_FLAGS}
        hparams = [f"{name}={value}" for name, value in values.items() if name not in _TRAIN_FLAGS]
        if is_grown(flags.get("model")):
            flags.pop("best_metric", None)  # boosted trees are evaluated once, so `train` needs no metric
        if hparams:
            flags["hparams"] = [*flags.get("hparams", ()), *hparams]
        return [part for name, value in flags.items() for part in typed(name, value)]

    def options(self, values: Mapping[str, str], model_dir: str = "") -> TrainOptions:
        """Returns the options of a trial's training, parsed from its arguments.

        Args:
          values: the trial's value of each parameter, formatted for a command line.
          model_dir: the trial's model directory; '' if only the options are checked.

        Raises:
          UsageError: the training would refuse the arguments.
        """
        options = parse_options(self.arguments(values, model_dir))
        check_training(options)
        return options

    def check(self) -> TrainOptions:
        """Checks that trials would accept both ends of each range, and each value of a category.

        Returns the options of one trial.

        Raises:
          UsageError: a parameter must not vary, or a trial would refuse a value.
        """
        probes = {name: _probes(distribution) for name, distribution in self.space.items()}
        # Varies one parameter at a time, while the other parameters have their first value.
        first = {name: values[0] for name, values in probes.items()}
        for name, values in probes.items():
            if name in _FIXED:
                raise UsageError(f"--space {name}: must be the same for all trials of a study")
            for value in values:
                try:
                    self.options({**first, name: value})
                except UsageError as error:
                    reason = str(error).partition("\n")[0]
                    raise UsageError(f"--space {name}: a trial with {value} would end with: {reason}") from None
        return self.options(first)

    def grid(self) -> Iterator[dict[str, Any]]:
        """Yields all combinations of the parameters' values; the last parameter varies fastest.

        Raises:
          UsageError: a parameter is a range of floats, which has no grid.
        """
        from optuna.distributions import CategoricalDistribution, IntDistribution

        choices: list[Sequence[Any]] = []
        for name, distribution in self.space.items():
            if isinstance(distribution, CategoricalDistribution):
                choices.append(distribution.choices)
            elif isinstance(distribution, IntDistribution):
                choices.append(range(distribution.low, distribution.high + 1))
            else:
                raise UsageError(f"--search grid: {name} is a range of floats, which has no grid; make it categorical")
        return (dict(zip(self.space, values, strict=True)) for values in itertools.product(*choices))

    def identity(self) -> dict[str, list[str]]:
        """Returns what must stay the same so that trials of a study are comparable: its space and its training."""
        flags = sorted(self.flags.keys() - _INCIDENTAL)
        training = [part for name in flags for part in typed(name, self.flags[name])]
        return {"space": list(self.space_texts), "training": training}


def _probes(distribution: Any) -> list[str]:
    """Returns the values of a parameter to check before the first trial: all categories, or both ends of a range."""
    if hasattr(distribution, "choices"):
        return list(distribution.choices)
    return [as_typed(distribution.low), as_typed(distribution.high)]
