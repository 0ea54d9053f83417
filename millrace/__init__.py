"""The `millrace` command, and the Python API for notebooks and scripts.

cli  the command: each sub-command calls the command of another package
api  datasets, preprocessing, training and prediction from Python

`import millrace` imports neither TensorFlow nor Beam: a name's module is imported when the name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace.api import load_model, preprocess, train
    from millrace.dataset import Dataset
    from millrace.model import Model
    from schemas.errors import MillraceError, SkewError, UsageError

__all__ = ["Dataset", "MillraceError", "Model", "SkewError", "UsageError", "load_model", "preprocess", "train"]

_MODULES = {
    "Dataset": "millrace.dataset",
    "Model": "millrace.model",
    "MillraceError": "schemas.errors",
    "SkewError": "schemas.errors",
    "UsageError": "schemas.errors",
    "load_model": "millrace.api",
    "preprocess": "millrace.api",
    "train": "millrace.api",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from millrace.cli import version

        return version()
    if name not in _MODULES:
        raise AttributeError(f"module 'millrace' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
