"""The whole of a training, measured by a short one of the same plan; and other numbers of threads, each tried.

The short training has two evaluations, exports and reports as a long one does. What it shows of its progress says when
each part begins. Threads are tried in processes of their own, since TensorFlow starts its threads once.
"""

from __future__ import annotations

import dataclasses
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import tensorflow as tf

from schemas.concurrency import usable_cores
from schemas.dataset import Dataset
from schemas.display import Display
from schemas.errors import MillraceError
from schemas.options import typed
from schemas.storage.json_files import parse_json
from trainer.doctor.diagnosis import Tried, Whole
from trainer.loop.train import train
from trainer.spec.options import StepOptions, TrainingPlan

BETWEEN = 3  # steps between the evaluations of the short training
MOST_EVALUATED = 100_000  # rows, or a fiftieth as many images: of a larger split a part is evaluated
EVALUATED = re.compile(r"step [0-9,]+ \(epoch [0-9.]+\): ")
TRY_SECONDS = 4.0


def measure_whole(
    dataset: Dataset, options: TrainingPlan, *, step_seconds: float, loading: float, folder: str
) -> Whole | None:
    """Trains for a few steps as `train` would, into an empty folder.

    Args:
      dataset: the dataset.
      options: the plan whose whole is estimated.
      step_seconds: what a step takes.
      loading: what it took to start TensorFlow.
      folder: for the model; it is not removed.

    Returns:
      None: the model can be trained, but not evaluated or exported.
    """
    rows = dataset.rows(options.eval_split)
    most = MOST_EVALUATED // (1 if dataset.image_schema is None else 50)
    part = None if rows <= most else math.ceil(most / options.batch_size)
    short = dataclasses.replace(
        options,
        model_dir=folder,
        max_steps=2 * BETWEEN,
        save_checkpoints_steps=BETWEEN,
        early_stopping_steps=0,
        eval_steps=part,
    )
    timeline = _Timeline()
    began = time.monotonic()
    try:
        train(dataset, short, timeline)
    except (MillraceError, ValueError, TypeError, tf.errors.OpError):
        return None
    ended = time.monotonic()
    (first, evaluated), (second, again) = timeline.evaluations()
    report = timeline.first("writing the report", ended)
    checkpoint = max(0.0, second - evaluated - BETWEEN * step_seconds)
    evaluation = again - second
    share = 1.0 if part is None else part * options.batch_size / rows
    return Whole(
        told=options.chosen,
        steps=options.max_steps,
        evaluations=math.ceil(options.max_steps / options.save_checkpoints_steps),
        start=loading
        + max(0.0, first - began - BETWEEN * step_seconds - checkpoint)
        + max(0.0, evaluated - first - evaluation),
        step=step_seconds,
        checkpoint=checkpoint,
        evaluation=evaluation / share,
        exports=report - again,
        report=ended - report,
    )


class _Timeline(Display):
    """Notes what a training shows, and when; shows nothing."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.is_terminal = True  # so that nothing is left out
        self.marks: list[tuple[float, str]] = []

    def update(self, text: str) -> None:
        self.marks.append((time.monotonic(), text))

    line = update

    def first(self, beginning: str, otherwise: float) -> float:
        """When a text was shown that begins so."""
        return next((at for at, text in self.marks if text.startswith(beginning)), otherwise)

    def evaluations(self) -> list[tuple[float, float]]:
        """When each evaluation began and ended."""
        found: list[tuple[float, float]] = []
        began: float | None = None
        for at, text in self.marks:
            if EVALUATED.match(text) and began is not None:
                found.append((began, at))
                began = None
            elif text.startswith("evaluating on") and began is None:
                began = at
        return found


def settings_to_try(options: StepOptions) -> Iterator[dict[str, int]]:
    """Numbers of threads that may be better than TensorFlow's, which are one for each core; those not given."""
    cores = usable_cores()
    both = ("inter_op_threads", "intra_op_threads")
    alike = [dict.fromkeys(both, count) for count in (1, 2) if count != cores]
    found = [*alike, {"read_threads": 2}, {"read_threads": 1}]
    return (setting for setting in found if all(getattr(options, name) is None for name in setting))


def try_threads(options: StepOptions, tell: Callable[[str], None], *, seconds: float) -> Tried:
    """Measures steps with other numbers of threads, beside those of the options, one after the other.

    Args:
      options: those of the training.
      tell: called with a line of progress.
      seconds: no further number is tried after this time.
    """
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(StepOptions)}
    defaults = {f.name: f.default for f in dataclasses.fields(StepOptions)}
    own = {name: value for name, value in given.items() if value != defaults[name] and name not in ("quiet", "verbose")}
    ended = time.monotonic() + seconds
    found: dict[str, float] = {}
    left: list[str] = []
    failed: list[str] = []
    for setting in ({}, *settings_to_try(options)):
        flags = " ".join(f"--{name} {value}" for name, value in setting.items())
        if found and time.monotonic() > ended:
            left.append(flags)
            continue
        tell(f"steps with {flags or 'the threads as they are'}")
        step = _step_seconds({**own, **setting})
        if step is None:
            failed.append(flags or "as given")
        else:
            found[flags] = step
    return Tried(found, tuple(left), tuple(failed))


def _step_seconds(flags: Mapping[str, object]) -> float | None:
    """The seconds of a step in a process of its own; None if it fails."""
    argv = [part for name, value in flags.items() for part in typed(name, value)]
    command = [sys.executable, "-m", "trainer.doctor", *argv, "--only_steps", "--json", "-"]
    command += ["--seconds", f"{TRY_SECONDS:g}", "--rounds", "2", "--quiet"]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - this package's own command
    if done.returncode:
        return None
    figures: dict[str, dict[str, float]] = parse_json(done.stdout)
    return figures["training"]["seconds"]
