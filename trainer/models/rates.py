"""The learning rates of the built-in models by step, to tell them. Nothing here imports TensorFlow."""

from __future__ import annotations

import math
from typing import Any


def constant(hparams: Any, step: int, max_steps: int) -> float:
    """The same at every step."""
    return float(hparams.learning_rate)


def cosine(hparams: Any, step: int, max_steps: int) -> float:
    """Down to 0 along a cosine, see `trainer.models.optimizers`; unless `decay` is false."""
    if not getattr(hparams, "decay", True):
        return constant(hparams, step, max_steps)
    return float(hparams.learning_rate) * (1 + math.cos(math.pi * min(1.0, step / max_steps))) / 2


def polynomial(hparams: Any, step: int, max_steps: int) -> float:
    """Up from `warmup_start` during the warm-up, then down to 0: see `trainer.models.optimizers`."""
    warmup = int(hparams.warmup * max_steps)
    if step < warmup:
        return float(hparams.warmup_start + (hparams.learning_rate - hparams.warmup_start) * step / warmup)
    return float(hparams.learning_rate) * (1 - min(1.0, (step - warmup) / (max_steps - warmup))) ** hparams.power
