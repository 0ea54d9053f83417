"""The space of a search: hyper-parameters and flags of a training, and the values that trials may be given.

Written as `NAME=KIND:VALUES`, or in a YAML file as `NAME: KIND:VALUES`. The kinds are those of Vertex AI. With the
values of a trial, the arguments of the study's training become those of the trial's.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from schemas import storage
from schemas.concurrency import usable_cores
from schemas.errors import UsageError
from schemas.options import typed
from trainer.loop.checks import check_training
from trainer.models import is_grown
from trainer.spec.options import TrainOptions
from trainer.task import parse_options

_FLAGS = frozenset(field.name for field in dataclasses.fields(TrainOptions))
# What says nothing about the model that is trained: a study may be taken up with others.
_ASIDE = frozenset({"quiet", "verbose", "trust", "cache_dir", "cache_gb", "inter_op_threads", "intra_op_threads"})
_THREADS = ("inter_op_threads", "intra_op_threads")


@dataclasses.dataclass(frozen=True)
class TrialCommand:
    """The training of which each trial is one.

    Attributes:
      given: the flags of the training that were given, by name, as the parser reads them.
      parallel: how many trials run at a time; they share the cores.
      model: the model where no flag names it; None: a flag does, or it is not known yet.
    """

    given: Mapping[str, Any]
    parallel: int = 1
    model: str | None = None

    def arguments(self, values: Mapping[str, str], model_dir: str) -> list[str]:
        """The arguments of `python -m trainer.task` for a trial.

        Args:
          values: its values by name, as typed: of flags of the training, or of hyper-parameters of the model.
          model_dir: its model directory.
        """
        chosen = {} if self.model is None else {"model": self.model}
        flags: dict[str, Any] = {**self._threads(), **chosen, **self.given, "model_dir": model_dir}
        flags |= {name: value for name, value in values.items() if name in _FLAGS}
        hparams = [f"{name}={value}" for name, value in values.items() if name not in _FLAGS]
        if is_grown(flags.get("model")):
            flags.pop("best_metric", None)  # is the study's, and nothing to a trial that has one evaluation
        if hparams:
            flags["hparams"] = [*flags.get("hparams", ()), *hparams]
        return [part for name, value in flags.items() for part in typed(name, value)]

    def check(self, values: Mapping[str, str], model_dir: str = "") -> TrainOptions:
        """Reads the arguments as the trial would, or one that has no model directory yet.

        Raises:
          UsageError: the training would refuse them.
        """
        options = parse_options(self.arguments(values, model_dir))
        check_training(options)
        return options

    def identity(self) -> list[str]:
        """What stays the same as long as the trials of a study can be compared, as arguments."""
        return [part for name in sorted(self.given.keys() - _ASIDE) for part in typed(name, self.given[name])]

    def _threads(self) -> dict[str, int]:
        """Threads for each of several trainings, so that they do not wait for each other's cores."""
        if self.parallel == 1:
            return {}
        share = max(1, usable_cores() // self.parallel)
        return dict.fromkeys(_THREADS, share)


def check_alone(strategy: str) -> None:
    """Refuses trials of several processes each.

    Raises:
      UsageError: the strategy, or TF_CONFIG, is of a cluster.
    """
    if strategy in ("parameter_server", "multi_worker"):
        raise UsageError(f"--strategy {strategy}: a trial is one process; use none or mirrored")
    if os.environ.get("TF_CONFIG"):
        raise UsageError("TF_CONFIG: names a cluster, but a trial is one process; unset it")


DOUBLE, INTEGER, DISCRETE, CATEGORICAL = "double", "integer", "discrete", "categorical"
LINEAR, LOG, REVERSE_LOG = "linear", "log", "reverse_log"
SCALES = (LINEAR, LOG, REVERSE_LOG)
SEARCHES = ("bayesian", "grid", "random")
FORMS = (
    "NAME=double:MIN:MAX, NAME=integer:MIN:MAX (both also with :log or :reverse_log behind), "
    "NAME=discrete:NUMBER:NUMBER:... or NAME=categorical:TEXT:TEXT:..."
)
YAML_ENDS = (".yaml", ".yml")
_FIXED = ("data_dir", "model_dir", "best_metric")
_WITHIN = 0.618  # of a range: a value that is no whole number by chance


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What a trial is given a value of: a hyper-parameter of the model, or a flag of the training.

    Attributes:
      name: its name.
      kind: DOUBLE, INTEGER, DISCRETE or CATEGORICAL.
      values: least and largest of a range; or all values, as they were typed.
      scale: one of SCALES; None: linear, or the tuner's own choice.
    """

    name: str
    kind: str
    values: tuple[str, ...]
    scale: str | None = None

    def __str__(self) -> str:
        return f"{self.name}={':'.join((self.kind, *self.values, *(() if self.scale is None else (self.scale,))))}"

    @property
    def tried(self) -> Iterator[str]:
        """Values that a trial may be given: of a range its ends and one within."""
        yield from self.values
        if self.kind == DOUBLE:
            least, largest = map(float, self.values)
            yield str(least + _WITHIN * (largest - least))

    @property
    def count(self) -> float:
        """How many values there are; infinity for a DOUBLE."""
        if self.kind == DOUBLE:
            return math.inf
        if self.kind == INTEGER:
            return int(self.values[1]) - int(self.values[0]) + 1
        return len(self.values)


def read_parameters(texts: Sequence[str], flag: str) -> tuple[Parameter, ...]:
    """The parameters of a space.

    Args:
      texts: `NAME=KIND:VALUES`, or the name of a YAML file that holds a mapping of names to KIND:VALUES.
      flag: the flag that they were given to, for messages.

    Raises:
      UsageError: one has none of the forms, or is given twice; or a file cannot be read.
    """
    found: dict[str, Parameter] = {}
    for name, rest, place in _entries(texts, flag):
        kind, *values = rest.split(":")
        if not name or kind not in (DOUBLE, INTEGER, DISCRETE, CATEGORICAL):
            raise UsageError(f"{place}: expected {FORMS}")
        if name in found:
            raise UsageError(f"{place}: {name} is given twice")
        found[name] = _parameter(name, kind, values, place)
    return tuple(found.values())


def check(parameter: Parameter, flag: str, read_trial: Callable[[str], object]) -> None:
    """Reads a training's arguments as a trial would, with values of the parameter.

    Args:
      parameter: what the trial is given a value of.
      flag: the flag that it was given to, for messages.
      read_trial: reads the arguments of a trial with a value; it raises UsageError if the training would refuse them.

    Raises:
      UsageError: no trial may be given the parameter, or a trial would refuse a value.
    """
    if parameter.name in _FIXED:
        raise UsageError(f"{flag} {parameter.name}: is the same for all trials of a study")
    for value in parameter.tried:
        try:
            read_trial(value)
        except UsageError as error:
            said = str(error).partition("\n")[0]
            raise UsageError(f"{flag} {parameter.name}: a trial with {value} would end with: {said}") from None


def check_grid(parameters: Sequence[Parameter]) -> None:
    """Refuses a grid over a range that has no steps.

    Raises:
      UsageError: a parameter is a DOUBLE.
    """
    double = next((parameter.name for parameter in parameters if parameter.kind == DOUBLE), None)
    if double is not None:
        raise UsageError(f"--search grid: {double} is a double, of which there is no grid; make it discrete")


def _entries(texts: Sequence[str], flag: str) -> Iterator[tuple[str, str, str]]:
    """Name, KIND:VALUES, and the place for messages."""
    for text in texts:
        if "=" not in text and text.endswith(YAML_ENDS):
            yield from ((name, rest, f"{flag} {text}: {name}: {rest}") for name, rest in _in_file(text, flag).items())
        else:
            name, _, rest = text.partition("=")
            yield name, rest, f"{flag} {text}"


def _in_file(path: str, flag: str) -> Mapping[str, str]:
    from schemas.spec.loader import parse_plain

    if not storage.exists(path):
        raise UsageError(f"{flag} {path}: no such file")
    found = parse_plain(storage.read_bytes(path), path)
    if not isinstance(found, dict) or not all(isinstance(rest, str) for rest in found.values()):
        raise UsageError(
            f"{flag} {path}: expected lines of the form NAME: KIND:VALUES, such as learning_rate: double:0.0001:0.1:log"
        )
    return found


def _parameter(name: str, kind: str, values: Sequence[str], place: str) -> Parameter:
    if kind == CATEGORICAL:
        if len(values) < 2 or len(set(values)) < len(values):
            raise UsageError(f"{place}: expected two or more different values, such as {name}=categorical:relu:tanh")
        return Parameter(name, kind, tuple(values))
    if kind == DISCRETE:
        numbers = [_number(value, float, place) for value in values]
        if len(values) < 2 or any(a >= b for a, b in itertools.pairwise(numbers)):
            raise UsageError(f"{place}: expected two or more numbers that rise, such as {name}=discrete:64:128:256")
        return Parameter(name, kind, tuple(values))
    if len(values) not in (2, 3) or (values[2:] and values[2] not in SCALES):
        raise UsageError(f"{place}: expected {name}={kind}:MIN:MAX, or with one of :{', :'.join(SCALES)} behind it")
    least, largest = (_number(value, int if kind == INTEGER else float, place) for value in values[:2])
    scale = values[2] if len(values) == 3 else None
    if least >= largest:
        raise UsageError(f"{place}: the range ends at {values[1]}, which is not above {values[0]}, where it begins")
    if least <= 0 and scale not in (None, LINEAR):
        raise UsageError(f"{place}: a {scale} scale has no place for {values[0]}; begin above 0, or use linear")
    return Parameter(name, kind, tuple(values[:2]), scale)


def _number(text: str, kind: type[int] | type[float], place: str) -> float:
    try:
        number = kind(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{place}: {text or 'nothing'} is no {'whole number' if kind is int else 'number'}")
    return number
