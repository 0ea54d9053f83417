"""Exports that are made in milliseconds: `value` is the input plus the export's number."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.exports.notes import Notes, write_notes
from schemas.spec.loader import parse_schema
from tests.support.csv_datasets import NUMBERS
from trainer.export.warmup import Recorded, write_warmup


@dataclasses.dataclass(frozen=True)
class Flaw:
    """What is wrong with an export: nothing by default.

    Attributes:
      writes: its graph writes a file.
      off: by how much its answers differ from those that it was published with.
      extra_output: it has one more.
      schema: its schema.
      big: floats that it holds in a constant.
      endless: an answer takes for ever.
      grows: an answer takes more and more memory, for ever.
    """

    writes: bool = False
    off: float = 0.0
    extra_output: bool = False
    schema: str = NUMBERS
    big: int = 0
    endless: bool = False
    grows: bool = False


def write_export(folder: Path, number: int, flaw: Flaw | None = None) -> Path:
    """Writes `folder/number`, whole at once, as a training does."""
    flaw = flaw or Flaw()
    made = folder / f"temp-{number}"
    shutil.rmtree(made, ignore_errors=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, [None], "x")
        outputs = _outputs(x, number + flaw.off, flaw)
        signature = tf.compat.v1.saved_model.signature_def_utils.predict_signature_def({"x": x}, outputs)
        builder = tf.compat.v1.saved_model.Builder(str(made))
        builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
        builder.save()
    write_warmup(str(made), _warmup(number))
    schema = parse_schema(flaw.schema.encode(), "schema.yaml")
    notes = Notes("run-1", schema.fingerprint, classes=(), global_step=number, checked_records=3)
    write_notes(str(made), notes, flaw.schema.encode())
    made.rename(folder / str(number))
    return folder / str(number)


def _outputs(x: Any, number: float, flaw: Flaw) -> dict[str, Any]:
    error = tf.where(tf.math.is_nan(x), "x: missing_value", tf.where(tf.math.is_inf(x), "x: out_of_range", ""))
    value = tf.where(tf.equal(error, ""), x + number, float("nan"))
    if flaw.writes:
        with tf.control_dependencies([tf.io.write_file("/dev/null", "")]):
            value = tf.identity(value)
    if flaw.big:
        value += tf.reduce_sum(tf.constant(np.zeros(flaw.big, np.float32)))
    if flaw.endless or flaw.grows:
        kept = tf.zeros([1 << 20 if flaw.grows else 1])
        step: Any = (lambda kept: tf.concat([kept, kept], 0)) if flaw.grows else tf.cos
        endless = tf.while_loop(
            lambda kept: kept[0] < 2, lambda kept: [step(kept)], [kept], shape_invariants=[tf.TensorShape([None])]
        )
        value += tf.reduce_sum(endless[0])
    outputs = {"value": value, "error": error}
    return {**outputs, "more": tf.identity(x)} if flaw.extra_output else outputs


def _warmup(number: int) -> Iterator[Recorded]:
    x = np.array([0, 1.5, -2], np.float32)
    yield Recorded("serving_default", {"x": x}, {"value": x + number, "error": np.array([b""] * 3, object)})
