"""The models that ship, and what help says of them. Nothing here imports TensorFlow.

`trainer.models.custom` loads the user's own.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any, Literal

from schemas.errors import UsageError
from trainer.models.hyperparameters import (
    BackboneHparams,
    BoostedTreesHparams,
    ConvnetHparams,
    DnnHparams,
    FacePairsHparams,
    LinearHparams,
    SoftmaxHparams,
    SqueezenextHparams,
    TabularHparams,
    WideDeepHparams,
)
from trainer.spec.hparams import augmentation, describe_hparams, parse_hparams, split_settings
from trainer.spec.options import TrainOptions

__all__ = [
    "AS_HPARAMS",
    "BUILT_IN",
    "MODELS",
    "PATHS",
    "BuiltIn",
    "backbone",
    "boosted_trees",
    "canned",
    "check_model",
    "custom",
    "hyperparameters",
    "is_grown",
    "optimizers",
    "warm_start",
]


@dataclasses.dataclass(frozen=True)
class BuiltIn:
    """A model that ships.

    Attributes:
      summary: what it is, for --help.
      hparams: the dataclass of its hyper-parameters.
      place: the module of its `model_fn`, or `module:function`; a function `build` reads a file before there is a
        graph, and returns the Estimator itself.
      reads: the examples that it can be trained on.
      rate: how its learning rate changes over the training's steps; see `trainer.models.optimizers.learning_rate`.
        `none`: it makes no steps, and `trainer.loop.boosting` trains it as a whole.
      scales_label: whether it learns a number as `LabelScale` of `trainer.spec.task_spec` says, and begins with the
        shares of classes.
    """

    summary: str
    hparams: type[Any]
    place: str
    reads: tuple[str, ...] = ("rows",)
    rate: Literal["constant", "cosine", "warmup", "none"] = "cosine"
    scales_label: bool = False

    def build(self, task_spec: Any, hparams: Any, config: Any) -> Any:
        """Returns the Estimator for a `TaskSpec` or an `ImageTaskSpec`, in the config's model_dir.

        Raises:
          UsageError: the model does not read data of this kind.
        """
        from trainer.estimator import tf_estimator

        self.check_reads(task_spec.examples)
        module, _, function = self.place.partition(":")
        made_by = getattr(importlib.import_module(module), function or "model_fn")
        if function == "build":
            return made_by(task_spec, hparams, config)
        params = {**dataclasses.asdict(hparams), "hparams": hparams, "task_spec": task_spec}
        return tf_estimator.Estimator(made_by, config=config, params=params)

    def check_reads(self, examples: str) -> None:
        """Raises UsageError if the model does not read such examples."""
        if examples not in self.reads:
            name = next(name for name, model in BUILT_IN.items() if model is self)
            models = ", ".join(other for other, model in BUILT_IN.items() if examples in model.reads)
            split = "; images are compared in pairs where the schema says `split: {by: folder}`"
            hint = split if "pairs" in (examples, *self.reads) else ""
            raise UsageError(f"model {name!r} reads {' or '.join(self.reads)}; for {examples} use: {models}{hint}")


def _of_rows(summary: str, hparams: type[Any], name: str, **more: Any) -> BuiltIn:
    return BuiltIn(summary, hparams, f"trainer.models.{name}", scales_label=True, **more)


def _of_images(summary: str, hparams: type[Any], name: str, reads: str = "images", **more: Any) -> BuiltIn:
    return BuiltIn(summary, hparams, f"trainer.models.{name}", (reads,), **more)


_TREES = "gradient boosted trees, grown by LightGBM (an extra) and served as plain TensorFlow"
_PAIRS = "tells whether two images show the same identity; both pass through one convolutional network"
_SOFTMAX = "one dense layer, written as a model_fn: classification only; takes small images too"

BUILT_IN: dict[str, BuiltIn] = {
    "linear": _of_rows("one weight for each number and id", LinearHparams, "canned:linear"),
    "dnn": _of_rows("hidden layers over numbers, indicator columns and embeddings", DnnHparams, "canned:dnn"),
    "tabular": _of_rows(
        "an ensemble of networks that share their weights, over embedded numbers and ids", TabularHparams, "tabular"
    ),
    "wide_deep": _of_rows(
        "a linear model of ids and crosses, trained together with a dnn", WideDeepHparams, "canned:wide_deep"
    ),
    "softmax": BuiltIn(_SOFTMAX, SoftmaxHparams, "trainer.models.softmax", ("rows", "images"), "constant"),
    "boosted_trees": _of_rows(_TREES, BoostedTreesHparams, "boosted_trees", rate="none"),
    "squeezenext": _of_images(
        "a small convolutional network, for images", SqueezenextHparams, "squeezenext", rate="warmup"
    ),
    "convnet": _of_images("a few convolutions and a dense layer, for some hundred images", ConvnetHparams, "convnet"),
    "backbone": _of_images(
        "a network from a SavedModel, for images, and a layer over it", BackboneHparams, "backbone:build"
    ),
    "face_pairs": _of_images(_PAIRS, FacePairsHparams, "face_pairs", reads="pairs"),
}

# Hyper-parameters that name a file, which every process of a training reads.
PATHS = frozenset(f.name for m in BUILT_IN.values() for f in dataclasses.fields(m.hparams) if f.metadata.get("path"))


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


def check_model(options: TrainOptions) -> None:
    """Refuses an unknown model, hyper-parameter or augmentation before anything heavy is imported.

    Without --model, which is chosen by the data, some built-in model must take the hyper-parameters.

    Raises:
      UsageError: no such model, or hyper-parameters that a built-in model does not have, or no such augmentation.
    """
    augmentation(options.augment)
    if options.model is not None and ":" in options.model:
        return
    if options.model not in (None, *BUILT_IN):
        choices = ", ".join(BUILT_IN)
        raise UsageError(
            f"--model {options.model}: unknown model; choose from {choices}, or give package.module:function "
            "for your own"
        )
    names = {setting.partition("=")[0] for setting in split_settings(options.hparams)}
    taking = [name for name, model in BUILT_IN.items() if names <= {f.name for f in dataclasses.fields(model.hparams)}]
    refused = []
    for model in [options.model] if options.model else taking or ["tabular"]:
        try:
            parse_hparams(BUILT_IN[model].hparams, options.hparams, model=model)
        except UsageError as error:
            refused.append(error)
        else:
            return
    raise refused[0]
