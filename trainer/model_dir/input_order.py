"""Records the order in which a training reads its input (`input.json`), so that a resumed training continues it.

A step reads one batch, and with --seed and --deterministic the order of every epoch is fixed. The step of a checkpoint
therefore tells how many records were read since this order began. The order began at step 0, or at the step where the
training was resumed with other settings.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ValidationError

from schemas import storage
from schemas.dataset import OpenDataset, layout
from schemas.spec.forms import Strict
from trainer.data.input_fn import is_held
from trainer.data.input_options import InputOptions, Position

INPUT_JSON = "input.json"
_UNKNOWN = "a place in an epoch is known only with --seed and --deterministic, and not with parameter servers"
_ORDER = ("seed", "shuffle_buffer", "cache_bytes", "cycle_length")  # fields of InputOptions that the order depends on


class InputOrder(Strict):
    """A reading order, and the step at which it began.

    Attributes:
      step: the step at which the order began.
      epoch: the epoch with which the order began.
      settings: everything that the order depends on: the dataset's run, the number of records in a step, and options of
        the input.
    """

    format_version: Literal[1] = 1
    step: int
    epoch: int
    settings: dict[str, Any]


def resume_input(
    model_dir: str, dataset: OpenDataset, options: InputOptions, *, step: int, records: int, exact: bool
) -> tuple[Position, str]:
    """Finds where the input of a training begins, and records the order that it will follow.

    Args:
      model_dir: the model directory.
      dataset: the dataset.
      options: how the train split is read.
      step: the step of the checkpoint from which the training resumes; 0 if it begins.
      records: the number of records that one step reads, over all replicas.
      exact: whether each step reads the next batch of a single fixed order: with a seed, deterministically, in one
        process.

    Returns:
      A place and a message. The place is the first record that the training has not read by that step, or the beginning
      of an epoch if that cannot be known. The message describes the place; it is empty for a training that begins.
    """
    path = layout.join(model_dir, INPUT_JSON)
    rows = dataset.rows("train")
    settings = {"data_run": dataset.run, "batch_size": records, **{name: getattr(options, name) for name in _ORDER}}
    if dataset.image_schema is not None:  # the limit depends on the available memory
        in_memory = is_held(dataset, "train", options)
        windows = dataset.image_schema.pairs and not in_memory  # the size of a window depends on the limit
        settings |= {"cache_bytes": options.cache_bytes if windows else 0, "in_memory": in_memory}
    stored_order = _read(path) if step else None
    followed = InputOrder(step=0, epoch=0, settings=settings) if stored_order is None else stored_order
    # Every step since the order began has read one batch.
    read_before = (step - followed.step) * int(followed.settings["batch_size"])
    place = Position(followed.epoch).after(max(0, read_before), rows=rows)
    reason = _why_not_exact(stored_order, settings, step) if exact else _UNKNOWN
    if step and not reason:
        return place, f"input: goes on in epoch {place.epoch + 1:,} after {place.record:,} of {rows:,} records"
    start = place.next_epoch()
    if exact:
        order = InputOrder(step=step, epoch=start.epoch, settings=settings)
        storage.write_bytes(path, order.model_dump_json(indent=1).encode() + b"\n")
    elif storage.exists(path):
        storage.delete(path)
    return start, f"input: begins epoch {start.epoch + 1:,}: {reason}" if step else ""


def _read(path: str) -> InputOrder | None:
    """Returns the recorded order; None if there is none, or the file is damaged."""
    try:
        return InputOrder.model_validate_json(storage.read_bytes(path)) if storage.exists(path) else None
    except ValidationError:
        return None


def _why_not_exact(noted: InputOrder | None, settings: dict[str, Any], step: int) -> str:
    """Returns why it is unknown which records of an epoch were read; '' if it is known."""
    if noted is None:
        return f"the checkpoint's order is unknown ({INPUT_JSON} is missing or damaged)"
    if step < noted.step:
        return f"the checkpoint is older than the order of {INPUT_JSON}, which began at step {noted.step:,}"
    before = noted.settings
    return "; ".join(f"{k} was {before.get(k)}, and is {v}" for k, v in settings.items() if before.get(k) != v)
