"""The arguments of a trial of Vertex AI's tuner, which appends the values that it tries to those of the training."""

from __future__ import annotations

from collections.abc import Sequence

from trainer import task as training

TRIAL = "CLOUD_ML_TRIAL_ID"  # the variable that Vertex AI sets in a trial


def trial_arguments(argv: Sequence[str], prog: str) -> list[str]:
    """The arguments as the training's parser takes them.

    The tuner appends `--NAME=VALUE` or `--NAME VALUE`, and knows nothing of `--hparams`. So what is no flag of the
    training is taken for a hyper-parameter of the model. The training's own flags, such as `--batch_size`, stay as they
    are; the last one counts.
    """
    _, unknown = training.parser(prog).parse_known_args(argv)
    kept: list[str] = []
    chosen: list[str] = []
    place = 0
    while place < len(argv):
        argument, following = argv[place], argv[place + 1 : place + 2]
        name, equals, _ = argument.partition("=")
        place += 1
        if not name.startswith("--") or argument not in unknown:
            kept.append(argument)
        elif equals:
            chosen.append(argument[2:])
        elif following and not following[0].startswith("--"):
            chosen.append(f"{name[2:]}={following[0]}")
            place += 1
        else:
            kept.append(argument)
    return [*kept, *(part for setting in chosen for part in ("--hparams", setting))]
