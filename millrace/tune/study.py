"""Runs a study: trials one after another. Optuna chooses their values, ends bad trials early, and keeps them in SQLite.

The process may be killed at any time. When the study continues, the trial that was running resumes from its last
checkpoint. Optuna sees the resumed trial as a new trial with the same values; both have the same folder.
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

from millrace.tune.space import TrialCommand, as_typed
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
HOPELESS_TRIALS = 5  # if so many first trials all fail, the study gives up
POLL_SECONDS = 0.2
_FOLDER = "folder"  # attribute of a trial: the number of the trial that it continues


class Study:
    """The trials of a study.

    Args:
      folder: the study's folder, on local disk.
      command: the training that all trials share.
      dataset: the dataset on which the trials are trained.
      metric: the metric by which trials are compared; None: the mean loss of an example.

    Attributes:
      path: the study's SQLite file.
      higher: whether a higher value of the metric is better.

    Raises:
      UsageError: the folder holds a study with another space, training or dataset.
      MillraceError: the study's file cannot be read.
    """

    def __init__(self, folder: str, command: TrialCommand, dataset: OpenDataset, metric: str | None) -> None:
        self._folder, self._command, self._dataset, self._metric = folder, command, dataset, metric
        self.path = os.path.join(folder, FILE)
        self.higher = metric is not None and higher_is_better(metric)
        trials_folder = os.path.join(folder, TRIALS_FOLDER)
        if not os.path.exists(self.path) and os.path.exists(trials_folder):
            raise UsageError(
                f"--study {folder}: has {TRIALS_FOLDER}/ but no {FILE}, so the values of these trials are unknown; use "
                "another --study, or move them away"
            )
        # Models in the study's folder are removed, so nothing in the folder may be a link to another place.
        names = [f"{TRIALS_FOLDER}/{name}" for name in storage.listdir(trials_folder)]
        folders.refuse_links(folder, folders.links_to(folder, [TRIALS_FOLDER, *names]))
        self._optuna = load_optuna()
        # A path may contain characters with a meaning in URLs, so a function gives the path to SQLite.
        connect = {"creator": lambda: sqlite3.connect(self.path, timeout=60, check_same_thread=False)}
        with explained(self.path):
            self._study = self._optuna.create_study(
                study_name="millrace",
                storage=self._optuna.storages.RDBStorage(f"sqlite:///{FILE}", engine_kwargs=connect),
                direction="maximize" if self.higher else "minimize",
                load_if_exists=True,
            )
            self._check_identity()
            self._requeue_interrupted()

    @property
    def metric(self) -> str:
        """The name of the metric by which trials are compared."""
        return self._metric or str(self._study.user_attrs.get("metric", "loss"))

    @property
    def trials(self) -> list[FrozenTrial]:
        """The trials that have ended, without interrupted trials that another trial continues."""
        # A resumed trial has the same folder as the interrupted trial, so only the last trial of each folder counts.
        last_by_folder = {self.model_dir(trial): trial for trial in self._study.trials}
        return [trial for trial in last_by_folder.values() if trial.state.is_finished()]

    @property
    def best(self) -> FrozenTrial | None:
        """The completed trial with the best value; None if no trial is complete."""
        complete = any(trial.state.name == "COMPLETE" for trial in self.trials)
        return self._study.best_trial if complete else None

    def values(self, trial: FrozenTrial | Trial) -> dict[str, str]:
        """Returns a trial's value of each parameter, formatted for a command line."""
        return {name: as_typed(trial.params[name]) for name in self._command.space if name in trial.params}

    def model_dir(self, trial: FrozenTrial | Trial) -> str:
        """Returns the folder of a trial. A trial that continues an interrupted one uses the same folder."""
        return os.path.join(self._folder, TRIALS_FOLDER, f"{trial.user_attrs.get(_FOLDER, trial.number):03d}")

    def result(self, trial: FrozenTrial) -> dict[str, Any]:
        """Returns a trial that has ended, for --json: number, state, values, best value, and evaluations by step."""
        return {
            "number": trial.number,
            "state": trial.state.name,
            "values": self.values(trial),
            "value": trial.value,
            "step": trial.user_attrs.get("step"),
            "reason": trial.user_attrs.get("reason", ""),
            "seconds": trial.duration.total_seconds() if trial.duration else 0.0,
            "evaluations": dict(trial.intermediate_values),
            "model_dir": self.model_dir(trial),
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
        """Runs trials until there are enough, or until the first five have all failed. Returns why the study has ended.

        Args:
          search: bayesian, random or grid.
          pruner: median, hyperband or none.
          trials: the total number of trials, including trials of earlier processes.
          hours: no trial begins after so many hours; None: no limit.
          seed: the seed of the search; None: another seed each time.
          keep_all: keep the models of all trials; False: only of the best trial.
          display: shows progress.

        Raises:
          KeyboardInterrupt: a signal came; the running trial resumes when the study continues.
        """
        deadline = math.inf if hours is None else time.monotonic() + 3600 * hours
        if search == "grid":
            trials = self._enqueue_grid(trials)
        self._study.pruner = self._pruner(pruner)
        before = len(self.trials)
        while len(ended := self.trials) < trials:
            if len(ended) - before >= HOPELESS_TRIALS and failure(ended):
                break
            if time.monotonic() > deadline:
                return f"--timeout_hours {hours:g} is over; run the command again to continue"
            trial = self.next_trial(search, trials, seed)
            values = " ".join(f"{name}={value}" for name, value in self.values(trial).items())
            display.line(f"trial {trial.number} ({len(ended) + 1} of {trials}): {values}")
            display.line(f"trial {trial.number} {self._train(trial, display)}")
            if not keep_all:
                self._remove_models()
        return counted(len(ended), "trials")

    def next_trial(self, search: str, trials: int, seed: int | None) -> Trial:
        """Begins the next trial: an interrupted or enqueued one if there is one, else a new one.

        Args:
          search: bayesian, random or grid; decides how the values of a new trial are chosen.
          trials: the total number of trials.
          seed: the seed of the search. The values depend on the seed and the number of the trial. None: they are
            random.
        """
        # Each trial has its own seed, so that a continued study draws what an uninterrupted one would have drawn.
        drawn = None if seed is None else (seed * 1_000_003 + len(self._study.trials)) % 2**32
        samplers = self._optuna.samplers
        self._study.sampler = samplers.RandomSampler(seed=drawn)
        if search == "bayesian":  # Optuna's 10 random trials at the start would be half of 20
            self._study.sampler = samplers.TPESampler(seed=drawn, n_startup_trials=max(3, min(10, trials // 3)))
        trial: Trial = self._study.ask(fixed_distributions=self._command.space)
        return trial

    def _train(self, trial: Trial, display: Display) -> str:
        """Trains a trial to its end and records how it ended. Returns a line that says so."""
        begin, before, states = time.monotonic(), self.best, self._optuna.trial.TrialState
        try:
            value, step = self._watch(trial, display)
        except (MillraceError, self._optuna.TrialPruned) as error:
            trial.set_user_attr("reason", str(error))
            self._study.tell(trial, state=states.FAIL if isinstance(error, MillraceError) else states.PRUNED)
            return f"ended after {duration(time.monotonic() - begin)}: {error}"
        trial.set_user_attr("step", step)
        self._study.tell(trial, value)
        best = f"; best before: trial {before.number}, {before.value:.4g}" if before else ""
        return f"{self.metric} {value:.4g} at step {step:,}, {duration(time.monotonic() - begin)}{best}"

    def _watch(self, trial: Trial, display: Display) -> tuple[float, int]:
        """Watches the evaluations of a trial's training. Returns the best value and its step.

        Raises:
          MillraceError: the training failed, or has no value of the metric.
          optuna.TrialPruned: the trial was ended early, because other trials were better.
        """
        values, model_dir = self.values(trial), self.model_dir(trial)
        max_steps = plan_training(self._dataset, self._command.options(values, model_dir)).max_steps
        best: tuple[float, int] | None = None
        process = TrainingProcess(self._command.arguments(values, model_dir), model_dir)
        try:
            exit_code = None
            while exit_code is None:
                exit_code = process.wait(POLL_SECONDS)  # first wait, then read: so the last evaluation is read too
                for evaluation in process.new_evaluations():
                    step, value = int(evaluation["global_step"]), self._value(evaluation)
                    display.update(f"trial {trial.number}: step {step:,} of {max_steps:,}, {self.metric} {value:.4g}")
                    if best is None or math.isnan(best[0]) or (value > best[0] if self.higher else value < best[0]):
                        best = value, step
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
        """Returns the metric's value in an evaluation; NaN if it is undefined. Notes the metric's name in the study."""
        name = best_metric(evaluation, self._metric).name
        if name != self.metric:
            self._study.set_user_attr("metric", name)
        return math.nan if evaluation[name] is None else float(evaluation[name])

    def _enqueue_grid(self, trials: int) -> int:
        """Enqueues combinations of values, at most `trials`. Returns how many there are in all."""
        combinations = list(itertools.islice(self._command.grid(), trials))
        for combination in combinations:
            self._study.enqueue_trial(combination, skip_if_exists=True)
        return len(combinations)

    def _check_identity(self) -> None:
        """Refuses to continue a study with another space, training or dataset."""
        identity = {**self._command.identity(), "run of the dataset": [self._dataset.run]}
        recorded = self._study.user_attrs.get("identity", identity)
        for name, value in identity.items():
            if recorded[name] != value:
                raise UsageError(
                    f"--study {self._folder}: holds a study with another {name}: {' '.join(recorded[name])}, not "
                    f"{' '.join(value)}; use another --study, or give the same"
                )
        self._study.set_user_attr("identity", identity)

    def _requeue_interrupted(self) -> None:
        """Enqueues the values of an interrupted trial again, so that it resumes in its folder."""
        for trial in self._study.trials:
            if trial.state.name == "RUNNING":
                self._study.tell(trial.number, state=self._optuna.trial.TrialState.FAIL)
                folder = trial.user_attrs.get(_FOLDER, trial.number)
                self._study.enqueue_trial(trial.params, user_attrs={_FOLDER: folder})

    def _pruner(self, name: str) -> Any:
        """Returns the pruner that ends bad trials early."""
        pruners = self._optuna.pruners
        plan = plan_training(self._dataset, self._command.check())
        every = plan.save_checkpoints_steps
        match name:
            case "median":
                return pruners.MedianPruner(
                    n_startup_trials=4, n_warmup_steps=every + 1
                )  # + 1: the first evaluation does not count
            case "hyperband":
                return pruners.HyperbandPruner(min_resource=every, max_resource=max(plan.max_steps, every + 1))
            case _:
                return pruners.NopPruner()

    def _remove_models(self) -> None:
        """Removes the checkpoints and exports of all ended trials except the best. Reports and logs stay."""
        best = self.best
        for model_dir in (self.model_dir(t) for t in self.trials if best is None or t.number != best.number):
            for name in storage.listdir(model_dir):
                if name in ("export", "eval"):
                    folders.remove(os.path.join(model_dir, name))
                elif name.startswith(("checkpoint", "model.ckpt-")):
                    os.remove(os.path.join(model_dir, name))


def failure(trials: Sequence[FrozenTrial]) -> str:
    """Returns why the first trial failed, if all trials failed; else ''."""
    if not trials or any(trial.state.name != "FAIL" for trial in trials):
        return ""
    return f"trial {trials[0].number}: {trials[0].user_attrs.get('reason', 'interrupted')}"


@contextlib.contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns errors of Optuna's storage into a MillraceError that names the study's file."""
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
    """Imports Optuna, and makes it print errors only.

    Raises:
      UsageError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise UsageError(f"a search for hyper-parameters needs Optuna: {how_to_install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
