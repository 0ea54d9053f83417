"""What a killed training leaves half written, and never under a name that counts."""

from __future__ import annotations

import os
import re

import tensorflow as tf

TEMPORARY = "temp-"  # how the folder of an export begins that is being written, or removed
_FILES = re.compile(
    r"model\.ckpt-\d+_temp"  # a folder: shards of a checkpoint that is being written
    r"|model\.ckpt-.*\.tempstate\d+"
    r"|(checkpoint|graph\.pbtxt)\.tmp[0-9a-f]+"
    r"|\..+\.[0-9a-f]{32}\.tmp"  # of schemas.storage.write_bytes
)


def remove_temporary_files(model_dir: str) -> None:
    """Removes parts of checkpoints and of small files. Only for the process that writes them, before it does."""
    _remove(model_dir, _FILES)


def remove_temporary_exports(model_dir: str) -> None:
    """Removes parts of exports. Only for the process that exports, before it does."""
    exports = os.path.join(model_dir, "export")
    for name in tf.io.gfile.listdir(exports) if tf.io.gfile.isdir(exports) else []:
        _remove(os.path.join(exports, name.rstrip("/")), re.compile(rf"{TEMPORARY}.*|{_FILES.pattern}"))


def _remove(folder: str, names: re.Pattern[str]) -> None:
    for name in tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []:
        if not names.fullmatch(name.rstrip("/")):
            continue
        path = os.path.join(folder, name.rstrip("/"))
        if tf.io.gfile.isdir(path):
            tf.io.gfile.rmtree(path)
        else:
            tf.io.gfile.remove(path)
