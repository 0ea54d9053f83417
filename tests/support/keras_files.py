"""Small Keras models, and the configurations in `.keras` and `.h5` files, changed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def disturbed(model: Any) -> Any:
    """The model, with statistics and factors of batch norm as after a training."""
    rng = np.random.default_rng(1)
    for variable in model.variables:
        if len(variable.shape) == 1:  # of batch norm, or a bias
            variable.assign(rng.uniform(0.7, 1.3, variable.shape))
    return model


def small(package: Any, *, size: int | None = None) -> Any:
    """A convolution with batch norm and dropout, by `tf.keras` or Keras 3."""
    layers = package.layers
    x = images = layers.Input((size, size, 3))
    for layer in (layers.Conv2D(4, 3, name="conv"), layers.BatchNormalization(name="norm"), layers.Dropout(0.3)):
        x = layer(x)
    return disturbed(package.Model(images, x))


def edit(path: Path, change: Callable[[Any], Any], *, name: str = "config.json") -> None:
    """Changes the configuration in a `.keras` or `.h5` file, or another JSON file in a `.keras` file."""
    if path.suffix == ".h5":
        with h5py.File(path, "r+") as file:
            config = json.loads(file.attrs["model_config"])
            change(config)
            file.attrs["model_config"] = json.dumps(config)
        return
    with zipfile.ZipFile(path) as archive:
        contents = {entry: archive.read(entry) for entry in archive.namelist()}
    config = json.loads(contents[name])
    change(config)
    contents[name] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in contents.items():
            archive.writestr(entry, content)
