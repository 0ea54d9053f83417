"""The models that ship, their hyper-parameters, and what help says of them. Nothing here imports TensorFlow.

A built-in model is a function `(task_spec, hparams, config) -> Estimator`; `trainer.models.custom` loads the user's
own.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Sequence
from typing import Any, Literal

from schemas import storage
from schemas.errors import UsageError
from trainer.spec.hparams import augmentation, describe_hparams, parse_hparams, split_settings
from trainer.spec.options import TrainOptions

__all__ = [
    "AS_HPARAMS",
    "BUILT_IN",
    "MODELS",
    "PATHS",
    "PIXELS",
    "BackboneHparams",
    "BoostedTreesHparams",
    "BuiltIn",
    "backbone",
    "boosted_trees",
    "canned",
    "check_model",
    "custom",
    "is_grown",
    "optimizers",
    "warm_start",
]


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

    learning_rate: float = 0.02
    decay: bool = True

    def __post_init__(self) -> None:
        _check(self, learning_rate=0)


@dataclasses.dataclass(frozen=True)
class DnnHparams:
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
    learning_rate: float = 0.002
    decay: bool = True
    dropout: float = 0.0
    batch_norm: bool = False
    indicator_limit: int = 64
    embedding_size: int = 0
    squash: float = 3.0
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _check(self, learning_rate=0, dropout=0, indicator_limit=0, embedding_size=0, squash=0, weight_decay=0)
        if not self.hidden_units or min(self.hidden_units) < 1:
            raise ValueError("hidden_units needs at least one layer, each of 1 unit or more")
        _check_below(self, dropout=1)


@dataclasses.dataclass(frozen=True)
class TabularHparams:
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

    members: int = 8
    width: int = 128
    depth: int = 3
    dropout: float | None = None
    frequencies: int = 16
    frequency_scale: float | None = None
    embedding_size: int = 8
    squash: float = 3.0
    learning_rate: float = 0.005
    decay: bool = True
    weight_decay: float = 0.0003

    def __post_init__(self) -> None:
        _check(self, members=1, width=1, depth=1, frequencies=0, embedding_size=2)
        _check(self, squash=0, learning_rate=0, weight_decay=0)
        if self.dropout is not None and not 0 <= self.dropout < 1:
            raise ValueError(f"dropout={self.dropout}: must be 0 or more and below 1, or none")
        if self.frequency_scale is not None:
            _check(self, frequency_scale=0)


@dataclasses.dataclass(frozen=True)
class WideDeepHparams(DnnHparams):
    """As `DnnHparams`; `linear_learning_rate` is Adam's for the wide part; none: 0.01 for n-grams, else 0.001."""

    hidden_units: tuple[int, ...] = (128, 64)
    learning_rate: float = 0.001
    dropout: float = 0.2
    linear_learning_rate: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.linear_learning_rate is not None:
            _check(self, linear_learning_rate=0)


