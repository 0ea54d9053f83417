"""Searches for hyper-parameters: trains many models on a dataset, and says which values did best.

    millrace tune --data_dir out/ --study study/ --space learning_rate=double:0.0001:0.1:log

Run it again to go on where it was, with more --trials to search further.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millrace.tune.page import Results
from millrace.tune.records import FAILED, FILE, Records, Settings, load_optuna, recorded_model
from millrace.tune.space import TrialCommand, check, check_alone, read_parameters
from schemas import command, storage
from schemas.command import Report
from schemas.dataset import Dataset, layout, open_dataset
from schemas.errors import MillraceError, UsageError
from schemas.interrupts import interruptible
from schemas.options import Group, Parser, Part, add_flags, given, only
from schemas.storage.paths import check_characters
from trainer.loop.checks import check_data
from trainer.loop.plan import plan_training
from trainer.models import AS_HPARAMS, MODELS
from trainer.spec.metrics import higher_is_better
from trainer.spec.options import GROUPS, StepOptions, TrainOptions
from trainer.task import verify_data

PROG = "millrace tune"
AGAIN = "best"  # the folder in that of the study to which the command that is printed trains
EXAMPLES = """\
examples:
  %(prog)s --data_dir out/ --study study/ --trials 30 --model dnn --max_steps 2000 \\
      --space learning_rate=double:0.0001:0.1:log hidden_units=categorical:64,64:256,128
  %(prog)s --data_dir out/ --study study/ --space space.yaml --parallel_trials 2 --keep_models best

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated."""


SEARCH = Group("the search")


def main(argv: Sequence[str] | None = None, *, prog: str = PROG) -> int:
    """Parses, searches, reports. Returns the exit code."""
    return command.run(_run, argv, prog=prog)


def parser(prog: str = PROG) -> argparse.ArgumentParser:
    """The command line's parser."""
    result = Parser(
        prog=prog,
        usage="%(prog)s --data_dir DIR --study DIR --space NAME=KIND:VALUES ... [--model NAME] [option ...]",
        description="Searches for hyper-parameters: trains many models on a dataset, and says which values did best.\n"
        "Takes the flags of train, too, which are the same for all trials.",
        epilog=f"{MODELS}\n\n{EXAMPLES}",
        instead=AS_HPARAMS,
    )
    each = Part(TrainOptions, without=("model_dir",))
    add_flags(result, (StepOptions, Part(Settings, SEARCH), each), groups=(SEARCH, *GROUPS))
    return result


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for: how to search, the training of a trial, and one such training's options."""

    settings: Settings
    command: TrialCommand
    options: TrainOptions
    verify: bool


def read_arguments(argv: Sequence[str], prog: str = PROG) -> Asked:
    """Reads the command line, and the arguments of trials with values at the ends of the space.

    Raises:
      UsageError: a flag is missing, unknown or out of its range, or a trial would refuse its arguments.
      SystemExit: --help (0).
    """
    flags = given(parser(prog).parse_args(argv))
    flags.pop("json", None)
    verify = bool(flags.pop("verify_data", False))
    if "promote_to" in flags:
        raise UsageError(
            f"--promote_to {flags['promote_to']}: every trial would be put in service; promote the best one when the "
            "study has ended"
        )
    own = only(flags, Settings)
    flags = {name: value for name, value in flags.items() if name not in own}
    settings = Settings(**{**own, "parameters": read_parameters(own["parameters"], "--space")})
    if not storage.is_local(settings.study):
        raise UsageError(f"--study {settings.study}: must be on local disk, where several processes write to it")
    check_characters(settings.study, "--study ")
    layout.check_outside(settings.study, "--study ", layout.MANIFEST, itself=True)
    trial = TrialCommand(flags, settings.parallel_trials)
    options = _checked(trial, settings)
    check_alone(options.strategy)
    return Asked(settings, trial, options, verify)


def _checked(trial: TrialCommand, settings: Settings) -> TrainOptions:
    """Reads the arguments of trials with values at the ends of the space; returns the options of the first."""
    ends = {parameter.name: next(parameter.tried) for parameter in settings.parameters}
    for parameter in settings.parameters:
        name = parameter.name
        check(parameter, "--space", lambda value, name=name: trial.check({**ends, name: value}))  # type: ignore[misc]
    return trial.check(ends)


