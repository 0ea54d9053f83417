"""How a study is searched, and the study in its file: its trials, what they were given and reported, how they ended.

It is an Optuna study in SQLite. What Optuna has told is on disk before anything depends on it, so a process may be
killed anywhere: the trials that it had running are given again, and go on from their last checkpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millrace.tune.space import (
    CATEGORICAL,
    DISCRETE,
    DOUBLE,
    FORMS,
    INTEGER,
    LOG,
    REVERSE_LOG,
    SEARCHES,
    Parameter,
    check_grid,
)
from schemas.errors import MillraceError, UsageError
from schemas.options import Options, at_least, option, positive_finite
from schemas.storage.json_files import parse_json

if TYPE_CHECKING:
    import optuna


PRUNERS = ("median", "hyperband", "none")
KEEP = ("all", "best")
TRIALS = 20
FIRST_FAILURES = 5  # trials that have all failed, before any has succeeded: the others would fail likewise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """How a study is searched.

    Raises:
      UsageError: a number is out of its range, or the search cannot be made over these parameters.
    """

    study: str = option("folder of the study: its trials, their models, a report", metavar="DIR")
    parameters: tuple[Parameter, ...] = option(
        "what to search: hyper-parameters of the model or flags of train, or a YAML file that lists them: " + FORMS,
        name="--space",
        metavar="NAME=KIND:VALUES",
    )
    trials: int = option("how many trials in all (default: %(default)s)", TRIALS, check=at_least(1))
    parallel_trials: int = option("how many run at a time; they share the cores (default: 1)", 1, check=at_least(1))
    failed_trials: int | None = option(
        f"give up after N failed trials (default: when the first {FIRST_FAILURES} have failed)", None, check=at_least(1)
    )
    search: str = option(
        "bayesian learns from earlier trials, grid tries all combinations (default: bayesian; a grid if there are no "
        "more combinations than --trials)",
        SEARCHES[0],
        choices=SEARCHES,
    )
    pruner: str = option(
        "end trials early whose evaluations are worse than others' median, or by Hyperband (default: median)",
        PRUNERS[0],
        choices=PRUNERS,
    )
    timeout_hours: float | None = option(
        "stop after H hours; the same command goes on later", None, metavar="H", check=positive_finite
    )
    keep_models: str = option(
        "the models to keep: of all trials, or only of the best; reports and logs stay (default: all)",
        KEEP[0],
        choices=KEEP,
    )

    def __post_init__(self) -> None:
        if not self.parameters:
            raise UsageError("--space: names nothing to search; give one hyper-parameter or more")
        super().__post_init__()
        if self.search == "grid":
            check_grid(self.parameters)

    @property
    def combinations(self) -> float:
        """How many trials there can be that differ; infinity if a parameter is any number of a range."""
        return math.prod(parameter.count for parameter in self.parameters)

    @property
    def is_grid(self) -> bool:
        """Whether all combinations are tried in turn, as far as there are trials: there is nothing to choose then."""
        return self.search == "grid" or self.combinations <= self.trials

    @property
    def most(self) -> int:
        """How many trials there are at most."""
        return int(min(self.trials, self.combinations)) if self.is_grid else self.trials


FILE = "study.db"
DONE, PRUNED, FAILED, UNFINISHED, WAITING = "done", "pruned", "failed", "unfinished", "waiting"
_NAME = "millrace"
_ASKED, _METRIC, _GIVEN, _REPEATS, _FOUND = "asked", "metric", "given", "repeats", "found"  # names of attributes
_EARLIER_MODEL = "dnn"  # of studies of release 0.2, which noted none, where no flag names another
_DIGITS = 6  # of a value that is any number of a range


@dataclasses.dataclass(frozen=True)
class Trial:
    """A trial.

    Attributes:
      number: its number, from 1, which it keeps if it is given again.
      values: what it was given, by name, as typed.
      state: DONE, PRUNED, FAILED, UNFINISHED or WAITING.
      value: its best value of the metric; None: none.
      step: the step of that value.
      why: why it has failed or was pruned.
      seconds: how long it took.
      evaluations: the metric's value by step.
    """

    number: int
    values: Mapping[str, str]
    state: str
    value: float | None = None
    step: int | None = None
    why: str = ""
    seconds: float = 0.0
    evaluations: Mapping[int, float] = dataclasses.field(default_factory=dict)

    @property
    def ended(self) -> bool:
        """Whether it will not be given again."""
        return self.state in (DONE, PRUNED, FAILED)


class Records:
    """The trials of a study.

    Args:
      settings: how it is searched.
      asked: what must be the same as long as its trials can be compared, by what it is called.
      higher: whether the larger value of the metric is the better one.
      seed: makes the values that are given follow from the trials before; None: they are random.
      resource: the steps between two evaluations, and those of the whole training.

    Raises:
      UsageError: Optuna is not installed, or the study's folder has another study.
      MillraceError: its file cannot be read.
    """

    def __init__(
        self,
        settings: Settings,
        asked: Mapping[str, Any],
        *,
        higher: bool,
        seed: int | None,
        resource: tuple[int, int],
    ) -> None:
        self._settings, self._seed = settings, seed
        self._path = os.path.join(settings.study, FILE)
        self._open: dict[int, optuna.Trial] = {}
        optuna = load_optuna()
        with self._explained():
            self._study = optuna.create_study(
                storage=_storage(self._path),
                study_name=_NAME,
                direction="maximize" if higher else "minimize",
                load_if_exists=True,
                pruner=_pruner(settings.pruner, *resource),
            )
            self.higher = self._study.direction == optuna.study.StudyDirection.MAXIMIZE
            found = self._study.user_attrs.get(_ASKED)
            if found is None:
                self._study.set_user_attr(_ASKED, dict(asked))
            else:
                found = {"model": _EARLIER_MODEL, **found}
        for name, value in asked.items():
            if found is not None and found.get(name) != parse_json(json.dumps(value)):
                raise UsageError(
                    f"--study {settings.study}: holds a study with another {name}: {_told(found.get(name))}, not "
                    f"{_told(value)}; use another --study, or ask for the same"
                )

    @property
    def metric(self) -> str | None:
        """The name of the metric that the trials have reported; None before the first evaluation."""
        with self._explained():
            return self._study.user_attrs.get(_METRIC)

    def note_metric(self, name: str) -> None:
        """Notes the name of the metric."""
        with self._explained():
            self._study.set_user_attr(_METRIC, name)

    def give_again(self) -> list[int]:
        """Makes the trials that an earlier process had running wait for this one. Returns their numbers."""
        optuna = load_optuna()
        running = [each for each in self._frozen() if each.state == optuna.trial.TrialState.RUNNING]
        repeated = {each.user_attrs.get(_REPEATS) for each in self._frozen()}
        numbers = {own.number: number for number, own in self._latest().items()}
        with self._explained():
            for each in running:
                if each.number not in repeated:  # else a process was killed between the two
                    self._study.enqueue_trial(each.params, user_attrs={_GIVEN: each.params, _REPEATS: each.number})
                self._study.tell(each.number, state=optuna.trial.TrialState.FAIL)
        return sorted(numbers[each.number] for each in running if each.number in numbers)

    def plan(self) -> None:
        """Has the combinations of a grid wait for their turn, as many as there are trials."""
        with self._explained():
            choices = [_choices(parameter) for parameter in self._settings.parameters]
            names = [parameter.name for parameter in self._settings.parameters]
            for combination in itertools.islice(itertools.product(*choices), self._settings.most):
                given = dict(zip(names, combination, strict=True))
                self._study.enqueue_trial(given, user_attrs={_GIVEN: given}, skip_if_exists=True)

    def begin(self) -> Trial:
        """The next trial, with its values."""
        with self._explained():
            self._study.sampler = _sampler(self._settings, self._seed, place=len(self._latest()))
            spaces = {parameter.name: _distribution(parameter) for parameter in self._settings.parameters}
            own = self._study.ask(fixed_distributions=spaces)
        number, frozen = next((n, each) for n, each in self._latest().items() if each.number == own.number)
        self._open[number] = own
        return self._trial(number, frozen)

    def report(self, number: int, step: int, value: float) -> bool:
        """Notes an evaluation of a trial that runs. Returns whether the trial is to be pruned."""
        with self._explained():
            self._open[number].report(value, step)
            return bool(self._open[number].should_prune())

    def end(
        self, number: int, state: str, *, best: tuple[float, int] | None, why: str = "", seconds: float = 0.0
    ) -> None:
        """Notes how a trial has ended.

        Args:
          number: the trial's number.
          state: DONE, PRUNED or FAILED.
          best: the best value of the metric, and its step; of a trial that is DONE never None.
          why: why it has failed or was pruned.
          seconds: how long it took.
        """
        optuna = load_optuna()
        states = optuna.trial.TrialState
        own = self._open.pop(number)
        with self._explained():
            value, step = best or (None, None)
            own.set_user_attr(_FOUND, {"value": value, "step": step, "why": why, "seconds": seconds})
            told = {DONE: states.COMPLETE, PRUNED: states.PRUNED, FAILED: states.FAIL}[state]
            self._study.tell(own, value if state == DONE else None, state=told)

    def trials(self) -> list[Trial]:
        """All trials, by number."""
        return [self._trial(number, each) for number, each in self._latest().items()]

    def _trial(self, number: int, each: Any) -> Trial:
        states = {"COMPLETE": DONE, "PRUNED": PRUNED, "FAIL": FAILED, "RUNNING": UNFINISHED, "WAITING": WAITING}
        given = {**each.user_attrs.get(_GIVEN, {}), **each.params}
        return Trial(
            number,
            {p.name: _text(p, given[p.name]) for p in self._settings.parameters if p.name in given},
            states[each.state.name],
            evaluations={s: v for s, v in sorted(each.intermediate_values.items()) if math.isfinite(v)},
            **each.user_attrs.get(_FOUND, {}),
        )

    def _latest(self) -> dict[int, Any]:
        """Each trial as it was last given, by number."""
        places: dict[int, int] = {}
        found: dict[int, Any] = {}
        for each in self._frozen():
            repeats = each.user_attrs.get(_REPEATS)
            places[each.number] = len(found) + 1 if repeats is None else places[repeats]
            found[places[each.number]] = each
        return found

    def _frozen(self) -> list[Any]:
        with self._explained():
            return list(self._study.get_trials(deepcopy=False))

    def _explained(self) -> contextlib.AbstractContextManager[None]:
        return _explained(self._path)


def recorded_model(study: str) -> str | None:
    """The model of a study's trials where no flag names it; None: there is no study in the folder yet.

    Raises:
      UsageError: Optuna is not installed.
      MillraceError: its file cannot be read.
    """
    path = os.path.join(study, FILE)
    if not os.path.exists(path):
        return None
    optuna = load_optuna()
    with _explained(path):
        storage = _storage(path)
        if _NAME not in optuna.get_all_study_names(storage):
            return None
        asked = optuna.load_study(study_name=_NAME, storage=storage).user_attrs.get(_ASKED)
    return None if asked is None else str(asked.get("model", _EARLIER_MODEL))


def _storage(path: str) -> Any:
    connect = {"creator": lambda: sqlite3.connect(path, timeout=60, check_same_thread=False)}
    return load_optuna().storages.RDBStorage(f"sqlite:///{FILE}", engine_kwargs=connect)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Errors of a study's file as errors of this command."""
    import sqlalchemy.exc

    optuna = load_optuna()
    try:
        yield
    except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        cause = getattr(error.__cause__ or error, "orig", None) or error.__cause__ or error
        said = str(cause).partition("\n")[0]
        raise MillraceError(
            f"{path}: the study cannot be read or written: {said}. Free some space if the disk is full, and "
            "run the command again; if the file is damaged, restore it, or use another --study"
        ) from error


