"""How a model sees the label: what it learns, and where it begins. Importing this imports no TensorFlow."""

from __future__ import annotations

from typing import Literal

from schemas.spec.forms import Strict


class LabelScale(Strict):
    """What a training has measured of the label in the train split; without it, a label is learned as it is.

    Attributes:
      transform: what a regression learns: `z_score`, `(y - mean) / deviation`; `log`, the same of `ln(y)`; or `none`.
      mean, deviation: of `y` in the train split, or of `ln(y)`.
      priors: the share of each class in the train split, where a classification begins; empty: all classes alike.
      class_weights: the factor on the loss of each class's examples in training; empty: 1.
    """

    transform: Literal["none", "z_score", "log"] = "none"
    mean: float = 0.0
    deviation: float = 1.0
    priors: tuple[float, ...] = ()
    class_weights: tuple[float, ...] = ()


AS_IT_IS = LabelScale()
