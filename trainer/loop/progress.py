"""Training progress: a line that is updated in place on a terminal, or a new line every ten seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import tensorflow as tf

TERMINAL_SECS = 0.5
LOG_SECS = 10.0


class Display:
    """Writes progress: a status line that the next one replaces, and permanent lines. `quiet` writes nothing."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._quiet = quiet
        self.is_terminal = self._stream.isatty()
        self._open = False

    def update(self, text: str) -> None:
        """Replaces the status line on a terminal; elsewhere writes another line."""
        if self.is_terminal:
            self._write(f"\r{text}\x1b[K")
            self._open = True
        else:
            self._write(f"{text}\n")

    def line(self, text: str) -> None:
        """Writes a permanent line."""
        self._write(f"\r{text}\x1b[K\n" if self._open else f"{text}\n")
        self._open = False

    def close(self) -> None:
        """Ends the status line."""
        if self._open:
            self._write("\n")
            self._open = False

    def _write(self, text: str) -> None:
        if self._quiet:
            return
        self._stream.write(text)
        self._stream.flush()


def rate_limited(display: Display) -> Callable[[str], None]:
    """A function that updates a display: always on a terminal, elsewhere at most every `LOG_SECS`."""
    last = -LOG_SECS

    def update(text: str) -> None:
        nonlocal last
        if display.is_terminal or time.monotonic() - last >= LOG_SECS:
            last = time.monotonic()
            display.update(text)

    return update


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Shows step, epoch, steps and examples per second, and the loss. Fetches them only when an update is due."""

    def __init__(self, display: Display, *, max_steps: int, batch_size: int, steps_an_epoch: float) -> None:
        self._display = display
        self._max_steps = max_steps
        self._batch_size = batch_size
        self._steps_an_epoch = steps_an_epoch
        self._every = TERMINAL_SECS if display.is_terminal else LOG_SECS
        self._fetches: Any = None
        self._runs = 0
        self._seconds = 0.0
        self._since = 0.0
        self._next = 0.0

    def begin(self) -> None:
        loss = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.LOSSES)[-1]  # Estimator adds its loss last
        self._fetches = {"step": tf.compat.v1.train.get_global_step(), "loss": loss}

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._next = time.monotonic() + self._every
        self._runs, self._seconds = 0, 0.0

    def before_run(self, run_context: Any) -> Any:
        self._since = time.monotonic()
        return tf.compat.v1.train.SessionRunArgs(self._fetches) if self._since >= self._next else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        now = time.monotonic()
        self._runs += 1
        self._seconds += now - self._since  # excludes evaluations, which run between two steps
        if run_values.results is None:
            return
        rate = self._runs / max(self._seconds, 1e-9)
        step = int(run_values.results["step"])
        self._display.update(
            f"step {step:,} of {self._max_steps:,} (epoch {step / self._steps_an_epoch:.1f}), {rate:,.0f} steps/s, "
            f"{rate * self._batch_size:,.0f} examples/s, loss {float(run_values.results['loss']):.4g}"
        )
        self._next = now + self._every
        self._runs, self._seconds = 0, 0.0

    def end(self, session: Any) -> None:
        self._display.close()
