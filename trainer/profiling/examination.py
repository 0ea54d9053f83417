"""Measures a training: the stages of its input, the input with other settings, and steps fed from disk and memory."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator

from schemas import interrupts
from schemas.dataset import Dataset
from schemas.errors import MillraceError
from trainer.data.input_fn import input_fn, is_held
from trainer.loop.building import build_estimator
from trainer.profiling.device_time import TRACED_STEPS, busy_seconds
from trainer.profiling.diagnosis import Diagnosis, Tried, differences
from trainer.profiling.input_changes import Change, changes
from trainer.profiling.input_stages import TO_DEVICE, WHOLE, accelerator, copies, counted, made_ahead, prefixes
from trainer.profiling.process_settings import measure_processes, start_seconds
from trainer.profiling.source import TRAIN, Source, measured
from trainer.profiling.training_ways import Batches, from_memory, train_in_turns
from trainer.profiling.turns import CLOCK, Clock, Cost, Length, Rounds
from trainer.spec.options import TrainOptions
from trainer.strategies.run_config import check_shared, replicas_of, run_config

DATA, MEMORY, BIGGER = "from the dataset", "from memory", "from memory, larger batches"
SAMPLE = "a sample of the records as they are"
TIMES = 4  # the larger batch, in batches


def examine(
    dataset: Dataset,
    options: TrainOptions,
    length: Length,
    tell: Callable[[str], None],
    *,
    folder: str,
    clock: Clock = CLOCK,
    processes: bool = True,
) -> Diagnosis:
    """Measures for about `length.seconds`. Writes only to `folder`.

    Two fifths of the time are for the input alone, two for training, and one for trainings in processes of their own,
    unless `processes` is false.

    Raises:
      UsageError: an unknown model or hyper-parameter, or a model for other data.
      MillraceError: the model failed.
    """
    part = dataclasses.replace(length, seconds=length.seconds * (0.4 if processes else 0.5))
    source = measured(dataset, options)
    config = run_config(options, os.path.join(folder, "model"), save_checkpoints_steps=None, save_checkpoints_secs=None)
    replicas = replicas_of(config)
    check_shared(source.options.batch_size, replicas)
    estimator = build_estimator(dataset, options, config)  # first: reports invalid usage at once
    possible = changes(source, os.path.join(folder, "samples"), tell)
    costs, tried, short = measure_input(source, possible, part, tell, clock)
    best = min((t for t in tried if t.pays), key=lambda t: t.cpu_ratio, default=None)

    def reader(where: Source) -> Batches:
        shared = dataclasses.replace(where.options, batch_size=where.options.batch_size // replicas)
        return lambda: input_fn(where.dataset, "train", mode=TRAIN, options=shared)

    size = TIMES * source.options.batch_size
    larger = Source(dataset, dataclasses.replace(source.options, batch_size=size))
    ways = {DATA: reader(source), MEMORY: from_memory(reader(source)), BIGGER: from_memory(reader(larger))}
    heavy, read = {BIGGER: float(TIMES)}, {DATA: source}
    if best is not None:
        change = next(change for change in possible if change.setting == best.setting)
        read |= {SAMPLE: change.before} if change.sampled else {}
        read[best.setting] = change.after
    ways |= {name: reader(where) for name, where in read.items()}
    heavy |= dict.fromkeys(read.keys() - {DATA}, 1.0)
    ahead = {name: made_ahead(where.dataset, where.options) for name, where in read.items()}
    rounds = Rounds(
        tuple(ways), part, heavy=heavy, ahead=ahead, tell=lambda text: tell(f"training, {text}"), clock=clock
    )
    device = accelerator()
    started: list[float] = []

    def noted() -> Iterator[str]:
        started.append(clock.wall() - begun)
        yield from rounds

    begun = clock.wall()
    traces = train_in_turns(estimator, ways, noted(), traced=[DATA] * (TRACED_STEPS if device is not None else 0))
    steps = rounds.medians()
    to_device = costs.pop(TO_DEVICE, None)
    apart: tuple[Tried, ...] = ()
    why_none_apart = "--one_process was given"
    if processes:
        apart, why_none_apart = _processes(options, length, started[0], tell, folder)
    return Diagnosis(
        batch_size=source.options.batch_size,
        training=steps[DATA],
        memory=steps[MEMORY],
        alone=costs[WHOLE],
        stages=differences(costs),
        to_device=None if to_device is None else to_device.beyond(costs[WHOLE]),
        busy=None if device is None else busy_seconds(traces, device[device.index("/device:") :]),
        bigger=(size, steps[BIGGER]) if BIGGER in steps else None,
        tried=tried,
        changed={best.setting: steps[best.setting]} if best is not None and best.setting in steps else {},
        sample=steps.get(SAMPLE),
        held=is_held(dataset, "train", source.options),
        short=short,
        apart=apart,
        why_none_apart=why_none_apart,
    )


def _processes(
    options: TrainOptions, length: Length, started: float, tell: Callable[[str], None], folder: str
) -> tuple[tuple[Tried, ...], str]:
    """What `measure_processes` found, or why there is nothing. The rest of the report does not depend on it."""
    if accelerator() is not None:
        return (), "other processes cannot use the accelerator while this one does"
    seconds = start_seconds(options, os.cpu_count() or 1, started)
    if seconds > length.seconds / 2:
        return (), f"starting the processes would take about {seconds:.0f} s: give --seconds {2 * seconds:.0f} or more"
    share = dataclasses.replace(length, seconds=length.seconds / 5)
    try:
        return measure_processes(options, share, tell, os.path.join(folder, "processes")), ""
    except MillraceError as error:
        return (), str(error)


def measure_input(
    source: Source, possible: list[Change], length: Length, tell: Callable[[str], None], clock: Clock
) -> tuple[dict[str, Cost], tuple[Tried, ...], bool]:
    """Measures a batch up to the end of each stage, on the accelerator if there is one, and with other settings.

    Returns:
      The costs by stage, the settings tried, and whether turns were too short to use up prefetched batches.
    """
    steps: dict[str, Callable[[], object]] = {}
    for name, batches in prefixes(source.dataset, source.options).items():
        steps[name] = iter(batches).__next__
    device = accelerator()
    if device is not None:
        steps[TO_DEVICE] = copies(source.dataset, source.options, device)
    stages = tuple(steps)
    ahead = dict.fromkeys(stages, made_ahead(source.dataset, source.options))

    def add(name: str, where: Source) -> None:
        steps[name] = iter(counted(input_fn(where.dataset, "train", mode=TRAIN, options=where.options))).__next__
        ahead[name] = made_ahead(where.dataset, where.options)

    for change in possible:
        if change.sampled and SAMPLE not in steps:
            add(SAMPLE, change.before)
        add(change.setting, change.after)
    rounds = Rounds(tuple(steps), length, ahead=ahead, tell=lambda text: tell(f"input alone, {text}"), clock=clock)
    for name in rounds:
        interrupts.check()
        steps[name]()
    costs = rounds.medians()
    tried = tuple(
        Tried(change.setting, costs[SAMPLE if change.sampled else WHOLE], costs[change.setting], change.sampled)
        for change in possible
    )
    return {name: costs[name] for name in stages}, tried, bool(rounds.hurried())
