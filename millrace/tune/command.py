"""Searches for hyper-parameters: trains many models on a dataset, and says which values did best.

    millrace tune --data_dir out/ --study study/ --space learning_rate=float:0.0001:0.1:log

Run it again to continue where it was, with more --trials to search further.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
import sys

from millrace.tune.space import FORMS, TrialCommand
from millrace.tune.study import Study, explained, failure, load_optuna
from schemas import command, storage
from schemas.command import Report, duration
from schemas.dataset import layout, open_dataset
from schemas.display import Display, table
from schemas.errors import MillraceError, UsageError
from schemas.interrupts import interruptible
from schemas.options import Group, at_least, option, positive_finite
from schemas.storage.gcs_access import check_characters
from trainer.loop.checks import check_data
from trainer.loop.plan import plan_training
from trainer.models.selection import AS_HPARAMS, MODELS_HELP
from trainer.spec.options import TrainOptions

_search = functools.partial(option, group=Group("the search"))
EXAMPLES = """\
examples:
  %(prog)s --data_dir out/ --study study/ --trials 30 --model dnn --max_steps 2000 \\
      --space learning_rate=float:0.0001:0.1:log hidden_units=categorical:64,64:256,128

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyOptions(TrainOptions):
    """The options of a search, together with the options of `train` that all its trials share.

    Raises:
      UsageError: a value is out of its range, the folder cannot hold a study, or an option cannot be used for trials.
    """

    model_dir: str = ""  # no flag: each trial has a folder of its own
    study: str = _search("folder of the study: its trials and their models", metavar="DIR")
    space: tuple[str, ...] = _search(
        "what to search: hyper-parameters of the model or flags of train: " + FORMS, metavar="NAME=KIND:VALUES"
    )
    trials: int = _search("how many trials in all (default: %(default)s)", 20, check=at_least(1))
    search: str = _search(
        "bayesian learns from earlier trials, random does not, grid tries all combinations (default: bayesian)",
        "bayesian",
        choices=("bayesian", "random", "grid"),
    )
    pruner: str = _search(
        "end trials early whose evaluations are worse than others' median, or by Hyperband (default: median)",
        "median",
        choices=("median", "hyperband", "none"),
    )
    timeout_hours: float | None = _search(
        "begin no trial after H hours; the same command continues later", None, metavar="H", check=positive_finite
    )
    keep_models: str = _search(
        "keep the models of all trials, or only of the best; reports and logs stay (default: all)",
        "all",
        choices=("all", "best"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not storage.is_local(self.study):
            raise UsageError(f"--study {self.study}: must be on local disk, for SQLite")
        check_characters(self.study, "--study ")
        layout.check_outside(self.study, "--study ", layout.MANIFEST, itself=True)
        if self.promote_to is not None:
            raise UsageError(
                f"--promote_to {self.promote_to}: every trial would be put in service; promote the best one when the "
                "study has ended"
            )
        if self.profile:
            raise UsageError("--profile: measures one training, not a study; give it to `millrace train`")
        if os.environ.get("TF_CONFIG"):
            raise UsageError("TF_CONFIG: names a cluster, but a trial is one process; unset it")


def trial_command(options: StudyOptions) -> TrialCommand:
    """Returns the training that all trials share, after checking it.

    Raises:
      UsageError: Optuna is not installed, the search space is malformed, or a trial would refuse a value.
    """
    load_optuna()
    flags = {
        field.name: value
        for field in dataclasses.fields(TrainOptions)
        if field.name != "model_dir" and (value := getattr(options, field.name)) != field.default
    }
    trial = TrialCommand(flags, options.space)
    strategy = trial.check().strategy
    if strategy == "parameter_server":
        raise UsageError(f"--strategy {strategy}: a trial is one process; use none or mirrored")
    if options.search == "grid":
        trial.grid()
    return trial


def _run(options: StudyOptions, prog: str) -> Report:
    """Runs the study and reports its trials."""
    trial = trial_command(options)
    dataset = open_dataset(options.data_dir, trust=options.trust)
    display = Display(quiet=options.quiet)
    plan = plan_training(dataset, trial.check())
    if options.model is None:
        trial = dataclasses.replace(trial, flags={**trial.flags, "model": plan.model})
        display.line(f"model    {plan.model}, chosen by the data; --model names another")
        plan = plan_training(dataset, trial.check())
    check_data(dataset, dataclasses.replace(plan, best_metric=options.best_metric))
    os.makedirs(options.study, exist_ok=True)
    with (
        command.when_interrupted("run the command again to continue the study"),
        interruptible(sigterm=True),
        open(os.path.join(options.study, ".lock"), "ab") as lock,
        display,
    ):
        if not storage.lock(lock, wait=False):
            raise UsageError(f"--study {options.study}: another process is at work on this study")
        study = Study(options.study, trial, dataset, options.best_metric)
        with explained(study.path):
            ended = study.run(
                search=options.search,
                pruner=options.pruner,
                trials=options.trials,
                hours=options.timeout_hours,
                seed=options.seed,
                keep_all=options.keep_models == "all",
                display=display,
            )
    return _report(study, options.study, trial, ended)


def _report(study: Study, folder: str, trial: TrialCommand, ended: str) -> Report:
    """Reports the trials as a table, the best first, and the command that trains the best one again.

    Raises:
      MillraceError: every trial has failed.
    """
    if reason := failure(study.trials):
        raise MillraceError(f"{folder}: every trial has failed; {reason}")
    # Sorts by state, then by value with the best first (a negative sign turns the order round), then by number.
    order, sign = ("COMPLETE", "PRUNED", "FAIL"), -1 if study.higher else 1
    data = [study.result(ended_trial) for ended_trial in study.trials]
    data.sort(key=lambda result: (order.index(result["state"]), sign * (result["value"] or 0), result["number"]))
    rows = [
        (
            str(result["number"]),
            result["state"].lower(),
            "" if result["value"] is None else f"{result['value']:.5g}",
            duration(result["seconds"]),
            *result["values"].values(),
            result["reason"],
        )
        for result in data
    ]
    lines = [
        *table(("trial", "state", study.metric, "time", *trial.space, ""), rows, left=2, last_left=True),
        "",
        f"ended    {ended}",
        f"charts   optuna-dashboard sqlite:///{study.path} (pip install optuna-dashboard)",
    ]
    again: list[str] = []
    best = study.best
    if best is not None:
        again = ["millrace", "train", *trial.arguments(study.values(best), os.path.join(folder, "best"))]
        lines.append(f"best     trial {best.number}: {study.metric} {best.value:.6g}")
        lines.append("train it again:\n" + shlex.join(again))
    result = {"metric": study.metric, "ended": ended, "best": None if best is None else best.number}
    return Report("\n".join(lines), {"study": folder, **result, "command": again, "trials": data})


COMMAND = command.Command(
    prog="millrace tune",
    options=StudyOptions,
    work=_run,
    description="""\
Searches for hyper-parameters: trains many models on a dataset, and says which values did best.
Takes the flags of train, too, which are the same for all trials.""",
    epilog=f"{MODELS_HELP}\n\n{EXAMPLES}",
    usage="%(prog)s --data_dir DIR --study DIR --space NAME=KIND:VALUES ... [--model NAME] [OPTIONS]",
    instead=AS_HPARAMS | {"model_dir": "--study"},
)
app, main = COMMAND.app, COMMAND.main


if __name__ == "__main__":
    sys.exit(main())
