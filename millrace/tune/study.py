"""A study: trials one after another, whose values and results are in an Optuna study in SQLite.

The process may be killed at any time. The trial that was running then goes on from its last checkpoint when the study
continues: Optuna has its values.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millrace.tune.space import TrialCommand
from millrace.tune.trial import TrainingProcess
from schemas import storage
from schemas.command import duration
from schemas.dataset import OpenDataset
from schemas.display import Display
from schemas.errors import MillraceError, UsageError, counted
from schemas.source_distribution import how_to_install
from schemas.storage import folders
from trainer.loop.plan import plan_training
from trainer.spec.metrics import best_metric, higher_is_better

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

FILE, TRIALS_FOLDER = "study.db", "trials"
HOPELESS_TRIALS = 5  # if the first trials have all failed, the others would, too
POLL_SECONDS = 0.2


class Study:
    """The trials of a study.

    Args:
      folder: the study's folder, on local disk.
      command: the training that every trial is.
      dataset: what the trials are trained on.
      metric: the metric that compares trials; None: the loss for an example.

    Attributes:
      path: the study's file.
      higher: whether a higher value of the metric is better.

    Raises:
      UsageError: the folder holds a study of another space, training or dataset.
      MillraceError: the study's file cannot be read.
    """

    def __init__(self, folder: str, command: TrialCommand, dataset: OpenDataset, metric: str | None) -> None:
        self._folder, self._command, self._dataset, self._metric = folder, command, dataset, metric
        self.path = os.path.join(folder, FILE)
        self.higher = metric is not None and higher_is_better(metric)
        if not os.path.exists(self.path) and os.path.exists(os.path.join(folder, TRIALS_FOLDER)):
            raise UsageError(
                f"--study {folder}: has {TRIALS_FOLDER}/ but no {FILE}, so the values of these trials are unknown; use "
                "another --study, or move them away"
            )
        self._optuna = load_optuna()
        # A path may hold characters that mean something in a URL, so SQLite gets it from here.
        connect = {"creator": lambda: sqlite3.connect(self.path, timeout=60, check_same_thread=False)}
        with explained(self.path):
            self._study = self._optuna.create_study(
                study_name="millrace",
                storage=self._optuna.storages.RDBStorage(f"sqlite:///{FILE}", engine_kwargs=connect),
                direction="maximize" if self.higher else "minimize",
                load_if_exists=True,
            )
            self._check_identity()

    @property
    def metric(self) -> str:
        """The name of the metric."""
        return self._metric or str(self._study.user_attrs.get("metric", "loss"))

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that have ended."""
        return [trial for trial in self._study.trials if trial.state.is_finished()]

    @property
    def best(self) -> FrozenTrial | None:
        """The completed trial with the best value; None if no trial is complete."""
        complete = any(trial.state.name == "COMPLETE" for trial in self.trials)
        return self._study.best_trial if complete else None

    def values(self, trial: FrozenTrial) -> dict[str, str]:
        """A trial's value of each parameter, as typed on a command line."""
        return {p.name: p.as_typed(trial.params[p.name]) for p in self._command.parameters if p.name in trial.params}

    def result(self, trial: FrozenTrial) -> dict[str, Any]:
        """A trial that has ended, for --json: its number, state, values, best value and evaluations by step."""
        return {
            "number": trial.number,
            "state": trial.state.name,
            "values": self.values(trial),
            "value": trial.value,
            "step": trial.user_attrs.get("step"),
            "reason": trial.user_attrs.get("reason", ""),
            "seconds": trial.duration.total_seconds() if trial.duration else 0.0,
            "evaluations": dict(trial.intermediate_values),
            "model_dir": self._model_dir(trial.number),
        }

    def run(
        self,
        *,
        search: str,
        pruner: str,
        trials: int,
        hours: float | None,
        seed: int | None,
        keep_all: bool,
        display: Display,
    ) -> str:
        """Runs trials until there are enough. Returns why the study has ended.

        Args:
          search: bayesian, random or grid.
          pruner: median, hyperband or none.
          trials: how many trials there are in all, with those of earlier processes.
          hours: begins no trial after so many hours; None: no limit.
          seed: of the search; None: another one each time.
          keep_all: keep the models of all trials, not only of the best.
          display: where progress is shown.

        Raises:
          MillraceError: the first `HOPELESS_TRIALS` have all failed, or the folder of one is a link.
          KeyboardInterrupt: a signal came; the running trial goes on when the study continues.
        """
        # Models are removed below the study's folder, so nothing in it may lead elsewhere.
        names = [f"{TRIALS_FOLDER}/{name}" for name in storage.listdir(os.path.join(self._folder, TRIALS_FOLDER))]
        folders.refuse_links(self._folder, folders.links_to(self._folder, [TRIALS_FOLDER, *names]))
        deadline = math.inf if hours is None else time.monotonic() + 3600 * hours
        if search == "grid":
            trials = self._enqueue_grid(trials)
        self._study.pruner = self._pruner(pruner)
        before = len(self.trials)
        while True:
            ended = self.trials
            if len(ended) - before >= HOPELESS_TRIALS and all(trial.state.name == "FAIL" for trial in ended):
                raise MillraceError(f"given up after {len(ended)} failed trials: {failures(ended)}")
            if len(ended) >= trials:
                return counted(len(ended), "trials")
            if time.monotonic() > deadline:
                return f"--timeout_hours {hours:g} is over; run the command again to continue"
            self._train(self.next_trial(search, trials, seed), display, trials)
            if not keep_all:
                self._remove_models()

    def next_trial(self, search: str, trials: int, seed: int | None) -> Trial:
        """The trial that was interrupted, else a new one. What it draws follows from the seed and its number.

        Args: see `run`.
        """
        interrupted = next((trial for trial in self._study.trials if trial.state.name == "RUNNING"), None)
        number = len(self._study.trials) if interrupted is None else interrupted.number
        drawn = None if seed is None else (seed * 1_000_003 + number) % 2**32
        samplers = self._optuna.samplers
        self._study.sampler = samplers.RandomSampler(seed=drawn)
        if search == "bayesian":  # Optuna begins with 10 random trials, which would be half of 20
            self._study.sampler = samplers.TPESampler(seed=drawn, n_startup_trials=max(3, min(10, trials // 3)))
        trial: Trial
        if interrupted is None:
            trial = self._study.ask()
        else:
            trial = self._optuna.trial.Trial(self._study, interrupted._trial_id)  # private: its id in the storage
        for parameter in self._command.parameters:
            parameter.suggest(trial)
        return trial

    def _train(self, trial: Trial, display: Display, trials: int) -> None:
        """Trains a trial to its end, and records its best value of the metric, or why it has failed."""
        values = {p.name: p.as_typed(trial.params[p.name]) for p in self._command.parameters}
        typed = " ".join(f"{name}={value}" for name, value in values.items())
        display.line(f"trial {trial.number} ({len(self.trials) + 1} of {trials}): {typed}")
        begin = time.monotonic()
        states, best = self._optuna.trial.TrialState, self.best
        try:
            value, step = self._watch(trial, values, display)
        except (MillraceError, self._optuna.TrialPruned) as error:
            trial.set_user_attr("reason", str(error))
            self._study.tell(trial, state=states.FAIL if isinstance(error, MillraceError) else states.PRUNED)
            display.line(f"trial {trial.number} ended after {duration(time.monotonic() - begin)}: {error}")
            return
        trial.set_user_attr("step", step)
        self._study.tell(trial, value)
        before = f"; best before: trial {best.number}, {best.value:.4g}" if best else ""
        took = duration(time.monotonic() - begin)
        display.line(f"trial {trial.number} {self.metric} {value:.4g} at step {step:,}, {took}{before}")

    def _watch(self, trial: Trial, values: Mapping[str, str], display: Display) -> tuple[float, int]:
        """Watches the evaluations of a trial's training. Returns the best value and its step.

        Raises:
          MillraceError: the training failed, or has no value of the metric.
          optuna.TrialPruned: other trials were better.
        """
        model_dir = self._model_dir(trial.number)
        max_steps = plan_training(self._dataset, self._command.options(values, model_dir)).max_steps
        reported = self._study.trials[trial.number].intermediate_values  # before an interruption
        best: tuple[float, int] | None = None
        process = TrainingProcess(self._command.arguments(values, model_dir), model_dir)
        try:
            exit_code = None
            while exit_code is None:
                exit_code = process.wait(POLL_SECONDS)  # before its evaluations, so that the last one is read, too
                for evaluation in process.new_evaluations():
                    step, value = int(evaluation["global_step"]), self._value(evaluation)
                    display.update(f"trial {trial.number}: step {step:,} of {max_steps:,}, {self.metric} {value:.4g}")
                    if best is None or math.isnan(best[0]) or (value > best[0] if self.higher else value < best[0]):
                        best = value, step
                    if step not in reported:
                        trial.report(value, step)
                    if step < max_steps and trial.should_prune():
                        raise self._optuna.TrialPruned(
                            f"pruned: {self.metric} {value:.4g} at step {step:,}, where others were better"
                        )
            if exit_code:
                raise process.failure()
        finally:
            process.end()
        if best is None or math.isnan(best[0]):
            raise MillraceError(f"no evaluation had a {self.metric} that is a number")
        return best

    def _value(self, evaluation: Mapping[str, Any]) -> float:
        name = best_metric(evaluation, self._metric).name
        if name != self.metric:
            self._study.set_user_attr("metric", name)
        return math.nan if evaluation[name] is None else float(evaluation[name])

    def _model_dir(self, number: int) -> str:
        return os.path.join(self._folder, TRIALS_FOLDER, f"{number:03d}")

    def _enqueue_grid(self, trials: int) -> int:
        """Has combinations wait for their turn, at most so many. Returns how many there are in all."""
        names = [parameter.name for parameter in self._command.parameters]
        choices = [parameter.choices or () for parameter in self._command.parameters]
        combinations = list(itertools.islice(itertools.product(*choices), trials))
        for combination in combinations:
            self._study.enqueue_trial(dict(zip(names, combination, strict=True)), skip_if_exists=True)
        return len(combinations)

    def _check_identity(self) -> None:
        identity = {
            "space": [str(parameter) for parameter in self._command.parameters],
            "training": self._command.identity(),
            "run of the dataset": [self._dataset.run],
        }
        recorded = self._study.user_attrs.get("identity", identity)
        for name, value in identity.items():
            if recorded[name] != value:
                raise UsageError(
                    f"--study {self._folder}: holds a study with another {name}: {' '.join(recorded[name])}, not "
                    f"{' '.join(value)}; use another --study, or give the same"
                )
        self._study.set_user_attr("identity", identity)

    def _pruner(self, name: str) -> Any:
        pruners = self._optuna.pruners
        first = {parameter.name: parameter.values[0] for parameter in self._command.parameters}
        plan = plan_training(self._dataset, self._command.options(first))
        every = plan.save_checkpoints_steps
        match name:
            case "median":
                return pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=every + 1)  # not by the first evaluation
            case "hyperband":
                return pruners.HyperbandPruner(min_resource=every, max_resource=max(plan.max_steps, every + 1))
            case _:
                return pruners.NopPruner()

    def _remove_models(self) -> None:
        """Removes checkpoints and exports of the trials that have ended, but for the best. Reports and logs stay."""
        best = self.best
        for trial in self.trials:
            model_dir = self._model_dir(trial.number)
            for name in storage.listdir(model_dir) if best is None or trial.number != best.number else ():
                if name in ("export", "eval"):
                    folders.remove(os.path.join(model_dir, name))
                elif name.startswith(("checkpoint", "model.ckpt-")):
                    os.remove(os.path.join(model_dir, name))


def failures(trials: Sequence[FrozenTrial]) -> str:
    """Why trials have failed: each reason once, with the number of its first trial."""
    first = {trial.user_attrs["reason"]: trial.number for trial in reversed(trials)}
    return "\n".join(f"trial {number}: {reason}" for reason, number in sorted(first.items(), key=lambda item: item[1]))


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns errors of Optuna's storage into a MillraceError that names the file."""
    import sqlalchemy.exc

    try:
        yield
    except (load_optuna().exceptions.StorageInternalError, sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        cause = getattr(error.__cause__ or error, "orig", None) or error.__cause__ or error
        raise MillraceError(
            f"{path}: the study cannot be read or written: {str(cause).splitlines()[0]}. Free some space if the disk "
            "is full, and run the command again; if the file is damaged, restore it, or use another --study"
        ) from error


def load_optuna() -> Any:
    """Imports Optuna, and has it print errors only.

    Raises:
      UsageError: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError(f"a search for hyper-parameters needs Optuna: {how_to_install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
