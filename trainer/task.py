"""Trains a model on a dataset.

    python -m trainer.task --data_dir out/ --model_dir model/ --model dnn --max_steps 5000

Run it again to resume from the last checkpoint. In a cluster, each process runs it with its own TF_CONFIG.

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING

from schemas import command
from schemas.dataset import Dataset, open_dataset
from schemas.errors import MillraceError
from schemas.interrupts import interruptible
from schemas.spec.images import ImageSchema
from trainer.flags import MODELS
from trainer.local_data import local_data, read_splits
from trainer.loop.checks import check_data, check_options
from trainer.spec.options import TrainOptions
from trainer.verbosity import start_tensorflow

if TYPE_CHECKING:
    from trainer.loop.evaluations import Trained

PROG = "python -m trainer.task"
EXAMPLES = """\
examples:
  %(prog)s --data_dir out/ --model_dir model/ --hparams hidden_units=512,256 dropout=0.1
  %(prog)s --data_dir out/ --model_dir model/ --max_steps 50000 --early_stopping_steps 5000

Exit codes: 0 done, 1 failed, 2 invalid usage, 130 interrupted, 143 terminated."""


def _run(options: TrainOptions, prog: str) -> command.Report:
    with command.when_interrupted("run the command again to resume from the last checkpoint"):
        check_options(options)  # before the data is copied to --cache_dir
        dataset = open_dataset(options.data_dir, trust=options.trust)
        check_data(dataset, options)
        if options.verify_data:
            verify_data(dataset)
        with local_data(dataset, options, read_splits(options)) as data:
            if not options.quiet:
                print("starting TensorFlow", file=sys.stderr, flush=True)
            threads = {"inter_op": options.inter_op_threads, "intra_op": options.intra_op_threads}
            start_tensorflow(verbose=options.verbose, logical_cpus=options.logical_cpus, **threads)
            from trainer.loop.display import Display
            from trainer.loop.train import train
            from trainer.model_dir.checkpoints import explain_failures

            with interruptible(sigterm=True), explain_failures(data, options):
                trained = train(data, options, Display(quiet=options.quiet))
    if trained is None:
        return command.Report("", {"model_dir": options.model_dir})
    print(summary(trained, options, dataset.image_schema, prog), file=sys.stderr)
    promoted = None if trained.promotion is None else trained.promotion.record()
    return command.Report(
        json.dumps({split: command.finite(metrics) for split, metrics in trained.metrics.items()}),
        {**dataclasses.asdict(trained), "export_dir": trained.export_dir, "promotion": promoted},
    )


def verify_data(dataset: Dataset) -> None:
    """Reads every file of the dataset and compares it with the manifest and the schema.

    Raises:
      MillraceError: something is wrong; the message names each file, ten at most.
    """
    from schemas.dataset.verify import total_bytes, verify_dataset

    print(f"verifying {total_bytes(dataset.manifest) / 1e6:,.1f} MB", file=sys.stderr, flush=True)
    problems = verify_dataset(dataset.path)
    if problems:
        told = "\n".join(str(problem) for problem in problems[:10])
        more = f"\nand {len(problems) - 10:,} more" if len(problems) > 10 else ""
        raise MillraceError(f"{dataset.path}: invalid dataset; nothing was trained:\n{told}{more}")


def summary(trained: Trained, options: TrainOptions, images: ImageSchema | None, prog: str = PROG) -> str:
    """What a training left behind, for people. `images`: the schema of a dataset of images; None for CSV."""
    lines = [f"ended    {trained.ended}"]
    if trained.steps:
        rate = trained.steps / max(trained.seconds, 1e-9)
        examples = rate * options.batch(images=images is not None)
        lines.append(
            f"trained  {trained.steps:,} steps in {trained.seconds:.1f} s, evaluations and exports included "
            f"({rate:,.0f} steps/s, {examples:,.0f} examples/s)"
        )
    elif trained.steps == 0:
        lines.append(f"trained  nothing: the model is at step {trained.global_step:,}; raise --max_steps to continue")
    for split, metrics in trained.metrics.items():
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if name != "global_step")
        step = metrics["global_step"]
        lines.append(f"{split:8} {values}" + (f" (at step {step:,}: the best)" if step != trained.global_step else ""))
    lines += [f"{name:8} {path}" for name, path in trained.exports.items()]
    written = (os.path.join(trained.model_dir, f"metrics-{split}.json") for split in trained.metrics)
    lines.append(f"metrics  {', '.join(written)}")
    lines.append(f"next     tensorboard --logdir {trained.model_dir}")
    predict = "python -m trainer.predict" if prog == PROG else f"{prog.rpartition(' ')[0]} predict"
    files = "raw.csv" if images is None else images.example_input
    lines.append(f"         {predict} --saved_model {trained.export_dir} --input {files} --output predictions.jsonl")
    if trained.promotion is not None:
        lines += trained.promotion.lines()
    if trained.reports:
        lines.append(f"report   {', '.join(trained.reports.values())}")
    return "\n".join(lines)


COMMAND = command.Command(
    prog=PROG,
    options=TrainOptions,
    work=_run,
    description="Trains a model on a dataset that beam_jobs.preprocess wrote, evaluates it and exports it.",
    epilog=f"{MODELS}\n\n{EXAMPLES}",
)
parser, parse_options, main = COMMAND.parser, COMMAND.parse, COMMAND.main

if __name__ == "__main__":
    sys.exit(main())
