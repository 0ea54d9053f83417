"""A study: trials one after another, or some at a time, until there are enough or the time is up.

What a study says while it runs: a line when a trial begins and ends, and how far all of it is.
"""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Mapping

from millrace.tune.records import DONE, FAILED, FIRST_FAILURES, PRUNED, Records, Settings, Trial
from millrace.tune.space import TrialCommand
from millrace.tune.trainings import Training
from schemas import interrupts, storage
from schemas.command import duration
from schemas.dataset import Dataset
from schemas.display import TERMINAL_SECS, Display
from schemas.errors import MillraceError, UsageError, counted
from schemas.storage import folders
from trainer.loop.plan import plan_training
from trainer.model_dir.model_json import Metrics
from trainer.spec.metrics import BestMetric, best_metric

LOG_SECONDS = 30.0


class Progress(Display):
    """Writes progress: lines that stay, and on a terminal a status line below them. `quiet` writes nothing.

    Args:
      most: how many trials there are at most.
      metric: what the metric is called, once that is known.
    """

    def __init__(self, most: int, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.metric = "value"
        self._most = most
        self._begun = time.monotonic()
        self._share_before: float | None = None
        self._next = self._begun + LOG_SECONDS

    def ended(self, trial: Trial, best: Trial | None) -> None:
        """Says how a trial has ended, and which is the best so far."""
        self.line(
            f"trial {trial.number} {described(trial, self.metric)}, {duration(trial.seconds)}{_best(best, trial)}"
        )

    def show(self, ended: int, running: list[float], best: Trial | None) -> None:
        """Says how far the study is, if it is time to.

        Args:
          ended: how many trials have ended.
          running: of each that runs, the share of its steps.
          best: the best trial so far.
        """
        share = min(1.0, (ended + sum(running)) / self._most)
        if self._share_before is None:
            self._share_before = share
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (TERMINAL_SECS if self.is_terminal else LOG_SECONDS)
        done = share - self._share_before
        left = f", {duration((now - self._begun) * (1 - share) / done)} left" if done > 0 else ""
        text = f"{100 * share:.0f} %: {ended} of {counted(self._most, 'trials')} ended, {len(running)} running{left}"
        if best is not None:
            text += f"; best: trial {best.number}, {self.metric} {best.value:.4g}"
        self.update(text)


def described(trial: Trial, metric: str) -> str:
    """How a trial has ended."""
    found = "" if trial.value is None else f"{metric} {trial.value:.4g} at step {trial.step:,}"
    if trial.state == DONE:
        return found
    return ": ".join(part for part in (trial.state, trial.why or found) if part)


def given(trial: Trial) -> str:
    """What a trial was given, as typed."""
    return " ".join(f"{name}={value}" for name, value in trial.values.items())


def _best(best: Trial | None, trial: Trial) -> str:
    if best is None:
        return ""
    return "; the best so far" if best.number == trial.number else f"; best: trial {best.number}, {best.value:.4g}"


POLL_SECONDS = 0.1
TRIALS_FOLDER = "trials"
_BEFORE_END = 0.9  # of a training: then come its exports and its report
# What a trial leaves that takes room; how it went stays.
_MODEL_FILES = ("checkpoint", "model.ckpt-")
_MODEL_FOLDERS = ("export", "eval")


def trial_dir(study: str, number: int) -> str:
    """The model directory of a trial."""
    return os.path.join(study, TRIALS_FOLDER, f"{number:03d}")


def best_of(trials: list[Trial], *, higher: bool) -> Trial | None:
    """The trial that is done and has the best value; the first of several. None where none is done."""
    done = [trial for trial in trials if trial.state == DONE and trial.value is not None]
    return max(done, key=lambda trial: (trial.value or 0) * (1 if higher else -1), default=None)


@dataclasses.dataclass
class _Running:
    """A trial that runs.

    Attributes:
      trial: what it was given.
      training: its process.
      max_steps: those of its training.
      begun: when it began.
      best: its best value so far, and the step of that.
      step: that of its last evaluation.
      pruned: why it was pruned, if it was.
      failed: why it has failed, if that was found out here.
    """

    trial: Trial
    training: Training
    max_steps: int
    begun: float
    best: tuple[float, int] | None = None
    step: int = 0
    pruned: str = ""
    failed: str = ""


class Study:
    """The trials of a study, from the first to the last.

    Args:
      records: where they are noted.
      settings: how the study is searched.
      command: the training that each trial is.
      dataset: what they are trained on.
      metric: the metric that compares them; None: that of the first evaluation by which the best export is chosen.
      progress: says what happens.
    """

    def __init__(
        self,
        records: Records,
        settings: Settings,
        command: TrialCommand,
        dataset: Dataset,
        metric: str | None,
        progress: Progress,
    ) -> None:
        self._records, self._settings, self._command, self._dataset = records, settings, command, dataset
        self._metric, self._progress = metric or records.metric, progress
        self._progress.metric = self._metric or self._progress.metric
        self._running: list[_Running] = []
        self._trials: list[Trial] = []  # as they were when the last one ended
        self._failed_before = 0  # in earlier processes

    @property
    def _best(self) -> Trial | None:
        return best_of(self._trials, higher=self._records.higher)

    def run(self) -> str:
        """Runs trials until there are enough. Returns why it has ended.

        Raises:
          MillraceError: so many trials have failed that it was given up, or the folder of one is a link.
          KeyboardInterrupt: a signal came; trials that ran will go on when the study is taken up.
        """
        hours = self._settings.timeout_hours
        deadline = math.inf if hours is None else time.monotonic() + 3600 * hours
        self._take_up()
        try:
            while True:
                interrupts.check()
                ended = sum(trial.ended for trial in self._trials)
                if time.monotonic() > deadline:
                    return f"--timeout_hours {hours:g} are over; run the command again to go on"
                if ended >= self._settings.most and not self._running:
                    return counted(self._settings.most, "trials")
                self._give_up()
                if len(self._running) < min(self._settings.parallel_trials, self._settings.most - ended):
                    self._begin()
                for own in [*self._running]:
                    self._look_at(own)
                shares = [_BEFORE_END * min(1.0, own.step / own.max_steps) for own in self._running]
                self._progress.show(ended, shares, self._best)
                time.sleep(POLL_SECONDS)
        finally:
            for own in self._running:
                own.training.end()
            for own in self._running:
                own.training.wait()

    def _take_up(self) -> None:
        study = self._settings.study  # models are removed below it
        trials = [f"{TRIALS_FOLDER}/{name}" for name in storage.listdir(os.path.join(study, TRIALS_FOLDER))]
        folders.refuse_links(study, folders.links_to(study, [TRIALS_FOLDER, *trials]))
        before = self._records.trials()
        again = self._records.give_again()
        ended = sum(trial.ended for trial in before)
        if before:
            self._progress.line(f"goes on  a study with {counted(ended, 'ended trials')}")
        for number in again:
            self._progress.line(f"trial {number} was interrupted: it goes on from its last checkpoint")
        if self._settings.is_grid:
            self._records.plan()
        self._trials = self._records.trials()
        self._failed_before = sum(trial.state == FAILED for trial in self._trials)

    def _begin(self) -> None:
        trial = self._records.begin()
        model_dir = trial_dir(self._settings.study, trial.number)
        argv = self._command.arguments(trial.values, model_dir)
        self._progress.line(f"trial {trial.number} of {self._settings.most}: {given(trial)}")
        try:
            max_steps = plan_training(self._dataset, self._command.check(trial.values, model_dir)).max_steps
        except UsageError as error:  # the ends of the space were checked, not all that lies between
            self._end(trial.number, FAILED, None, str(error).partition("\n")[0], 0.0)
            return
        training = Training(argv, model_dir, self._settings.study)
        self._running.append(_Running(trial, training, max_steps, time.monotonic()))

    def _look_at(self, own: _Running) -> None:
        """Takes in what a trial has reported, and how it has ended."""
        code = own.training.code  # before its evaluations, of which there are no more then
        for evaluation in own.training.evaluations() or ():
            if int(evaluation["global_step"]) > own.step and not own.pruned and not own.failed:
                self._take_in(own, evaluation)
        if code is None:
            if own.pruned or own.failed:
                own.training.end()
            return
        self._running.remove(own)
        state, why = DONE, ""
        if own.failed or (code and not own.pruned):
            state, why = FAILED, own.failed or own.training.why()
        elif own.pruned:  # even if it had ended by itself meanwhile: how fast trials are decides nothing
            state, why = PRUNED, own.pruned
        elif own.best is None:
            state, why = FAILED, f"no evaluation had a value of {self._metric or 'the metric'} that is a number"
        seconds = time.monotonic() - own.begun
        self._end(own.trial.number, state, own.best, why, seconds)

    def _end(self, number: int, state: str, found: tuple[float, int] | None, why: str, seconds: float) -> None:
        """Notes and says how a trial has ended."""
        self._records.end(number, state, best=found, why=why, seconds=seconds)
        self._trials = self._records.trials()
        self._progress.ended(self._trials[number - 1], self._best)
        if self._settings.keep_models == "best":
            remove_models(self._settings.study, self._trials, self._best)

    def _take_in(self, own: _Running, evaluation: Metrics) -> None:
        try:
            measure = self._measure(evaluation)
        except MillraceError as error:
            own.failed = str(error)
            return
        step = own.step = int(evaluation["global_step"])
        found: float | None = evaluation[measure.name]
        value = math.nan if found is None else found
        if measure.improves(value, own.best[0] if own.best else None):
            own.best = value, step
        if self._records.report(own.trial.number, step, value) and step < own.max_steps:
            own.pruned = f"{measure.name} {value:.4g} at step {step:,}, where others were better"

    def _measure(self, evaluation: Metrics) -> BestMetric:
        """The metric, in the direction of the study.

        Raises:
          MillraceError: the evaluation has no such metric.
        """
        measure = best_metric(evaluation, self._metric)
        if measure.higher != self._records.higher:
            word = "higher" if self._records.higher else "lower"
            raise MillraceError(f"no metric of which a {word} value is better; name one with --best_metric")
        if self._records.metric is None:
            self._records.note_metric(measure.name)
        self._metric = self._progress.metric = measure.name
        return measure

    def _give_up(self) -> None:
        failed = [trial for trial in self._trials if trial.state == FAILED]
        most = self._settings.failed_trials
        lately = len(failed) - self._failed_before
        hopeless = lately >= FIRST_FAILURES and not any(trial.state in (DONE, PRUNED) for trial in self._trials)
        if hopeless or (most is not None and len(failed) >= most):
            raise MillraceError(f"given up after {counted(len(failed), 'failed trials')}: {reasons(failed)}")


def reasons(failed: list[Trial]) -> str:
    """Why trials have failed, each reason once, with the number of the first."""
    first: Mapping[str, int] = {trial.why: trial.number for trial in reversed(failed)}
    return "\n".join(f"trial {number}: {why}" for why, number in sorted(first.items(), key=lambda item: item[1]))


def remove_models(study: str, trials: list[Trial], best: Trial | None) -> None:
    """Removes checkpoints and exports of trials that have ended, but for the best; reports and logs stay."""
    for trial in trials:
        folder = trial_dir(study, trial.number)
        if not trial.ended or trial == best or not os.path.isdir(folder):
            continue
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if name in _MODEL_FOLDERS:
                folders.remove(path)
            elif name.startswith(_MODEL_FILES):
                os.remove(path)
