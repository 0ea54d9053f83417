"""The random changes to images in training: `--augment`. Importing this imports no TensorFlow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from trainer.spec.hparams import parse_settings


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """The changes to images in TRAIN, in addition to the random crop. Evaluation and serving use the center crop only.

    Attributes:
      flip: mirror half of the images, left to right. Not for images with a fixed orientation, such as digits.
      color_jitter: by how much colors change, from 0 (not at all) to below 1.
      resized_crop: the smallest fraction of an image's area that a crop takes before it is resized to the model's size;
        None: a crop of the model's size, without resizing.

    Raises:
      ValueError: a value is out of its range.
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
    """Parses the `key=value` settings of `--augment`.

    Raises:
      UsageError: an unknown key, or a value out of its range.
    """
    return parse_settings(Augmentation, settings, flag="--augment", of="")
