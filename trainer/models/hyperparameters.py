"""Declares the hyper-parameters of the models that ship, and what values they take.

They are apart from their models, which import TensorFlow: `--help` shows them, and mistakes in them are answered,
without that import.
"""

from __future__ import annotations

import dataclasses
import math
import os
import typing
from typing import Annotated

from schemas import storage


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The values that a hyper-parameter takes, in the `Annotated` type of its field.

    Attributes:
      least: the least of them.
      below: a number that is too large.
    """

    least: float
    below: float = math.inf


Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
NotNegative = Annotated[float, Bounds(0)]
Share = Annotated[float, Bounds(0, 1)]


class Hparams:
    """Hyper-parameters: a frozen dataclass whose fields all have defaults, and are checked against their `Bounds`."""

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            ranges = [limits for part in (hint, *typing.get_args(hint)) for limits in getattr(part, "__metadata__", ())]
            if value is None or not ranges:
                continue
            if value < ranges[0].least:
                raise ValueError(f"{name}={value}: must be {ranges[0].least} or more")
            if value >= ranges[0].below:
                raise ValueError(f"{name}={value}: must be below {ranges[0].below}")


@dataclasses.dataclass(frozen=True)
class LinearHparams(Hparams):
    """`learning_rate` decays to 0 along a cosine, over the training's steps, unless `decay` is false."""

    learning_rate: NotNegative = 0.02
    decay: bool = True


@dataclasses.dataclass(frozen=True)
class DnnHparams(Hparams):
    """Hidden layers and how they are trained.

    Attributes:
      hidden_units: the layers' widths.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps, unless `decay` is false.
      dropout: fraction of each layer's activations that is dropped in training.
      batch_norm: normalise each layer's activations over the batch.
      indicator_limit: a feature with more ids than this is embedded.
      embedding_size: the size of each embedding; 0 chooses it by the number of ids.
      squash: how far z-scores reach in the model, smoothly; 0: as far as they do.
      weight_decay: the share of the kernels that a step takes off, times the learning rate (AdamW).
    """

    hidden_units: tuple[int, ...] = (256, 256, 128)
    learning_rate: NotNegative = 0.002
    decay: bool = True
    dropout: Share = 0.0
    batch_norm: bool = False
    indicator_limit: Count = 64
    embedding_size: Count = 0
    squash: NotNegative = 3.0
    weight_decay: NotNegative = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden_units or min(self.hidden_units) < 1:
            raise ValueError("hidden_units needs at least one layer, each of 1 unit or more")


@dataclasses.dataclass(frozen=True)
class TabularHparams(Hparams):
    """An ensemble of networks that share their weights, and how it is trained.

    Trainings on few rows take other values by default; see `trainer.loop.plan`.

    Attributes:
      members: networks in the ensemble.
      width, depth: units of a hidden layer, and how many there are.
      dropout: fraction of each layer's activations that is dropped in training; none: 0.2 for classes, 0 for numbers,
        whose predictions its noise would spoil.
      frequencies: cosines of each number; 0: numbers are not embedded, nor are more than 100 of them.
      frequency_scale: the standard deviation of the frequencies at first, in oscillations for a standard deviation;
        none: 0.1 for classes, whose small tables would be learned by heart, 1 for numbers.
      embedding_size: values that each number becomes.
      squash: how far z-scores reach in the model, smoothly; 0: as far as they do.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps, unless `decay` is false.
      weight_decay: the share of the kernels that a step takes off, times the learning rate (AdamW).
    """

    members: Positive = 8
    width: Positive = 128
    depth: Positive = 3
    dropout: Share | None = None
    frequencies: Count = 16
    frequency_scale: NotNegative | None = None
    embedding_size: Annotated[int, Bounds(2)] = 8
    squash: NotNegative = 3.0
    learning_rate: NotNegative = 0.005
    decay: bool = True
    weight_decay: NotNegative = 0.0003


@dataclasses.dataclass(frozen=True)
class WideDeepHparams(DnnHparams):
    """As `DnnHparams`; `linear_learning_rate` is Adam's for the wide part; none: 0.01 for n-grams, else 0.001."""

    hidden_units: tuple[int, ...] = (128, 64)
    learning_rate: NotNegative = 0.001
    dropout: Share = 0.2
    linear_learning_rate: NotNegative | None = None


