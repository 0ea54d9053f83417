"""The task spec of an image model: its classes and the size of its input."""

from __future__ import annotations

import dataclasses

from schemas.spec.images import ImagePairsSchema, ImageSchema


@dataclasses.dataclass(frozen=True)
class ImageTaskSpec:
    """What an image model learns, as `params["task_spec"]`.

    The features are uint8 `[batch, height, width, 3]`, by the names in `images`. The label is int64 `[batch]`, a class
    id. `trainer.images.normalize` normalizes the pixels inside the model.

    Attributes:
      schema: the dataset's.
      classes: class names by id; for pairs ('different', 'same').
      run_dir: the dataset run's folder; `tft.TFTransformOutput` opens it.
      max_steps: the step at which training ends; learning rates decay towards it. None: no limit.
    """

    schema: ImageSchema
    classes: tuple[str, ...]
    run_dir: str
    max_steps: int | None = None

    @property
    def schema_class(self) -> type[ImageSchema]:
        """Which format of images the model reads."""
        return type(self.schema)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the images."""
        return self.schema.images.input_size

    @property
    def images(self) -> tuple[str, ...]:
        """The names of an example's images: `image`, or `left` and `right` for pairs."""
        return self.schema.image_names

    @property
    def pairs(self) -> bool:
        """Whether an example is two images and whether they match, instead of one image and its class."""
        return isinstance(self.schema, ImagePairsSchema)
