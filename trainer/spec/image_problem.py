"""What a model is asked to learn from images: which classes, and the size of what it sees."""

from __future__ import annotations

import dataclasses

from schemas.spec.images import ImagePairsSchema


@dataclasses.dataclass(frozen=True)
class ImageProblem:
    """An image dataset as a model meets it, as `params["problem"]`.

    The features are uint8 `[batch, height, width, 3]`, by the names in `images`; the label is int64 `[batch]`, a class
    id. `trainer.images.normalize` normalises the pixels inside the model.

    Attributes:
      classes: the classes' names by id; of pairs ('different', 'same').
      size: height and width of the images.
      images: the images' names: `image`, or `left` and `right` where the data are pairs.
      run_dir: the dataset run's folder; `tft.TFTransformOutput` opens it.
      max_steps: where training ends; learning rates decay towards it. None: no end is set.
    """

    classes: tuple[str, ...]
    size: tuple[int, int]
    images: tuple[str, ...]
    run_dir: str
    max_steps: int | None = None

    @property
    def pairs(self) -> bool:
        """Two images and whether they show the same, rather than one image and what it shows."""
        return self.images == ImagePairsSchema.image_names