def _with_model(asked: Asked, dataset: Dataset) -> Asked:
    """The same with the model of the trials: where no flag names it, that of the study, or else of the data.

    Raises:
      UsageError: a trial would refuse the dataset, or values at the ends of the space.
    """
    if asked.options.model is None:
        model = recorded_model(asked.settings.study) or plan_training(dataset, asked.options).model
        trial = dataclasses.replace(asked.command, model=model)
        asked = dataclasses.replace(asked, command=trial, options=_checked(trial, asked.settings))
    plan = plan_training(dataset, asked.options)
    check_data(dataset, dataclasses.replace(plan, best_metric=asked.command.given.get("best_metric")))
    return asked


def _run(argv: Sequence[str], prog: str) -> Report:
    asked = read_arguments(argv, prog)
    settings = asked.settings
    load_optuna()
    dataset = open_dataset(asked.options.data_dir, trust=asked.options.trust)
    if asked.verify:
        verify_data(dataset)
    asked = _with_model(asked, dataset)
    Path(settings.study).mkdir(parents=True, exist_ok=True)
    from millrace.tune.study import Progress
    from millrace.tune.trainings import only_one

    progress = Progress(settings.most, quiet=asked.options.quiet)
    again = "run the command again to go on with the study"
    try:
        with command.when_interrupted(again), interruptible(sigterm=True), only_one(settings.study, progress.line):
            results = _search(asked, dataset, progress, prog)
    except OSError as error:
        raise MillraceError(f"{settings.study}: {error}; {again}") from error
    return Report(_told(results), results.as_json())


def _search(asked: Asked, dataset: Dataset, progress: Any, prog: str) -> Results:
    """Runs the study to its end.

    Raises:
      MillraceError: no trial has come to its end.
    """
    from millrace.tune.page import write_page
    from millrace.tune.study import TRIALS_FOLDER, Study, best_of, reasons

    settings, options = asked.settings, asked.options
    metric = asked.command.given.get("best_metric")
    higher = metric is not None and higher_is_better(metric)
    same = {
        "space": [str(parameter) for parameter in settings.parameters],
        "training": asked.command.identity(),
        "run of the dataset": dataset.run,
    }
    if asked.command.model is not None:
        same["model"] = asked.command.model
        progress.line(f"model    {asked.command.model}, since no --model names another")
    if not Path(settings.study, FILE).exists() and Path(settings.study, TRIALS_FOLDER).exists():
        raise UsageError(
            f"--study {settings.study}: has {TRIALS_FOLDER}/ but no {FILE}, so what they were given is unknown; use "
            "another --study, or move them away"
        )
    plan = plan_training(dataset, options)
    resource = (plan.save_checkpoints_steps, plan.max_steps)
    records = Records(settings, same, higher=higher, seed=options.seed, resource=resource)
    study = Study(records, settings, asked.command, dataset, metric, progress)
    ended = study.run()
    trials = records.trials()
    best = best_of(trials, higher=records.higher)
    again = []
    if best is not None:
        train = "python -m trainer.task" if prog == PROG else f"{prog.rpartition(' ')[0]} train"
        model_dir = str(Path(settings.study, AGAIN))
        again = [*train.split(" "), *asked.command.arguments(best.values, model_dir)]
    found = Results(settings.study, records.metric or metric or "value", records.higher, trials, best, again, ended, "")
    results = dataclasses.replace(found, page=write_page(found, settings.parameters))
    failed = [trial for trial in trials if trial.state == FAILED]
    if failed and len(failed) == len(trials):
        raise MillraceError(f"{settings.study}: every trial has failed: {reasons(failed)}")
    return results


def _told(results: Results) -> str:
    """What a study has found, for people."""
    lines = [results.table(), "", f"ended    {results.ended}"]
    if results.best is None:
        return "\n".join([*lines, "best     none: no trial has come to its end yet", f"report   {results.page}"])
    lines.append(f"best     trial {results.best.number}: {results.metric} {results.best.value:.6g}")
    lines.append(f"report   {results.page}")
    lines.append(f"train it again:\n{shlex.join(results.command)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
