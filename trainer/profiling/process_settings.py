"""Settings that a process or a graph takes once: a training with each, in a process of its own, side by side.

TensorFlow starts its threads once, and the ways that one session trains in share the shape of their batches. So the
training as it is and each changed one are processes, which wait for each other and take turns.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from schemas import interrupts
from schemas.errors import MillraceError
from trainer.profiling.diagnosis import Tried
from trainer.profiling.training_process import options_to_json, read_cost
from trainer.profiling.turns import LEAST_ROUNDS, Cost, Length
from trainer.spec.options import TrainOptions

AS_IT_IS = "as it is"
FINER = 4  # times as many turns as of other measurements
TENSORFLOW_SECONDS = 4.0  # of a core, to start it
_MODULE = "trainer.profiling.training_process"


def process_settings(options: TrainOptions, cores: int) -> dict[str, TrainOptions]:
    """The options of the trainings to measure, by the setting that is changed; the first is as it is.

    Threads are tried with half of the cores, TensorFlow's default being all; where a number was asked for, twice that.
    """
    found = {AS_IT_IS: options}
    for name in ("inter_op_threads", "intra_op_threads"):
        given = getattr(options, name)
        value = cores // 2 if given is None else 2 * given
        changed: dict[str, Any] = {name: value}
        if value:
            found[f"--{name} {value}"] = dataclasses.replace(options, **changed)
    if not options.drop_remainder:
        found["--drop_remainder"] = dataclasses.replace(options, drop_remainder=True)
    return found


def start_seconds(options: TrainOptions, cores: int, start: float) -> float:
    """About how long the start of all these processes takes.

    Args:
      options: those of the training as it is.
      cores: of the machine.
      start: how long one training takes from its graph to its first step, in seconds.
    """
    return len(process_settings(options, cores)) * (TENSORFLOW_SECONDS + start) / cores


def measure_processes(
    options: TrainOptions, length: Length, tell: Callable[[str], None], folder: str
) -> tuple[Tried, ...]:
    """Trains with each setting in turn.

    Args:
      options: those of the training as it is.
      length: how long all turns take together; the start of the processes comes on top.
      tell: called with a line of progress.
      folder: an empty one, for what the trainings write.

    Returns:
      The cost of a training step before and after each change.

    Raises:
      MillraceError: a process failed.
    """
    asked = process_settings(options, os.cpu_count() or 1)
    tell(f"starting {len(asked)} trainings in processes of their own")
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(_training(name, settings, os.path.join(folder, str(place))))
            for place, (name, settings) in enumerate(asked.items())
        }
        for training in running.values():
            training.answer()
        costs = _take_turns(running, length, tell)
    before = costs.pop(AS_IT_IS)
    return tuple(Tried(name, before, after) for name, after in costs.items())


class _Training:
    """A training that waits for its turn."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self._name, self._process, self._errors = name, process, errors

    def ask(self, line: str) -> None:
        """Sends it a line."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        with contextlib.suppress(BrokenPipeError):  # the answer will tell
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def answer(self) -> str:
        """Waits for its answer.

        Raises:
          MillraceError: it has ended instead.
        """
        assert self._process.stdout is not None  # noqa: S101 - likewise
        line = self._process.stdout.readline()
        interrupts.check()
        if line:
            return line
        code = self._process.wait()
        self._errors.seek(0)
        why = next((text for text in self._errors if text.startswith("error: ")), "").removeprefix("error: ").strip()
        raise MillraceError(f"the training {self._name} ended with exit code {code}{': ' if why else ''}{why}")


@contextlib.contextmanager
def _training(name: str, options: TrainOptions, folder: str) -> Iterator[_Training]:
    """Starts a training, which is ended with the block."""
    own = dataclasses.replace(options, model_dir=folder, quiet=True)
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,  # Ctrl-C reaches this process alone, which then ends it
        )
        with process:
            try:
                training = _Training(name, process, errors)
                training.ask(options_to_json(own))
                yield training
            finally:
                process.kill()


def _take_turns(running: Mapping[str, _Training], length: Length, tell: Callable[[str], None]) -> dict[str, Cost]:
    """The median cost of a step of each training.

    There are more and shorter turns than of other measurements, so that what else the machine does, which changes from
    second to second, affects all trainings alike.
    """
    rounds = FINER * length.rounds
    turn = Length(seconds=length.seconds / rounds / len(running), rounds=1, steps=length.steps)
    costs: dict[str, list[Cost]] = {name: [] for name in running}
    begun = time.monotonic()
    for i in range(rounds):
        if i >= LEAST_ROUNDS and time.monotonic() - begun >= length.seconds:
            break
        for name, training in running.items():
            tell(f"training in processes of their own, round {i + 1} of {rounds}: {name}")
            training.ask(json.dumps(dataclasses.asdict(turn)))
            costs[name].append(read_cost(training.answer()))
    return {
        name: Cost(statistics.median(c.seconds for c in found), statistics.median(c.cpu for c in found))
        for name, found in costs.items()
    }