@dataclasses.dataclass(frozen=True)
class BoostedTreesHparams:
    """LightGBM's parameters under its own names, whose documentation describes them.

    Attributes:
      num_iterations: the most rounds of boosting, each of one tree, or of one for each of three classes or more.
      early_stopping_round: stop after so many rounds in which the loss on the evaluation split was no better; the
        rounds up to the best one are kept. 0: never stop early.
      bagging_fraction: the share of the rows that each tree sees.
      feature_fraction: the share of the columns that each tree sees; none: 0.8, or all where there are fewer than 5.
      list_limit: of a text or a bag of ids, the number of ids whose counts are columns.
    """

    num_iterations: int = 1000
    early_stopping_round: int = 50
    learning_rate: float = 0.1
    num_leaves: int = 31
    max_depth: int = -1
    min_data_in_leaf: int = 20
    bagging_fraction: float = 1.0
    feature_fraction: float | None = None
    lambda_l1: float = 0.0
    lambda_l2: float = 0.0
    max_bin: int = 255
    list_limit: int = 64

    def __post_init__(self) -> None:
        _check(self, num_iterations=1, early_stopping_round=0, num_leaves=2, max_depth=-1, min_data_in_leaf=0)
        _check(self, lambda_l1=0, lambda_l2=0, max_bin=2, list_limit=1)
        _check_below(self, num_leaves=131_073, max_bin=65_536)
        for name in ("learning_rate", "bagging_fraction", "feature_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name}={value}: must be above 0 and at most 1")


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
      variant: one of `trainer.models.VARIANTS`.
      stem_stride: the stride of the first convolution; none: 2, or 1 for images with a side below 64.
      learning_rate: its value at the end of the warm-up; it then decays to 0 over the training's steps.
      warmup: fraction of the training's steps over which the learning rate grows from `warmup_start`.
      warmup_start: the learning rate at step 0, if there is a warm-up (the authors': 0.1, up to 0.4).
      power: the exponent of the polynomial decay.
      momentum: the momentum of the optimizer.
      l2: weight of the squared kernels in the loss.
      batch_norm_momentum: the momentum of batch norm's moving averages; lower in short trainings.
      image_summary_steps: steps between summaries of some input images, which are at most 20; 0 writes none.
    """

    variant: str = "1.0-SqNxt-23"
    stem_stride: int | None = None
    learning_rate: float = 0.04
    warmup: float = 0.05
    warmup_start: float = 0.0
    power: float = 2.0
    momentum: float = 0.9
    l2: float = 1e-4
    batch_norm_momentum: float = 0.99
    image_summary_steps: int = 100

    def __post_init__(self) -> None:
        _check(self, learning_rate=0, warmup=0, warmup_start=0, power=0, momentum=0, l2=0, batch_norm_momentum=0)
        _check(self, image_summary_steps=0)
        _check_below(self, warmup=1, momentum=1, batch_norm_momentum=1)
        if self.variant not in VARIANTS:
            raise ValueError(f"variant={self.variant}: expected one of {', '.join(VARIANTS)}")
        if self.stem_stride is not None and self.stem_stride < 1:
            raise ValueError(f"stem_stride={self.stem_stride}: must be 1 or more, or none")


@dataclasses.dataclass(frozen=True)
class ConvnetHparams:
    """A few convolutions, each pooled by 2, and a dense layer over all positions, and how they are trained.

    Attributes:
      width: channels of the first convolution; each later one has twice as many as the one before, up to 8 * width.
      dropout: fraction of the last convolution's outputs that is dropped in training.
      label_smoothing: the share of a label that training spreads evenly over all classes.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps.
      l2: weight of the squared kernels in the loss.
      image_summary_steps: steps between summaries of some input images, which are at most 20; 0 writes none.
    """

    width: int = 16
    dropout: float = 0.7
    label_smoothing: float = 0.1
    learning_rate: float = 0.001
    l2: float = 1e-4
    image_summary_steps: int = 100

    def __post_init__(self) -> None:
        _check(self, width=1, dropout=0, label_smoothing=0, learning_rate=0, l2=0, image_summary_steps=0)
        _check_below(self, dropout=1, label_smoothing=1)


# What a network in a file takes for a pixel, and whose it is. Keras's `preprocess_input` has the modes torch and caffe.
PIXELS = {
    "-1..1": "Keras's MobileNet, Inception and Xception",
    "0..1": "TensorFlow Hub",
    "0..255": "Keras's EfficientNet, ConvNeXt and MobileNetV3, which scale by themselves",
    "caffe": "Keras's ResNet and VGG: blue, green, red, less ImageNet's means",
    "torch": "Keras's DenseNet: in ImageNet's standard deviations",
}


@dataclasses.dataclass(frozen=True)
class BackboneHparams:
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
    dropout: float = 0.2
    learning_rate: float = 0.001
    decay: bool = True

    def __post_init__(self) -> None:
        if self.path and storage.is_local(self.path):
            object.__setattr__(self, "path", os.path.abspath(self.path))
        _check(self, dropout=0, learning_rate=0)
        _check_below(self, dropout=1)
        if self.pixels not in (None, *PIXELS):
            known = "; ".join(f"{name}: {whose}" for name, whose in PIXELS.items())
            raise ValueError(f"pixels={self.pixels}: expected one of {known}")


@dataclasses.dataclass(frozen=True)
class FacePairsHparams:
    """A small convolutional tower over both images of a pair, and how it is trained.

    Attributes:
      width: channels of the first convolution; each later one has twice as many as the one before, up to 8 * width.
      embedding_size: the size of an image's embedding.
      dropout: fraction of the last convolution's outputs that is dropped in training.
      grayscale: convert images to grayscale first.
      contrast: weight of a contrastive loss, by which each image must find its partner among those of the batch.
      learning_rate: Adam's; it decays to 0 along a cosine, over the training's steps.
      l2: weight of the squared kernels in the loss.
      image_summary_steps: steps between summaries of some input pairs, which are at most 20; 0 writes none.
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
    """A model that ships.

    Attributes:
      summary: what it is, for --help.
      hparams: the dataclass of its hyper-parameters.
      module: the module that builds it by its function `build`, or `module:function`.
      reads: the examples that it can be trained on.
      rate: how its learning rate changes over the training's steps; see `trainer.models.optimizers.learning_rate`.
        `none`: it makes no steps, and `trainer.loop.boosting` trains it as a whole.
      scales_label: whether it learns a number as `LabelScale` of `trainer.spec.task_spec` says, and begins with the
        shares of classes.
    """

    summary: str
    hparams: type[Any]
    module: str
    reads: tuple[str, ...] = ("rows",)
    rate: Literal["constant", "cosine", "polynomial", "none"] = "cosine"
    scales_label: bool = False

    def build(self, task_spec: Any, hparams: Any, config: Any) -> Any:
        """Returns the Estimator for a `TaskSpec` or an `ImageTaskSpec`, in the config's model_dir.

        Raises:
          UsageError: the model does not read data of this kind.
        """
        self.check_reads(task_spec.examples)
        module, _, function = self.module.partition(":")
        return getattr(importlib.import_module(module), function or "build")(task_spec, hparams, config)

    def check_reads(self, examples: str) -> None:
        """Raises UsageError if the model does not read such examples."""
        if examples not in self.reads:
            name = next(name for name, model in BUILT_IN.items() if model is self)
            models = ", ".join(other for other, model in BUILT_IN.items() if examples in model.reads)
            split = "; images are compared in pairs where the schema says `split: {by: folder}`"
            told = split if "pairs" in (examples, *self.reads) else ""
            raise UsageError(f"model {name!r} reads {' or '.join(self.reads)}; for {examples} use: {models}{told}")


BUILT_IN: dict[str, BuiltIn] = {
    "linear": BuiltIn(
        "one weight for each number and id", LinearHparams, "trainer.models.canned:linear", scales_label=True
    ),
    "dnn": BuiltIn(
        "hidden layers over numbers, indicator columns and embeddings",
        DnnHparams,
        "trainer.models.canned:dnn",
        scales_label=True,
    ),
    "tabular": BuiltIn(
        "an ensemble of networks that share their weights, over embedded numbers and ids",
        TabularHparams,
        "trainer.models.tabular",
        scales_label=True,
    ),
    "wide_deep": BuiltIn(
        "a linear model of ids and crosses, trained together with a dnn",
        WideDeepHparams,
        "trainer.models.canned:wide_deep",
        scales_label=True,
    ),
    "softmax": BuiltIn(
        "one dense layer, written as a model_fn: classification only; takes small images too",
        SoftmaxHparams,
        "trainer.models.softmax",
        ("rows", "images"),
        "constant",
    ),
    "boosted_trees": BuiltIn(
        "gradient boosted trees, grown by LightGBM (an extra) and served as plain TensorFlow",
        BoostedTreesHparams,
        "trainer.models.boosted_trees",
        rate="none",
        scales_label=True,
    ),
    "squeezenext": BuiltIn(
        "a small convolutional network, for images",
        SqueezenextHparams,
        "trainer.models.squeezenext",
        ("images",),
        "polynomial",
    ),
    "convnet": BuiltIn(
        "a few convolutions and a dense layer, for some hundred images",
        ConvnetHparams,
        "trainer.models.convnet",
        ("images",),
    ),
    "backbone": BuiltIn(
        "a network from a SavedModel, for images, and a layer over it",
        BackboneHparams,
        "trainer.models.backbone",
        ("images",),
    ),
    "face_pairs": BuiltIn(
        "tells whether two images show the same identity; both pass through one convolutional network",
        FacePairsHparams,
        "trainer.models.face_pairs",
        ("pairs",),
    ),
}

# Hyper-parameters that name a file, which every process of a training reads.
PATHS = frozenset(f.name for m in BUILT_IN.values() for f in dataclasses.fields(m.hparams) if f.metadata.get("path"))

STAGE_CHANNELS = (32, 64, 128, 256)  # of each stage at width 1
STEM_CHANNELS = 64  # at every width
EMBEDDING_CHANNELS = 128  # at every width


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variant:
    """One SqueezeNext.

    Attributes:
      width: factor on the channels of the stages; the stem and the last convolution keep theirs.
      units: number of units in each of the four stages.
      stem_kernel: side of the first convolution's kernel.
      project_first: where a unit changes the shape, the residual branch starts from the projected shortcut (v5)
        instead of from the unit's input.
    """

    width: float = 1.0
    units: tuple[int, ...] = (6, 6, 8, 1)
    stem_kernel: int = 7
    project_first: bool = False

    @property
    def channels(self) -> tuple[int, ...]:
        """The output channels of each stage."""
        return tuple(int(channels * self.width) for channels in STAGE_CHANNELS)


_V5 = (2, 4, 14, 1)

VARIANTS: dict[str, Variant] = {
    "1.0-SqNxt-23": Variant(),
    "1.0-SqNxt-23v5": Variant(units=_V5, stem_kernel=5, project_first=True),
    "2.0-SqNxt-23": Variant(width=2.0),
    "2.0-SqNxt-23v5": Variant(width=2.0, units=_V5, stem_kernel=5, project_first=True),
}


MODELS = "\n".join(
    [
        "models and their hyper-parameters:",
        *(f"  {name}: {m.summary}\n      {describe_hparams(m.hparams)}" for name, m in BUILT_IN.items()),
        "  package.module:function: your own: a model_fn(features, labels, mode, params), or a function(task_spec,",
        "      hparams) that returns a compiled Keras model; the dataclass Hparams in its module declares its",
        "      hyper-parameters (docs/training.md)",
    ]
)

AS_HPARAMS = {"lr": "--hparams learning_rate"} | {  # what is meant by a flag of a hyper-parameter's name
    field.name: f"--hparams {field.name}" for model in BUILT_IN.values() for field in dataclasses.fields(model.hparams)
}


def is_grown(model: str | None) -> bool:
    """Whether a model is trained as a whole by `trainer.loop.boosting`, rather than in steps."""
    return model is not None and model in BUILT_IN and BUILT_IN[model].rate == "none"


def _check_hparams(model: str, settings: Sequence[str]) -> None:
    """Refuses hyper-parameters that a built-in model does not take, and names models of such data that do."""
    own = BUILT_IN[model]
    others: dict[str, list[str]] = {}
    for name, other in BUILT_IN.items():
        if set(own.reads) & set(other.reads):
            for field in dataclasses.fields(other.hparams):
                others.setdefault(field.name, []).append(name)
    parse_hparams(own.hparams, settings, model=model, others=others)


def _check_for_some(settings: Sequence[str]) -> None:
    """Refuses hyper-parameters that no built-in model takes."""
    names = {setting.partition("=")[0] for setting in split_settings(settings)}
    known = [name for name, model in BUILT_IN.items() if names <= {f.name for f in dataclasses.fields(model.hparams)}]
    refused = []
    for name in known or ["tabular"]:
        try:
            _check_hparams(name, settings)
            return
        except UsageError as error:
            refused.append(error)
    raise refused[0]


def check_model(options: TrainOptions) -> None:
    """Refuses an unknown model, hyper-parameter or augmentation before anything heavy is imported.

    Raises:
      UsageError: no such model, or hyper-parameters that a built-in model does not have, or no such augmentation.
    """
    augmentation(options.augment)
    if options.model is None:
        _check_for_some(options.hparams)  # which one is chosen is known with the data
        return
    if options.model in BUILT_IN:
        _check_hparams(options.model, options.hparams)
    elif ":" not in options.model:
        known = ", ".join(BUILT_IN)
        raise UsageError(
            f"--model {options.model}: unknown model; choose from {known}, or give package.module:function for your own"
        )
