"""The flags that say what a training step is: the data, the model, and how batches are read.

They mean the same in every command that trains. Importing this imports no TensorFlow.
"""

from __future__ import annotations

import argparse
from typing import Any

from schemas.command import QUIET_HELP, VERBOSE_HELP, Parser
from schemas.errors import UsageError
from schemas.graphs.trust import TRUST_HELP
from trainer.models import BUILT_IN
from trainer.spec.augmentation import Augmentation, augmentation
from trainer.spec.hparams import describe_hparams, parse_hparams
from trainer.spec.options import IMAGES, ROWS, TrainOptions

MODELS = "\n".join(
    [
        "models and their hyper-parameters:",
        *(f"  {name}: {m.summary}\n      {describe_hparams(m.hparams)}" for name, m in BUILT_IN.items()),
        "  package.module:function: a model_fn(features, labels, mode, params), or a function(problem, hparams) that",
        "      returns a compiled Keras model; the dataclass Hparams of its module has its settings (docs/training.md)",
    ]
)


def step_parser(prog: str, *, description: str, examples: str) -> argparse.ArgumentParser:
    """A command's parser that has these flags. One that is not given is left to the default of `TrainOptions`."""
    parser = Parser(
        prog=prog,
        description=description,
        epilog=f"{MODELS}\n\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    add = parser.add_argument
    add("--data_dir", required=True, metavar="DIR", help="the dataset directory (--output of beam_jobs.preprocess)")
    add("--model", metavar="NAME", help="a model listed below, or package.module:function (default: dnn)")
    add(
        "--hparams", nargs="+", action="extend", metavar="KEY=VALUE", help="hyper-parameters of the model, listed below"
    )
    add(
        "--augment",
        nargs="+",
        action="extend",
        metavar="KEY=VALUE",
        help=f"image augmentation, in addition to the random crop (default: {describe_hparams(Augmentation)})",
    )
    add("--batch_size", type=int, metavar="N", help=f"examples a step (default: {ROWS}; for images {IMAGES})")
    add(
        "--shuffle_buffer",
        type=int,
        metavar="N",
        help="size of the shuffle buffer, in records (default: 50,000, or 64 MB if that is less)",
    )
    add("--seed", type=int, metavar="N", help="seed of the initial weights and the shuffling")
    add(
        "--deterministic",
        action="store_true",
        help="with --seed: make the order of examples reproducible; reads more slowly",
    )
    add("--trust", action="store_true", help=TRUST_HELP)
    add("--quiet", action="store_true", help=QUIET_HELP)
    add("--verbose", action="store_true", help=VERBOSE_HELP)
    return parser


def as_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Parsed arguments as the keyword arguments of a frozen dataclass."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in vars(arguments).items()}


def check_model(options: TrainOptions) -> None:
    """Refuses an unknown model, hyper-parameter or augmentation before anything heavy is imported.

    Raises:
      UsageError: no such model, or hyper-parameters that a built-in model does not have, or no such augmentation.
    """
    augmentation(options.augment)
    if options.model in BUILT_IN:
        parse_hparams(BUILT_IN[options.model].hparams, options.hparams, model=options.model)
    elif ":" not in options.model:
        known = ", ".join(BUILT_IN)
        raise UsageError(
            f"--model {options.model}: unknown model; choose from {known}, or give package.module:function for your own"
        )
