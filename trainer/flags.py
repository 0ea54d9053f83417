"""The models that the help of every command that trains lists. Importing this imports no TensorFlow."""

from __future__ import annotations

from schemas.errors import UsageError
from trainer.models import BUILT_IN
from trainer.spec.hparams import augmentation, describe_hparams, parse_hparams
from trainer.spec.options import StepOptions

MODELS = "\n".join(
    [
        "models and their hyper-parameters:",
        *(f"  {name}: {m.summary}\n      {describe_hparams(m.hparams)}" for name, m in BUILT_IN.items()),
        "  package.module:function: your own: a model_fn(features, labels, mode, params), or a function(task_spec,",
        "      hparams) that returns a compiled Keras model; the dataclass Hparams in its module declares its",
        "      hyper-parameters (docs/training.md)",
    ]
)


def check_model(options: StepOptions) -> None:
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
