"""Reads the names of checkpoints from the file `checkpoint` of a model directory.

TensorFlow's Saver later removes the files of all these names, so a name that leads elsewhere is refused.
"""

from __future__ import annotations

import os
import re

import tensorflow as tf

from schemas.errors import MillraceError

_PREFIX = re.compile(r"\w[\w.-]*")  # without a slash, and without what is a pattern for the Saver


def named_checkpoints(model_dir: str) -> list[str]:
    """Returns the checkpoints that `checkpoint` names, oldest first; empty if there is no such file, or it is damaged.

    Raises:
      MillraceError: it names a file that does not lie in the model directory.
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
