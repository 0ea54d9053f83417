"""Declares the hyper-parameters of the built-in models, and the values that they may have.

They are not declared in the modules of the models, because those import TensorFlow. `--help` lists the
hyper-parameters, and mistakes in them are reported, before TensorFlow is imported.
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
    """The range of a hyper-parameter, in the `Annotated` type of its field.

    Attributes:
      least: the smallest valid value.
      below: the upper end of the range, which is itself not valid.
    """

    least: float
    below: float = math.inf


Count = Annotated[int, Bounds(0)]
Positive = Annotated[int, Bounds(1)]
NotNegative = Annotated[float, Bounds(0)]
Share = Annotated[float, Bounds(0, 1)]


class Hparams:
    """The base class of hyper-parameters: frozen dataclasses whose fields all have defaults.

    Values are checked against the `Bounds` of their fields.
    """

    def __post_init__(self) -> None:
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            # The bounds are in the metadata of an `Annotated` type: the field's type, or a part of `X | None`.
            ranges = [limits for part in (hint, *typing.get_args(hint)) for limits in getattr(part, "__metadata__", ())]
            if value is None or not ranges:
                continue
            if value < ranges[0].least:
                raise ValueError(f"{name}={value}: must be {ranges[0].least} or more")
            if value >= ranges[0].below:
                raise ValueError(f"{name}={value}: must be below {ranges[0].below}")


@dataclasses.dataclass(frozen=True)
class LinearHparams(Hparams):
    """The hyper-parameters of `linear`: Adam's learning rate.

    The rate decays to 0 along a cosine, over the training's steps, unless `decay` is false.
    """

    learning_rate: NotNegative = 0.02
    decay: bool = True


@dataclasses.dataclass(frozen=True)
class DnnHparams(Hparams):
    """The hyper-parameters of `dnn`: hidden layers and how they are trained.

    Attributes:
      hidden_units: the layers' widths.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps, unless `decay` is false.
      dropout: fraction of each layer's activations that is dropped in training.
      batch_norm: normalise each layer's activations over the batch.
      indicator_limit: a feature with more ids than this is embedded; other ids become indicators (0 or 1).
      embedding_size: the size of each embedding; 0 chooses it by the number of ids.
      squash: the limit into which z-scores are smoothly squeezed; 0: no limit.
      weight_decay: AdamW's; in each step, the kernels shrink by this share, times the learning rate.
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
    """The hyper-parameters of `tabular`: an ensemble of networks that share their weights, and how it is trained.

    Trainings on few rows have other defaults; see `trainer.loop.plan`.

    Attributes:
      members: networks in the ensemble.
      width: units of a hidden layer.
      depth: the number of hidden layers.
      dropout: fraction of each layer's activations that is dropped in training. None: 0.2 for classes; 0 for numbers,
        since the noise of dropout would spoil their predictions.
      frequencies: the number of cosines by which each number is embedded. 0: numbers are not embedded. More than 100
        numbers are not embedded either.
      frequency_scale: the standard deviation of the initial frequencies, in oscillations for one standard deviation of
        the number. None: 0.1 for classes, because small tables would otherwise be learned by heart; 1 for numbers.
      embedding_size: the number of values that each number becomes.
      squash: the limit into which z-scores are smoothly squeezed; 0: no limit.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps, unless `decay` is false.
      weight_decay: AdamW's; in each step, the kernels shrink by this share, times the learning rate.
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
    """The hyper-parameters of `wide_deep`: those of `DnnHparams`, and the learning rate of the wide part.

    Attributes:
      linear_learning_rate: Adam's learning rate for the wide part. None: 0.01 if it reads n-grams, else 0.001.
    """

    hidden_units: tuple[int, ...] = (128, 64)
    learning_rate: NotNegative = 0.001
    dropout: Share = 0.2
    linear_learning_rate: NotNegative | None = None


@dataclasses.dataclass(frozen=True)
class BoostedTreesHparams(Hparams):
    """The hyper-parameters of `boosted_trees`: parameters of LightGBM, under LightGBM's own names.

    Attributes:
      num_iterations: the most rounds of boosting. A round grows one tree, or with three or more classes one tree for
        each class.
      early_stopping_round: stop when the loss on the evaluation split has not improved for this many rounds, and keep
        the rounds up to the best one. 0: never stop early.
      bagging_fraction: the share of the rows that each tree sees.
      feature_fraction: the share of the columns that each tree sees. None: 0.8, or all if there are fewer than 5
        columns.
      list_limit: how many ids of a text or a bag of ids become columns, which hold the ids' counts.
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
    """The hyper-parameters of `softmax`: Adam's learning rate, and two settings of features.

    Attributes:
      learning_rate: Adam's; it stays constant.
      indicator_limit: a feature with more ids than this is embedded; other ids become indicators (0 or 1).
      embedding_size: the size of each embedding; 0 chooses it by the number of ids.
    """

    learning_rate: NotNegative = 0.001
    indicator_limit: Count = 64
    embedding_size: Count = 0


@dataclasses.dataclass(frozen=True)
class SqueezenextHparams(Hparams):
    """The hyper-parameters of `squeezenext`: the network's shape, and how it is trained.

    Attributes:
      width: factor on the channels of the stages: 1 is the paper's 1.0-SqNxt-23, 2 its 2.0-SqNxt-23.
      units: number of units in each of the four stages.
      learning_rate: the rate at the end of the warm-up; it then decays to 0 over the training's steps.
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
    """Hyper-parameters of convolutions that halve an image several times, followed by a dense layer over all positions.

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
    """The hyper-parameters of `convnet`: those of `TowerHparams`, and label smoothing.

    Attributes:
      label_smoothing: the share of a label that training spreads evenly over all classes.
    """

    dropout: Share = 0.7
    label_smoothing: Share = 0.1


@dataclasses.dataclass(frozen=True)
class FacePairsHparams(TowerHparams):
    """The hyper-parameters of `face_pairs`: those of `TowerHparams`, and how two images are compared.

    Attributes:
      embedding_size: the size of an image's embedding.
      grayscale: convert images to grayscale first.
      contrast: weight of a contrastive loss, by which each image must find its partner among the images of the batch.
    """

    embedding_size: Positive = 128
    grayscale: bool = True
    contrast: NotNegative = 1.0


# The ranges of pixels that pretrained networks expect, and which networks use them. `torch` and `caffe` are modes of
# Keras's `preprocess_input`.
PIXELS = {
    "-1..1": "Keras's MobileNet, Inception and Xception",
    "0..1": "TensorFlow Hub",
    "0..255": "Keras's EfficientNet, ConvNeXt and MobileNetV3, which scale by themselves",
    "caffe": "Keras's ResNet and VGG: blue, green, red, less ImageNet's means",
    "torch": "Keras's DenseNet: in ImageNet's standard deviations",
}


@dataclasses.dataclass(frozen=True)
class BackboneHparams(Hparams):
    """The hyper-parameters of `backbone`: a network from a file, and how the layer over it is trained.

    Attributes:
      path: the folder of a TF2 SavedModel; required. A local path is made absolute, so that commands that run later in
        another folder find the network.
      pixels: the range of pixels that the network expects, a key of `PIXELS`; required, since a wrong range would only
        show as a bad accuracy.
      trainable: also train the variables that the file marks as trainable, and update the statistics of batch norm.
        False: the whole network stays as it is.
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
