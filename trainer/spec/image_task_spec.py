"""The task spec of an image model: its classes and the size of its input."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ImageTaskSpec:
    """What an image model learns, as `params["task_spec"]`.

    The features are uint8 `[batch, height, width, 3]`: `image`, or `left` and `right` for pairs. The label is int64
    `[batch]`, a class id. `trainer.images.normalize` normalizes the pixels inside the model.

    Attributes:
      classes: class names by id; for pairs ('different', 'same').
      size: height and width of the images.
      pairs: whether an example is two images and whether they match, instead of one image and its class.
      run_dir: the dataset run's folder; `tft.TFTransformOutput` opens it.
      max_steps: the step at which training ends; learning rates decay towards it. None: no limit.
    """

    classes: tuple[str, ...]
    size: tuple[int, int]
    pairs: bool
    run_dir: str
    max_steps: int | None = None