def load_optuna() -> Any:
    """Optuna, which says nothing but errors.

    Raises:
      UsageError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        from schemas.source_distribution import how_to_install

        raise UsageError(f"a search for hyper-parameters needs Optuna: {how_to_install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _pruner(name: str, every: int, most: int) -> Any:
    pruners = load_optuna().pruners
    if name == "median":
        return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=every + 1)  # not by the first evaluation
    if name == "hyperband":
        return pruners.HyperbandPruner(min_resource=every, max_resource=max(most, every + 1))
    return pruners.NopPruner()


def _sampler(settings: Settings, seed: int | None, *, place: int) -> Any:
    """A sampler for one trial: what it draws follows from the seed and the trials before, however often it is begun."""
    samplers = load_optuna().samplers
    own = None if seed is None else (seed * 1_000_003 + place) % 2**32
    if settings.search == "random" or settings.is_grid:
        return samplers.RandomSampler(seed=own)
    # Optuna begins with 10 random trials; of few trials these would be all.
    return samplers.TPESampler(seed=own, n_startup_trials=max(3, min(10, settings.trials // 3)))


def _distribution(parameter: Parameter) -> Any:
    distributions = load_optuna().distributions
    log = parameter.scale in (LOG, REVERSE_LOG)
    if parameter.kind == DOUBLE:
        return distributions.FloatDistribution(*map(float, parameter.values), log=log)
    if parameter.kind == INTEGER:
        return distributions.IntDistribution(*map(int, parameter.values), log=log)
    return distributions.CategoricalDistribution(parameter.values)


def _choices(parameter: Parameter) -> Sequence[Any]:
    """All values of a parameter, as the study keeps them."""
    if parameter.kind in (CATEGORICAL, DISCRETE):
        return parameter.values
    return range(int(parameter.values[0]), int(parameter.values[1]) + 1)


def _text(parameter: Parameter, kept: Any) -> str:
    """A value as it is typed, from what the study keeps of it: on a reverse scale, its mirror image."""
    if parameter.kind in (CATEGORICAL, DISCRETE):
        return str(kept)
    number = int if parameter.kind == INTEGER else float
    least, largest = map(number, parameter.values)
    value = least + largest - kept if parameter.scale == REVERSE_LOG else kept
    if parameter.kind == INTEGER:
        return str(int(value))
    return str(min(max(float(f"{value:.{_DIGITS}g}"), least), largest))


def _told(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
