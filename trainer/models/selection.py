"""Checks the model and the hyper-parameters that a command requests, and lists the available ones in --help."""

from __future__ import annotations

import dataclasses

from schemas.errors import UsageError
from trainer.models import BUILT_IN
from trainer.spec.hparams import augmentation, describe_hparams, parse_hparams, split_settings
from trainer.spec.options import TrainOptions

# Hyper-parameters that name a file. Every process of a training reads the file.
PATHS = frozenset(f.name for m in BUILT_IN.values() for f in dataclasses.fields(m.hparams) if f.metadata.get("path"))

MODELS_HELP = "\n".join(
    [
        "models and their hyper-parameters:",
        *(f"  {name}: {m.summary}\n      {describe_hparams(m.hparams)}" for name, m in BUILT_IN.items()),
        "  package.module:function: your own: a model_fn(features, labels, mode, params), or a function(task_spec,",
        "      hparams) that returns a compiled Keras model; the dataclass Hparams in its module declares its",
        "      hyper-parameters (docs/training.md)",
    ]
)

# What to type instead of a flag that has the name of a hyper-parameter.
AS_HPARAMS = {"lr": "--hparams learning_rate"} | {
    field.name: f"--hparams {field.name}" for model in BUILT_IN.values() for field in dataclasses.fields(model.hparams)
}


def check_model(options: TrainOptions) -> None:
    """Refuses an unknown model, hyper-parameter or augmentation, before anything heavy is imported.

    Without --model, the data decides on the model later; at least one built-in model must then take the
    hyper-parameters.

    Args:
      options: the options of `millrace train`.

    Raises:
      UsageError: the model or the augmentation does not exist, or the built-in model does not have the
        hyper-parameters.
    """
    augmentation(options.augment)
    if options.model is not None and ":" in options.model:
        return
    if options.model not in (None, *BUILT_IN):
        choices = ", ".join(BUILT_IN)
        raise UsageError(
            f"--model {options.model}: unknown model; choose from {choices}, or give package.module:function "
            "for your own"
        )
    names = {setting.partition("=")[0] for setting in split_settings(options.hparams)}
    taking = [name for name, model in BUILT_IN.items() if names <= {f.name for f in dataclasses.fields(model.hparams)}]
    errors = []
    for model in [options.model] if options.model else taking or ["tabular"]:
        try:
            parse_hparams(BUILT_IN[model].hparams, options.hparams, model=model)
        except UsageError as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def check_reads(model: str, examples: str) -> None:
    """Refuses a built-in model that cannot read the dataset's examples.

    Args:
      model: the model's name.
      examples: the kind of the dataset's examples: rows, images or pairs.

    Raises:
      UsageError: the model does not read such examples.
    """
    reads = BUILT_IN[model].reads
    if examples not in reads:
        models = ", ".join(name for name, other in BUILT_IN.items() if examples in other.reads)
        split = "; images are compared in pairs where the schema says `split: {by: folder}`"
        hint = split if "pairs" in (examples, *reads) else ""
        raise UsageError(f"model {model!r} reads {' or '.join(reads)}; for {examples} use: {models}{hint}")
