"""What a study says while it runs: a line when a trial begins and ends, and how far all of it is."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from schemas.command import duration
from trainer.tuning.records import DONE, Trial

TERMINAL_SECONDS, LOG_SECONDS = 0.5, 30.0


class Progress:
    """Writes progress: lines that stay, and on a terminal a status line below them. `quiet` writes nothing.

    Args:
      most: how many trials there are at most.
      metric: what the metric is called, once that is known.
    """

    def __init__(self, most: int, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.metric = "value"
        self._most, self._quiet = most, quiet
        self._stream = sys.stderr if stream is None else stream
        self._begun = time.monotonic()
        self._share_before: float | None = None
        self._next = self._begun + LOG_SECONDS
        self._open = False

    def line(self, text: str) -> None:
        """Writes a line that stays."""
        self._write(f"\r{text}\x1b[K\n" if self._open else f"{text}\n")
        self._open = False

    def ended(self, trial: Trial, best: Trial | None) -> None:
        """Says how a trial has ended, and which is the best so far."""
        self.line(
            f"trial {trial.number} {described(trial, self.metric)}, {duration(trial.seconds)}{_best(best, trial)}"
        )

    def update(self, ended: int, running: list[float], best: Trial | None) -> None:
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
        terminal = self._stream.isatty()
        self._next = now + (TERMINAL_SECONDS if terminal else LOG_SECONDS)
        done = share - self._share_before
        left = f", {duration((now - self._begun) * (1 - share) / done)} left" if done > 0 else ""
        text = f"{100 * share:.0f} %: {ended} of {self._most} trials ended, {len(running)} running{left}"
        if best is not None:
            text += f"; best: trial {best.number}, {self.metric} {best.value:.4g}"
        self._write(f"\r{text}\x1b[K" if terminal else f"{text}\n")
        self._open = terminal

    def _write(self, text: str) -> None:
        if not self._quiet:
            self._stream.write(text)
            self._stream.flush()


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
