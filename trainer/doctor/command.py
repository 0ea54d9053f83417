"""Finds out whether the input or the model limits training speed, and which setting to change.

    python -m trainer.doctor --data_dir out/ --model dnn

Measures training steps fed from the dataset, and fed with one batch from memory, and the input alone, stage by stage.
They run in turn, and the medians are reported. A short training then shows what evaluations, exports and the report
take, and steps are measured with other numbers of threads. No files are left behind.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import tempfile
import time
from typing import TYPE_CHECKING

from schemas import command, storage
from schemas.dataset import open_dataset
from schemas.display import Display, rate_limited
from schemas.errors import MillraceError, UsageError
from schemas.interrupts import interruptible
from schemas.options import JSON_HELP, at_least, only, option
from trainer.doctor.diagnosis import CLOCK, LEAST_ROUNDS, Clock, Length
from trainer.loop.plan import plan_training
from trainer.models import AS_HPARAMS, MODELS, check_model, is_grown
from trainer.predicting.atomic_file import STANDARD_OUTPUT
from trainer.spec.options import GROUPS, StepOptions, TrainOptions, check_split
from trainer.start import local_data, start_for

if TYPE_CHECKING:
    from trainer.doctor.diagnosis import Diagnosis

PROG = "python -m trainer.doctor"
EXAMPLES = """\
examples:
  %(prog)s --data_dir out/ --model dnn --batch_size 256
  %(prog)s --data_dir photos-data/ --model squeezenext --seconds 120 --json figures.json

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorOptions(StepOptions):
    """What to measure, for how long, and the JSON file for the figures (None: none).

    Raises:
      UsageError: a value is out of its range, a file cannot be written, or the environment names a cluster.
    """

    seconds: float = option(
        "how long to measure, approximately (default: %(default)g)", 40.0, metavar="S", check=at_least(1)
    )
    rounds: int = option(
        "number of rounds; medians over them are reported (default: %(default)s)", 5, check=at_least(LEAST_ROUNDS)
    )
    steps: int | None = option(
        "steps to time of each variant in each round (default: as many as fit in --seconds)", None, check=at_least(1)
    )
    only_steps: bool = option(
        "measure steps alone: neither evaluations, exports and reports, nor other numbers of threads", False
    )
    json: str | None = option(
        f"{JSON_HELP}; with FILE: print the report, and write FILE; - is standard output",
        None,
        nargs="?",
        const=STANDARD_OUTPUT,
        metavar="FILE",
    )
    overwrite: bool = option("replace an existing --json FILE", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.seconds == math.inf:
            raise UsageError("--seconds inf: must be 1 or more, and finite")
        if "cluster" in os.environ.get("TF_CONFIG", ""):
            raise UsageError("TF_CONFIG names a cluster, but only a single process can be measured; unset it")
        if self.file is not None:
            hint = f", or give --json {STANDARD_OUTPUT} for standard output"
            storage.check_output(self.file, hint=hint, overwrite=self.overwrite)
        self.training  # noqa: B018 - checks the values

    @property
    def training(self) -> TrainOptions:
        """The training whose steps are measured; no model is kept."""
        return TrainOptions(model_dir="", **only(vars(self), StepOptions))

    @property
    def length(self) -> Length:
        """How long to measure."""
        return Length(seconds=self.seconds, rounds=self.rounds, steps=self.steps)

    @property
    def file(self) -> str | None:
        """The file for the figures."""
        return None if self.json == STANDARD_OUTPUT else self.json


def _run(options: DoctorOptions, prog: str) -> command.Report:
    try:
        check_model(options)
        with (
            command.when_interrupted(),
            interruptible(sigterm=True),
            tempfile.TemporaryDirectory(prefix="millrace-doctor-") as folder,
        ):
            diagnosis = diagnose(options.training, options.length, folder, whole=not options.only_steps)
            if not options.only_steps:
                diagnosis = with_threads(diagnosis, options)
        text, figures = diagnosis.as_text(), diagnosis.as_json()
        if options.file is not None:
            command.print_result(text)  # first: it is not lost where the file cannot be written
            text = ""
            storage.write_bytes(options.file, json.dumps(figures, indent=1).encode() + b"\n")
    except OSError as error:
        raise MillraceError(str(error)) from error
    return command.Report(text, figures, only_printed=True)


def with_threads(diagnosis: Diagnosis, options: DoctorOptions) -> Diagnosis:
    """The same with other numbers of threads tried, for about `--seconds`."""
    from trainer.doctor.whole import try_threads

    with contextlib.closing(Display(quiet=options.quiet)) as display:
        tried = try_threads(options, rate_limited(display), seconds=options.seconds)
    return dataclasses.replace(diagnosis, threads=tried)


def diagnose(
    options: TrainOptions, length: Length, folder: str, *, clock: Clock = CLOCK, whole: bool = False
) -> Diagnosis:
    """Measures a training in an empty folder; `options.model_dir` is empty, since no model is kept.

    Args:
      options: those of the training.
      length: how long to measure.
      folder: the folder.
      clock: times what this process does.
      whole: also measure what a training takes beside its steps.

    Raises:
      MillraceError: there is no such dataset or model, or training failed.
      UsageError: the model makes no steps.
    """
    dataset = open_dataset(options.data_dir, trust=options.trust)
    check_split(dataset, "train")
    plan = plan_training(dataset, options)
    check_model(plan)
    if is_grown(plan.model):
        raise UsageError(f"--model {plan.model}: is grown by LightGBM as a whole, and makes no steps to measure")
    began = time.monotonic()
    start_for(options)
    loading = time.monotonic() - began
    from trainer.doctor.measure import examine
    from trainer.model_dir.checkpoints import explain_failures

    with (
        local_data(dataset, ("train",), options.cache_dir, options.cache_gb, quiet=options.quiet) as data,
        explain_failures(data, plan),
        contextlib.closing(Display(quiet=options.quiet)) as display,
    ):
        tell = rate_limited(display)
        found = examine(data, plan, length, tell, folder=folder, clock=clock)
        if not whole:
            return found
        from trainer.doctor.whole import measure_whole

        tell("a short training, with evaluations, exports and a report")
        place, step = os.path.join(folder, "whole"), found.training.seconds
        return dataclasses.replace(
            found, whole=measure_whole(data, plan, step_seconds=step, loading=loading, folder=place)
        )


COMMAND = command.Command(
    prog=PROG,
    options=DoctorOptions,
    work=_run,
    description="Finds out whether the input or the model limits training speed, and which setting to change.",
    epilog=f"{MODELS}\n\n{EXAMPLES}",
    json_takes_file=True,
    usage="%(prog)s --data_dir DIR [--model NAME] [--hparams KEY=VALUE ...] [option ...]",
    groups=GROUPS,
    instead=AS_HPARAMS,
)
parser, parse_options, main = COMMAND.parser, COMMAND.parse, COMMAND.main
