"""Resumes training from the latest valid checkpoint.

The file `checkpoint` names the latest one. After a power cut, a full disk or an interrupted copy, that checkpoint may
be truncated or missing, or the file `checkpoint` itself may be damaged. Estimator would then fail, or start again at
step 0 and overwrite the existing checkpoints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import tensorflow as tf

from schemas import storage
from schemas.dataset import layout
from schemas.errors import MillraceError

_INDEX = re.compile(r"(model\.ckpt-([0-9]+))\.index")


def recover_checkpoint(model_dir: str, report: Callable[[str], None]) -> str | None:
    """Makes the file `checkpoint` name the latest valid checkpoint; deletes nothing.

    Reads the checkpoints completely, the latest first, until one is valid: TensorFlow compares its tensors with their
    checksums.

    Args:
      model_dir: the model directory.
      report: called with a line for each skipped checkpoint.

    Returns:
      The checkpoint, as from `tf.train.latest_checkpoint`; None if there is none.

    Raises:
      MillraceError: there are checkpoints, but none is valid.
    """
    named = _named(model_dir)
    candidates = named or _found(model_dir)
    if candidates and not named:
        report(f"{layout.join(model_dir, 'checkpoint')}: missing or damaged; searching for checkpoints by name")
    for i in reversed(range(len(candidates))):
        problem = checkpoint_fault(candidates[i])
        if problem is None:
            if not named or i + 1 < len(candidates):
                names = [os.path.basename(path) for path in candidates[: i + 1]]
                tf.compat.v1.train.update_checkpoint_state(model_dir, names[-1], names)
                report(f"resuming from {candidates[i]}, the latest valid checkpoint")
            return candidates[i]
        report(f"{candidates[i]}: damaged ({problem}); skipped")
    if candidates:
        raise MillraceError(
            f"{model_dir}: none of its {len(candidates)} checkpoints is valid. Restore one from a backup, or "
            "start over with another --model_dir."
        )
    return None


def checkpoint_fault(checkpoint: str) -> str | None:
    """Reads a checkpoint completely; returns what is wrong with it, or None if it is valid."""
    try:
        reader = tf.train.load_checkpoint(checkpoint)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, LookupError, ValueError, RuntimeError) as error:
        missing = [name for name in ("index", "data-*") if not tf.io.gfile.glob(f"{checkpoint}.{name}")]
        return f"no file .{missing[0]}" if missing else str(getattr(error, "message", error)).splitlines()[0]
    return None


def _named(model_dir: str) -> list[str]:
    """The checkpoints that the file `checkpoint` names, oldest first; empty if it is missing or damaged."""
    try:
        state = tf.train.get_checkpoint_state(model_dir)
    except ValueError:  # an empty file
        return []
    if state is None:
        return []
    earlier = [path for path in state.all_model_checkpoint_paths if path != state.model_checkpoint_path]
    return [*earlier, state.model_checkpoint_path]


def _found(model_dir: str) -> list[str]:
    """The checkpoints whose index files exist, oldest first."""
    found = [match for name in storage.listdir(model_dir) if (match := _INDEX.fullmatch(name))]
    return [layout.join(model_dir, match[1]) for match in sorted(found, key=lambda match: int(match[2]))]
