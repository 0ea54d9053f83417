"""Removes temporary files of killed trainings. Incomplete files always have temporary names."""

from __future__ import annotations

import os
import re

import tensorflow as tf

TEMPORARY = "temp-"  # prefix of an export's folder while it is written or removed
_FILES = re.compile(
    r"model\.ckpt-[0-9]+_temp"  # a folder with the shards of an unfinished checkpoint
    r"|model\.ckpt-.*\.tempstate[0-9]+"
    r"|(checkpoint|graph\.pbtxt)\.tmp[0-9a-f]+"
    r"|\..+\.[0-9a-f]{32}\.tmp"  # written by schemas.storage.write_bytes
)


def remove_temporary_files(model_dir: str) -> None:
    """Removes incomplete checkpoints and small files. Only the process that writes them may call this, before that."""
    _remove(model_dir, _FILES)


def remove_temporary_exports(model_dir: str) -> None:
    """Removes incomplete exports. Only the process that exports may call this, before that."""
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
