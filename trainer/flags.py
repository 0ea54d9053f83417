"""The flags that say what a training step is: the data, the model, and how batches are read.

They mean the same in every command that trains. Importing this imports no TensorFlow.
"""

from __future__ import annotations

import argparse
from typing import Any

from schemas.command import QUIET_HELP, VERBOSE_HELP, Parser
from schemas.errors import UsageError
from schemas.graphs.check import TRUST_HELP
from trainer.models import BUILT_IN
from trainer.spec.hparams import Augmentation, augmentation, describe_hparams, parse_hparams
from trainer.spec.options import IMAGES, ROWS, STRATEGIES, TrainOptions

MODELS = "\n".join(
    [
        "models and their hyper-parameters:",
        *(f"  {name}: {m.summary}\n      {describe_hparams(m.hparams)}" for name, m in BUILT_IN.items()),
        "  package.module:function: your own: a model_fn(features, labels, mode, params), or a function(task_spec,",
        "      hparams) that returns a compiled Keras model; the dataclass Hparams in its module declares its",
        "      hyper-parameters (docs/training.md)",
    ]
)


def step_parser(prog: str, *, description: str, examples: str) -> argparse.ArgumentParser:
    """A command's parser that has these flags. One that is not given is left to the default of `TrainOptions`."""
    parser = Parser(
        prog=prog,
        description=description,
        epilog=f"{MODELS}\n\n{examples}",
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
    add(
        "--batch_size",
        type=int,
        metavar="N",
        help=f"examples per step, which replicas share (default: {ROWS}; for images {IMAGES})",
    )
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
    _add_reading_flags(parser)
    add(
        "--cache_dir",
        metavar="DIR",
        help="keep copies of the files that are read in this local directory, for data on gs:// that is read again: in "
        "further epochs, by further trainings and by other processes",
    )
    add(
        "--cache_gb",
        type=float,
        metavar="GB",
        help=f"the most that all files in --cache_dir may take (default: {TrainOptions.cache_gb:g})",
    )
    add(
        "--strategy",
        choices=STRATEGIES,
        help="mirrored: replicas of the model on the GPUs of this machine share each batch; parameter_server: the "
        "workers of the cluster in TF_CONFIG train one model, each at its own pace; multi_worker: they take each step "
        "together, by all-reduce (default: none; docs/strategies.md)",
    )
    add("--num_gpus", type=int, metavar="N", help="the number of GPUs that a strategy uses (default: all)")
    add(
        "--logical_cpus",
        type=int,
        metavar="N",
        help="make the CPU N devices, to try a strategy without GPUs; it does not train faster",
    )
    add(
        "--mixed_precision",
        action="store_true",
        help="compute in bfloat16 where it is precise enough, on a CPU that does so; a GPU is refused",
    )
    add("--xla", action="store_true", help="compile clusters of the graph by XLA, which takes its time at first")
    add("--trust", action="store_true", help=TRUST_HELP)
    add("--quiet", action="store_true", help=QUIET_HELP)
    add("--verbose", action="store_true", help=VERBOSE_HELP)
    return parser


def _add_reading_flags(parser: argparse.ArgumentParser) -> None:
    """How shards are read, and by how many threads; the defaults are good for most data."""
    numbers = {
        "cycle_length": "shards that training reads in parallel (default: 8)",
        "block_length": "records taken from one shard before the next one's turn (default: 16 images; for rows "
        "a share of the shuffle window, at most 4,096)",
        "prefetch": "batches made ahead of training; 0 makes none (default: tf.data chooses)",
        "read_threads": "threads that read and prepare batches, apart from those of the model (default: they share)",
        "inter_op_threads": "operations of the model that run side by side (default: TensorFlow's, one for each core)",
        "intra_op_threads": "threads that one operation may use (default: TensorFlow's, one for each core)",
    }
    for name, text in numbers.items():
        parser.add_argument(f"--{name}", type=int, metavar="N", help=text)
    parser.add_argument(
        "--data_service",
        metavar="grpc://HOST:PORT",
        help="the dispatcher of a tf.data service, whose workers read the shards and prepare the batches of training",
    )
    parser.add_argument(
        "--drop_remainder",
        action="store_true",
        help="give training batches a static size, which XLA and TPUs need; no record is dropped, since a batch goes "
        "on with the next epoch",
    )


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