@dataclasses.dataclass(frozen=True)
class BoostedTreesHparams(Hparams):
    """LightGBM's parameters under its own names, whose documentation describes them.

    Attributes:
      num_iterations: the most rounds of boosting, each of one tree, or of one for each of three classes or more.
      early_stopping_round: stop after so many rounds in which the loss on the evaluation split was no better; the
        rounds up to the best one are kept. 0: never stop early.
      bagging_fraction: the share of the rows that each tree sees.
      feature_fraction: the share of the columns that each tree sees; none: 0.8, or all where there are fewer than 5.
      list_limit: of a text or a bag of ids, the number of ids whose counts are columns.
    """

    num_iterations: Positive = 1000
    early_stopping_round: Count = 50
    learning_rate: float = 0.1
    num_leaves: Annotated[int, Bounds(2, 131_073)] = 31
    max_depth: Annotated[int, Bounds(-1)] = -1
    min_data_in_leaf: Count = 20
    bagging_fraction: float = 1.0
    feature_fraction: float | None = None
    lambda_l1: NotNegative = 0.0
    lambda_l2: NotNegative = 0.0
    max_bin: Annotated[int, Bounds(2, 65_536)] = 255
    list_limit: Positive = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("learning_rate", "bagging_fraction", "feature_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name}={value}: must be above 0 and at most 1")


@dataclasses.dataclass(frozen=True)
class SoftmaxHparams(Hparams):
    """Adam's learning rate, and the indicator limit and embedding size of `DnnHparams`."""

    learning_rate: NotNegative = 0.001
    indicator_limit: Count = 64
    embedding_size: Count = 0


@dataclasses.dataclass(frozen=True)
class SqueezenextHparams(Hparams):
    """SqueezeNext's shape, and how it is trained.

    Attributes:
      width: factor on the channels of the stages: 1 is the paper's 1.0-SqNxt-23, 2 its 2.0-SqNxt-23.
      units: number of units in each of the four stages.
      learning_rate: its value at the end of the warm-up; it then decays to 0 over the training's steps.
      warmup: fraction of the training's steps over which the learning rate grows from 0.
      momentum: the momentum of the optimizer.
      l2: weight of the squared kernels in the loss.
    """

    width: Annotated[float, Bounds(0.125)] = 1.0
    units: tuple[int, ...] = (6, 6, 8, 1)
    learning_rate: NotNegative = 0.04
    warmup: Share = 0.05
    momentum: Share = 0.9
    l2: NotNegative = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.units) != 4 or min(self.units) < 1:
            raise ValueError("units needs four numbers, each of 1 or more")


@dataclasses.dataclass(frozen=True)
class TowerHparams(Hparams):
    """Convolutions that halve an image, and a dense layer over all positions.

    Attributes:
      width: channels of the first convolution; each later one has twice as many as the one before, up to 8 * width.
      dropout: fraction of the last convolution's outputs that is dropped in training.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps.
      l2: weight of the squared kernels in the loss.
    """

    width: Positive = 16
    dropout: Share = 0.3
    learning_rate: NotNegative = 0.001
    l2: NotNegative = 1e-4


@dataclasses.dataclass(frozen=True)
class ConvnetHparams(TowerHparams):
    """As `TowerHparams`; `label_smoothing` is the share of a label that training spreads evenly over all classes."""

    dropout: Share = 0.7
    label_smoothing: Share = 0.1


@dataclasses.dataclass(frozen=True)
class FacePairsHparams(TowerHparams):
    """As `TowerHparams`, over both images of a pair.

    Attributes:
      embedding_size: the size of an image's embedding.
      grayscale: convert images to grayscale first.
      contrast: weight of a contrastive loss, by which each image must find its partner among those of the batch.
    """

    embedding_size: Positive = 128
    grayscale: bool = True
    contrast: NotNegative = 1.0


# What a network in a file takes for a pixel, and whose it is. Keras's `preprocess_input` has the modes torch and caffe.
PIXELS = {
    "-1..1": "Keras's MobileNet, Inception and Xception",
    "0..1": "TensorFlow Hub",
    "0..255": "Keras's EfficientNet, ConvNeXt and MobileNetV3, which scale by themselves",
    "caffe": "Keras's ResNet and VGG: blue, green, red, less ImageNet's means",
    "torch": "Keras's DenseNet: in ImageNet's standard deviations",
}


@dataclasses.dataclass(frozen=True)
class BackboneHparams(Hparams):
    """A network from a file, and how the layer over it is trained.

    Attributes:
      path: the folder of a TF2 SavedModel; required. A local one becomes absolute, so that what is recorded of a
        training is found from any folder.
      pixels: what it expects of a pixel, one of `PIXELS`; required, since a wrong scale shows in the accuracy only.
      trainable: train the variables that the file itself trains, too, with batch norm's statistics; else all of the
        network stays as it is.
      dropout: fraction of the feature vector that is dropped in training.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps, unless `decay` is false.
    """

    path: str | None = dataclasses.field(default=None, metadata={"path": True})
    pixels: str | None = None
    trainable: bool = False
    dropout: Share = 0.2
    learning_rate: NotNegative = 0.001
    decay: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.path and storage.is_local(self.path):
            object.__setattr__(self, "path", os.path.abspath(self.path))
        if self.pixels not in (None, *PIXELS):
            choices = "; ".join(f"{name}: {whose}" for name, whose in PIXELS.items())
            raise ValueError(f"pixels={self.pixels}: expected one of {choices}")
