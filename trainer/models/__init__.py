"""The models that ship, and their hyper-parameters. Nothing here imports TensorFlow.

A built-in model is a module with `build(task_spec, hparams, config) -> Estimator`; `trainer.models.custom` loads the
user's own.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from schemas.errors import UsageError
from trainer.models.squeezenext_variants import VARIANTS
from trainer.spec.image_task_spec import ImageTaskSpec

__all__ = ["BUILT_IN", "BuiltIn", "custom"]

COLUMNS, IMAGES, PAIRS = "columns of a CSV dataset", "images", "pairs of images"  # what models read


def _check(hparams: Any, **least: float) -> None:
    for name, low in least.items():
        if getattr(hparams, name) < low:
            raise ValueError(f"{name}={getattr(hparams, name)}: must be {low} or more")


def _check_below(hparams: Any, **limits: float) -> None:
    for name, limit in limits.items():
        if getattr(hparams, name) >= limit:
            raise ValueError(f"{name}={getattr(hparams, name)}: must be below {limit}")


@dataclasses.dataclass(frozen=True)
class LinearHparams:
    """`learning_rate` decays to 0 along a cosine, over the training's steps, unless `decay` is false."""

    learning_rate: float = 0.01
    decay: bool = True

    def __post_init__(self) -> None:
        _check(self, learning_rate=0)


@dataclasses.dataclass(frozen=True)
class DnnHparams:
    """Hidden layers and how they are trained.

    Attributes:
      hidden_units: the layers' widths.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps, unless `decay` is false.
      dropout: share of the activations left out, each layer.
      batch_norm: normalise each layer's activations over the batch.
      indicator_limit: a feature with more ids than this is embedded.
      embedding_size: of each embedding; 0 chooses by the number of ids.
    """

    hidden_units: tuple[int, ...] = (256, 256, 128)
    learning_rate: float = 0.002
    decay: bool = True
    dropout: float = 0.0
    batch_norm: bool = False
    indicator_limit: int = 64
    embedding_size: int = 0

    def __post_init__(self) -> None:
        _check(self, learning_rate=0, dropout=0, indicator_limit=0, embedding_size=0)
        if not self.hidden_units or min(self.hidden_units) < 1:
            raise ValueError("hidden_units needs at least one layer, each of 1 unit or more")
        _check_below(self, dropout=1)


@dataclasses.dataclass(frozen=True)
class WideDeepHparams(DnnHparams):
    """As `DnnHparams`; `linear_learning_rate` is Adam's for the wide part."""

    hidden_units: tuple[int, ...] = (128, 64)
    learning_rate: float = 0.001
    dropout: float = 0.2
    linear_learning_rate: float = 0.001

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self, linear_learning_rate=0)


@dataclasses.dataclass(frozen=True)
class SoftmaxHparams:
    """Adam's learning rate, and the indicator limit and embedding size of `DnnHparams`."""

    learning_rate: float = 0.001
    indicator_limit: int = 64
    embedding_size: int = 0

    def __post_init__(self) -> None:
        _check(self, learning_rate=0, indicator_limit=0, embedding_size=0)


@dataclasses.dataclass(frozen=True)
class SqueezenextHparams:
    """SqueezeNext's shape, and how it is trained.

    Attributes:
      variant: one of `trainer.models.squeezenext_variants.VARIANTS`.
      stem_stride: of the first convolution; none: 2, but 1 for images with a side below 64.
      learning_rate: at the end of the warm-up; it decays to 0 over the training's steps.
      warmup: share of the training's steps over which the rate grows from 0.
      power: of the decay.
      momentum: of the optimizer.
      l2: weight of the squared kernels in the loss.
      batch_norm_momentum: of the moving averages, in a long training; a short one looks back less far.
      fine_tune_checkpoint: a checkpoint, or a model directory, of the same variant: training starts from its weights,
        those of the last layer excepted.
      image_summary_steps: some of the batch's images are written as a summary each so many steps; 0 writes none.
    """

    variant: str = "1.0-SqNxt-23"
    stem_stride: int | None = None
    learning_rate: float = 0.04
    warmup: float = 0.05
    power: float = 2.0
    momentum: float = 0.9
    l2: float = 1e-4
    batch_norm_momentum: float = 0.99
    fine_tune_checkpoint: str | None = None
    image_summary_steps: int = 100

    def __post_init__(self) -> None:
        _check(self, learning_rate=0, warmup=0, power=0, momentum=0, l2=0, batch_norm_momentum=0, image_summary_steps=0)
        _check_below(self, warmup=1, momentum=1, batch_norm_momentum=1)
        if self.variant not in VARIANTS:
            raise ValueError(f"variant={self.variant}: expected one of {', '.join(VARIANTS)}")
        if self.stem_stride is not None and self.stem_stride < 1:
            raise ValueError(f"stem_stride={self.stem_stride}: must be 1 or more, or none")


