"""`python -m trainer.profiling.training_process`: a training in a process of its own, which takes a turn when told to.

Standard input: a line of JSON with the training's options, then a line for each turn, which says how long it is.
Standard output: `{}` when the training is warm, then the cost of a step for each turn, as JSON. It ends with its input.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from schemas.dataset import open_dataset
from schemas.errors import MillraceError
from trainer.local_data import local_data
from trainer.profiling.turns import WARM_UP, Cost, Length, Rounds
from trainer.spec.options import TrainOptions
from trainer.verbosity import start_tensorflow

WAY = "training"


def options_to_json(options: TrainOptions) -> str:
    """The first line of the input."""
    return json.dumps(dataclasses.asdict(options))


def options_from_json(line: str) -> TrainOptions:
    """The options in it."""
    return TrainOptions(**json.loads(line, object_hook=_with_tuples))


def _with_tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def main() -> int:
    """Trains until standard input ends. Returns the exit code."""
    options = options_from_json(sys.stdin.readline())
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)  # what a model prints is no answer
        try:
            _train(options, turns(sys.stdin, lambda answer: print(json.dumps(answer), file=answers, flush=True)))
        except MillraceError as error:
            print(f"error: {error}", file=sys.stderr, flush=True)
            return error.exit_code
    return 0


def turns(commands: Iterable[str], answer: Callable[[dict[str, float]], None]) -> Iterator[str]:
    """Schedules the steps: yields before each of them.

    Args:
      commands: the `Length` of each turn, as JSON.
      answer: called when the training is warm, and with the cost of a step after each turn.
    """
    yield from (WAY for _ in range(WARM_UP))
    answer({})
    for command in commands:
        length = Length(**json.loads(command))
        rounds = Rounds((WAY,), length)
        yield from rounds.turn(WAY, length.seconds)
        answer(dataclasses.asdict(rounds.medians()[WAY]))


def read_cost(answer: str) -> Cost:
    """The cost in an answer."""
    return Cost(**json.loads(answer))


def _train(options: TrainOptions, schedule: Iterator[str]) -> None:
    dataset = open_dataset(options.data_dir, trust=options.trust)
    threads = {"inter_op": options.inter_op_threads, "intra_op": options.intra_op_threads}
    start_tensorflow(verbose=options.verbose, logical_cpus=options.logical_cpus, **threads)
    from trainer.data.input_fn import input_fn
    from trainer.loop.building import build_estimator
    from trainer.profiling.source import TRAIN, measured
    from trainer.profiling.training_ways import train_in_turns
    from trainer.strategies.run_config import replicas_of, run_config

    with local_data(dataset, options, ("train",)) as data:
        source = measured(data, options)
        config = run_config(options, options.model_dir, save_checkpoints_steps=None, save_checkpoints_secs=None)
        share = source.options.batch_size // replicas_of(config)
        how = dataclasses.replace(source.options, batch_size=share)

        def batches() -> Any:
            return input_fn(data, "train", mode=TRAIN, options=how)

        train_in_turns(build_estimator(data, options, config), {WAY: batches}, schedule)


if __name__ == "__main__":
    sys.exit(main())
