"""Which checkpoint a training goes on from: the newest one that is whole.

The file `checkpoint` names the newest, once its files are written. After a power cut, a full disk or a copy that was
broken off it may name one whose files are cut or gone, or be cut itself: Estimator would then fail, or begin again at
step 0 and write over what there is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import tensorflow as tf

from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError

_INDEX = re.compile(r"(model\.ckpt-(\d+))\.index")


def recover_checkpoint(model_dir: str, tell: Callable[[str], None]) -> str | None:
    """Makes the file `checkpoint` name the newest whole one; the files of others stay as they are.

    Each is read through, the newest first, until one is whole: its tensors are compared with the checksums beside them.

    Args:
      model_dir: where they lie.
      tell: is given a line for each that is passed over.

    Returns:
      The checkpoint, as `tf.train.latest_checkpoint` gives it; None where there never was one.

    Raises:
      MillraceError: there are checkpoints, and none is whole.
    """
    named = _named(model_dir)
    candidates = named or _lying_there(model_dir)
    if candidates and not named:
        tell(f"{layout.join(model_dir, 'checkpoint')}: missing or damaged; searching for checkpoints by name")
    for i in reversed(range(len(candidates))):
        problem = checkpoint_fault(candidates[i])
        if problem is None:
            if not named or i + 1 < len(candidates):
                names = [os.path.basename(path) for path in candidates[: i + 1]]
                tf.compat.v1.train.update_checkpoint_state(model_dir, names[-1], names)
                tell(f"resuming from {candidates[i]}, the latest valid checkpoint")
            return candidates[i]
        tell(f"{candidates[i]}: damaged ({problem}); skipped")
    if candidates:
        raise MillraceError(
            f"{model_dir}: none of its {len(candidates)} checkpoints is valid. Restore one from a backup, or "
            "start over with another --model_dir."
        )
    return None


def checkpoint_fault(checkpoint: str) -> str | None:
    """Reads a checkpoint through; says what is wrong with it, None where it is whole."""
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        missing = [name for name in ("index", "data-*") if not tf.io.gfile.glob(f"{checkpoint}.{name}")]
        return f"no file .{missing[0]}" if missing else str(getattr(error, "message", error)).splitlines()[0]
    return None


def _named(model_dir: str) -> list[str]:
    """The checkpoints that the file `checkpoint` names, oldest first; none where it is missing or damaged."""
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:  # an empty file
        return []
    if state is None:
        return []
    earlier = [path for path in state.all_model_checkpoint_paths if path != state.model_checkpoint_path]
    return [*earlier, state.model_checkpoint_path]


def _lying_there(model_dir: str) -> list[str]:
    found = [match for name in storage.listdir(model_dir) if (match := _INDEX.fullmatch(name))]
    return [layout.join(model_dir, match[1]) for match in sorted(found, key=lambda match: int(match[2]))]
