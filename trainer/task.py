"""Trains a model on a dataset.

    python -m trainer.task --data_dir out/ --model_dir model/ --model dnn --max_steps 5000

Run it again to resume from the last checkpoint. In a cluster, each process runs it with its own TF_CONFIG.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from schemas import command
from schemas.display import Display
from schemas.errors import counted
from schemas.interrupts import interruptible
from trainer.models import is_grown
from trainer.models.selection import AS_HPARAMS, MODELS_HELP, check_model
from trainer.spec.metrics import described
from trainer.spec.options import TrainingPlan, TrainOptions
from trainer.start import local_data, start_tensorflow

if TYPE_CHECKING:
    from schemas.dataset import OpenDataset
    from trainer.loop.evaluations import Trained

PROG = "python -m trainer.task"
EXAMPLES = """\
examples:
  %(prog)s --data_dir out/ --model_dir model/ --model dnn --hparams hidden_units=512,256 dropout=0.1
  %(prog)s --data_dir out/ --model_dir model/ --max_steps 50000 --early_stopping_steps 5000

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated."""


def _run(options: TrainOptions, prog: str) -> command.Report:
    from schemas.dataset import open_dataset
    from trainer.loop.checks import check_options

    with command.when_interrupted("run the command again to resume from the last checkpoint"):
        check_options(options)  # before the data is copied to --cache_dir
        dataset = open_dataset(options.data_dir, trust=options.trust)
        plan = planned(dataset, options)
        trained = run_training(dataset, plan, _started(options))
    if trained is None:
        return command.Report("", {"model_dir": options.model_dir})
    print(summary(trained, plan, dataset, prog), file=sys.stderr)
    if trained.profile is not None:
        print("\n".join(trained.profile.lines()), file=sys.stderr)
    promoted = None if trained.promotion is None else trained.promotion.record()
    return command.Report(
        json.dumps({split: command.finite(metrics) for split, metrics in trained.metrics.items()}),
        {**dataclasses.asdict(trained), "export_dir": trained.export_dir, "promotion": promoted},
    )


@contextlib.contextmanager
def _started(options: TrainOptions) -> Iterator[None]:
    with interruptible(sigterm=True):
        if not options.quiet:
            print("starting TensorFlow", file=sys.stderr, flush=True)
        threads = {"inter_op": options.inter_op_threads, "intra_op": options.intra_op_threads}
        start_tensorflow(verbose=options.verbose, logical_cpus=options.logical_cpus, **threads)
        yield


def planned(dataset: OpenDataset, options: TrainOptions) -> TrainingPlan:
    """Returns the plan of a training, and prints it unless the training is quiet.

    Raises:
      UsageError: the model that is chosen has no such hyper-parameters, or the data lacks what the options ask for.
    """
    from trainer.loop.checks import check_data
    from trainer.loop.plan import plan_training

    plan = plan_training(dataset, options)
    check_model(plan)
    check_data(dataset, plan)
    if not options.quiet:
        print(f"plan     {plan.chosen}", file=sys.stderr, flush=True)
    return plan


def run_training(
    dataset: OpenDataset, options: TrainingPlan, started: contextlib.AbstractContextManager[None]
) -> Trained | None:
    """Copies the data to the cache where there is one, and trains.

    Args:
      dataset: what `options.data_dir` names.
      options: those of the training, which `check_options` has passed, as planned.
      started: TensorFlow is started when this is entered.

    Returns:
      The result; None for a worker or chief of a cluster.

    Raises:
      UsageError: the model directory holds another model.
      MillraceError: the data is invalid, or the training failed.
    """
    began = time.monotonic()
    splits = "train", *options.evaluated_splits
    with local_data(dataset, splits, options.cache_dir, options.cache_gb, quiet=options.quiet) as data, started:
        from trainer.loop.train import train
        from trainer.model_dir.checkpoints import explain_failures

        with explain_failures(data, options):
            return train(data, options, Display(quiet=options.quiet), began=began)


def summary(trained: Trained, options: TrainingPlan, dataset: OpenDataset, prog: str = PROG) -> str:
    """Returns the result of a training for people."""
    lines = [f"ended    {trained.ended}"]
    if trained.steps and is_grown(options.model):
        lines.append(
            f"trained  {counted(trained.steps, 'rounds')} of boosting in {trained.seconds:.1f} s, evaluations included"
        )
    elif trained.steps:
        rate = trained.steps / max(trained.seconds, 1e-9)
        examples = rate * options.batch_size
        lines.append(
            f"trained  {counted(trained.steps, 'steps')} in {trained.seconds:.1f} s, evaluations and exports included "
            f"({command.digits(rate)} steps/s, {examples:,.0f} examples/s)"
        )
    elif trained.steps == 0:
        more = "--max_steps" if trained.global_step >= options.max_steps else "--max_steps or --early_stopping_steps"
        lines.append(f"trained  nothing: the model is at step {trained.global_step:,}; raise {more} to continue")
    for split, metrics in trained.metrics.items():
        # `loss` is `average_loss` but for the last batch's share
        names = [name for name in metrics if name != "loss" or "average_loss" not in metrics]
        values = described({name: metrics[name] for name in names}, trained.positive_class)
        step = metrics["global_step"]
        lines.append(f"{split:8} {values}" + (f" (at step {step:,}: the best)" if step != trained.global_step else ""))
    lines += [f"{name:8} {path}" for name, path in trained.exports.items()]
    written = (os.path.join(trained.model_dir, f"metrics-{split}.json") for split in trained.metrics)
    lines.append(f"metrics  {', '.join(written)}")
    lines.append(f"next     tensorboard --logdir {shlex.quote(trained.model_dir)}")
    lines.append(f"         {_predict_command(trained, dataset, prog)}")
    if trained.promotion is not None:
        lines += trained.promotion.lines()
    if trained.reports:
        lines.append(f"report   {', '.join(trained.reports.values())}")
    return "\n".join(lines)


def _predict_command(trained: Trained, dataset: OpenDataset, prog: str) -> str:
    """The command that predicts with the model on the files that the dataset was read from."""
    predict = "python -m trainer.predict" if prog == PROG else f"{prog.rpartition(' ')[0]} predict"
    images, inputs = dataset.image_schema, dataset.manifest.inputs
    files = "'raw/*.csv'"
    if images is not None and images.pairs:
        files = "pairs.csv"
    elif len(inputs) == 1:
        paths = [inputs[0].path] if images is None else inputs[0].path.split(" ")  # patterns of images
        files = " ".join(map(shlex.quote, paths))
    return f"{predict} --model_dir {shlex.quote(trained.model_dir)} --input {files} --output predictions.jsonl"


COMMAND = command.Command(
    prog=PROG,
    options=TrainOptions,
    work=_run,
    description="Trains a model on a dataset that preprocess wrote, evaluates it and exports it.",
    epilog=f"{MODELS_HELP}\n\n{EXAMPLES}",
    usage="%(prog)s --data_dir DIR --model_dir DIR [--model NAME] [--hparams KEY=VALUE ...] [option ...]",
    instead=AS_HPARAMS,
)
app, parse_options, main = COMMAND.app, COMMAND.parse, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