@dataclasses.dataclass(frozen=True)
class FacePairsHparams:
    """A small convolutional tower over both images of a pair, and how it is trained.

    Attributes:
      width: channels of the first convolution; each of the next ones has twice as many, up to 8 times as many.
      embedding_size: of an image.
      dropout: share of the last convolution's outputs left out in training.
      grayscale: the tower sees brightness alone.
      contrast: weight of the second loss, which asks of each image that it find its partner among the batch's.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps.
      l2: weight of the squared kernels in the loss.
      image_summary_steps: some of the batch's pairs are written as a summary each so many steps; 0 writes none.
    """

    width: int = 16
    embedding_size: int = 128
    dropout: float = 0.3
    grayscale: bool = True
    contrast: float = 1.0
    learning_rate: float = 0.001
    l2: float = 1e-4
    image_summary_steps: int = 100

    def __post_init__(self) -> None:
        _check(self, width=1, embedding_size=1, dropout=0, contrast=0, learning_rate=0, l2=0, image_summary_steps=0)
        _check_below(self, dropout=1)


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A model that ships: its hyper-parameters, the module that builds it, and what it reads."""

    summary: str
    hparams: type[Any]
    module: str
    reads: tuple[str, ...] = (COLUMNS,)

    def build(self, task_spec: Any, hparams: Any, config: Any) -> Any:
        """Returns the Estimator for a `TaskSpec` or an `ImageTaskSpec`, in the config's model_dir.

        Raises:
          UsageError: the model does not read data of this kind.
        """
        kind = kind_of(task_spec)
        if kind not in self.reads:
            name = self.module.rpartition(".")[2]
            fitting = ", ".join(other for other, model in BUILT_IN.items() if kind in model.reads)
            raise UsageError(f"model {name!r} reads {' or '.join(self.reads)}; for {kind} use: {fitting}")
        return importlib.import_module(self.module).build(task_spec, hparams, config)


def kind_of(task_spec: Any) -> str:
    """COLUMNS, IMAGES or PAIRS."""
    if not isinstance(task_spec, ImageTaskSpec):
        return COLUMNS
    return PAIRS if task_spec.pairs else IMAGES


BUILT_IN: dict[str, BuiltIn] = {
    "linear": BuiltIn("one weight for each number and id", LinearHparams, "trainer.models.linear"),
    "dnn": BuiltIn("hidden layers over numbers, indicators and embeddings", DnnHparams, "trainer.models.dnn"),
    "wide_deep": BuiltIn("linear over ids and crosses, beside a dnn", WideDeepHparams, "trainer.models.wide_deep"),
    "softmax": BuiltIn(
        "one dense layer, as a model_fn written out: classes only, small images too",
        SoftmaxHparams,
        "trainer.models.softmax",
        (COLUMNS, IMAGES),
    ),
    "squeezenext": BuiltIn(
        "a small convolutional network, for images", SqueezenextHparams, "trainer.models.squeezenext", (IMAGES,)
    ),
    "face_pairs": BuiltIn(
        "whether two images show the same, by a convolutional network that both go through",
        FacePairsHparams,
        "trainer.models.face_pairs",
        (PAIRS,),
    ),
}
