"""The built-in models, by the name that `--model` takes. `trainer.models.custom` loads a user's own model.

This module does not import TensorFlow, so that `--help` can list the models quickly. Hyper-parameters are declared in
`trainer.models.hyperparameters`. The module of a model is imported when the model is built.
"""

from trainer.models import hyperparameters as hp
from trainer.models.built_in import BuiltIn

__all__ = [
    "BUILT_IN",
    "BuiltIn",
    "backbone",
    "boosted_trees",
    "canned",
    "custom",
    "hyperparameters",
    "is_grown",
    "optimizers",
    "selection",
    "warm_start",
]

BUILT_IN = {
    "linear": BuiltIn("one weight for each number and id", hp.LinearHparams, "canned:linear"),
    "dnn": BuiltIn("hidden layers over numbers, indicator columns and embeddings", hp.DnnHparams, "canned:dnn"),
    "tabular": BuiltIn(
        "an ensemble of networks that share their weights, over embedded numbers and ids", hp.TabularHparams, "tabular"
    ),
    "wide_deep": BuiltIn(
        "a linear model of ids and crosses, trained together with a dnn", hp.WideDeepHparams, "canned:wide_deep"
    ),
    "softmax": BuiltIn(
        "one dense layer, written as a model_fn: classification only; takes small images too",
        hp.SoftmaxHparams,
        "softmax",
        reads=("rows", "images"),
        rate="constant",
    ),
    "boosted_trees": BuiltIn(
        "gradient boosted trees, grown by LightGBM (an extra) and served as plain TensorFlow",
        hp.BoostedTreesHparams,
        "boosted_trees",
        rate="none",
    ),
    "squeezenext": BuiltIn(
        "a small convolutional network, for images", hp.SqueezenextHparams, "squeezenext", ("images",), "warmup"
    ),
    "convnet": BuiltIn(
        "a few convolutions and a dense layer, for some hundred images", hp.ConvnetHparams, "convnet", ("images",)
    ),
    "backbone": BuiltIn(
        "a network from a SavedModel, for images, and a layer over it",
        hp.BackboneHparams,
        "backbone:build",
        reads=("images",),
    ),
    "face_pairs": BuiltIn(
        "tells whether two images show the same identity; both pass through one convolutional network",
        hp.FacePairsHparams,
        "face_pairs",
        reads=("pairs",),
    ),
}


def is_grown(model: str | None) -> bool:
    """Returns whether a model is grown as a whole by `trainer.loop.boosting`, instead of being trained step by step."""
    return model in BUILT_IN and BUILT_IN[model].rate == "none"
