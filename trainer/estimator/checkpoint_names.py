"""Reads the names of checkpoints from the file `checkpoint` of a model directory.

TensorFlow's Saver later removes the checkpoints of these names, so a name that leads outside the directory is refused.
"""

from __future__ import annotations

import os
import re

import tensorflow as tf

from schemas.errors import MillraceError

_PREFIX = re.compile(r"\w[\w.-]*")  # no slash, and no characters of file patterns


def named_checkpoints(model_dir: str) -> list[str]:
    """Returns the paths of the checkpoints that the file `checkpoint` names, oldest first.

    The list is empty if there is no such file, or if it is damaged.

    Raises:
      MillraceError: the file names a path outside the model directory.
    """
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:  # an empty file
        return []
    if state is None:
        return []
    earlier = [path for path in state.all_model_checkpoint_paths if path != state.model_checkpoint_path]
    paths = [*earlier, state.model_checkpoint_path]
    for path in paths:
        folder, name = os.path.split(path)
        if folder.rstrip("/") not in (model_dir.rstrip("/"), os.path.abspath(model_dir)) or not _PREFIX.fullmatch(name):
            raise MillraceError(
                f"{os.path.join(model_dir, 'checkpoint')}: names {path[:200]!r}; expected the names of checkpoints in "
                "the same folder, such as model.ckpt-100, since training removes the older ones. Remove the file if "
                "you trust the folder: its checkpoints are then looked for by their names."
            )
    return paths
