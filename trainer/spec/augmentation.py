"""Which random changes training makes to images: `--augment`. Importing this imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from trainer.spec.hparams import parse_settings


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """What TRAIN does to an image beside the random crop; evaluation and serving take the centre crop alone.

    Attributes:
      flip: half of the images are mirrored, left to right. Not for what has a right way round, such as digits.
      color_jitter: by how much colours change, from 0 (not at all) to below 1.
      resized_crop: the least share of an image's area that a crop takes before it is resized to the model's size; none:
        a crop of the model's size, as it stands.
    """

    flip: bool = True
    color_jitter: float = 0.0
    resized_crop: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.color_jitter < 1.0:
            raise ValueError(f"color_jitter={self.color_jitter}: must be 0 or more and below 1")
        if self.resized_crop is not None and not 0.0 < self.resized_crop <= 1.0:
            raise ValueError(f"resized_crop={self.resized_crop}: must be above 0 and at most 1")


def augmentation(settings: Sequence[str]) -> Augmentation:
    """Reads `--augment`: `key=value` each.

    Raises:
      UsageError: a key that there is not, or a value out of its range.
    """
    return parse_settings(Augmentation, settings, flag="--augment", of="")
