"""What an evaluation writes for TensorBoard, and the classes that a model of images takes for most probable."""

from __future__ import annotations

import heapq
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def top(k: int, logits: tf.Tensor) -> tf.Tensor:
    """The ids of the `k` highest logits, highest first: int64 `[batch, min(k, classes)]`."""
    return tf.cast(tf.math.top_k(logits, min(k, logits.shape[-1])).indices, tf.int64)


def thumbnails(images: tf.Tensor) -> tf.Tensor:
    """Images for a summary: uint8 `[batch, height, width, 3]`, made smaller where a side is longer than `THUMBNAIL`."""
    height, width = images.shape[1:3]
    longer = max(height, width)
    if longer <= THUMBNAIL:
        return images
    size = [max(1, side * THUMBNAIL // longer) for side in (height, width)]
    return tf.cast(tf.round(tf.image.resize(images, size, "area")), tf.uint8)


def png(pixels: np.ndarray) -> bytes:
    """A PNG file of uint8 `[height, width, 3]`."""
    import PIL.Image

    out = io.BytesIO()
    PIL.Image.fromarray(pixels.astype(np.uint8)).save(out, "png")
    return out.getvalue()


Summary = tf.compat.v1.Summary
HARDEST = 8
THUMBNAIL = 128  # pixels of the longer side
_SPLIT = "millrace/split"


def name_split(split: str) -> None:
    """Notes which split an `input_fn` reads, in the graph that Estimator calls it in; nothing where there is none."""
    if not tf.executing_eagerly():
        tf.compat.v1.add_to_collection(_SPLIT, split)


def summary_folder(model_dir: str) -> str:
    """Where Estimator writes the evaluation that the default graph is for: `eval`, or `eval_<split>` for another."""
    split = next(iter(tf.compat.v1.get_collection(_SPLIT)), "eval")
    return f"{model_dir.rstrip('/')}/{'eval' if split == 'eval' else f'eval_{split}'}"


def summary_writer(folder: str) -> Any:
    """The writer of a folder's events, without a graph: a new one would write the default graph, and write it twice."""
    with tf.Graph().as_default():
        return tf.compat.v1.summary.FileWriterCache.get(folder)


class HardestImagesHook(tf.compat.v1.train.SessionRunHook):
    """Writes the images with the highest losses of an evaluation, and what they were taken for.

    Args:
      model_dir: the Estimator's.
      images: uint8 `[batch, height, width, 3]`.
      labels: int64 `[batch]`.
      class_ids: the predicted ones, int64 `[batch]`.
      losses: float32 `[batch]`.
      class_names: by id.
    """

    def __init__(
        self,
        model_dir: str,
        *,
        images: tf.Tensor,
        labels: tf.Tensor,
        class_ids: tf.Tensor,
        losses: tf.Tensor,
        class_names: Sequence[str],
    ) -> None:
        # Only the batch's hardest images leave the graph.
        worst = tf.math.top_k(losses, tf.minimum(HARDEST, tf.size(losses)))
        self._fetched = {"labels": labels, "class_ids": class_ids, "losses": worst.values, "places": worst.indices}
        self._fetched["images"] = thumbnails(tf.gather(images, worst.indices))
        self._folder = summary_folder(model_dir)
        self._names = tuple(class_names)

    def begin(self) -> None:
        """Forgets an evaluation before this one."""
        self._step = tf.compat.v1.train.get_or_create_global_step()
        self._count = 0
        self._hardest: list[tuple[float, int, int, int, np.ndarray]] = []

    def before_run(self, run_context: Any) -> Any:
        return tf.compat.v1.train.SessionRunArgs(self._fetched)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        batch = run_values.results
        labels, ids = batch["labels"], batch["class_ids"]
        for loss, place, image in zip(batch["losses"], batch["places"], batch["images"], strict=True):
            # the place makes a tuple unlike every other, so that images are never compared
            entry = (float(loss), self._count + int(place), int(labels[place]), int(ids[place]), image)
            self._hardest.append(entry)
        self._hardest = heapq.nlargest(HARDEST, self._hardest)
        self._count += len(labels)

    def end(self, session: Any) -> None:
        values, lines = [], ["| image | true | predicted | loss |", "| --- | --- | --- | --- |"]
        for rank, (loss, _, label, predicted, image) in enumerate(self._hardest):
            lines.append(f"| {rank} | {self._names[label]} | {self._names[predicted]} | {loss:.3g} |")
            values.append(image_value(f"hardest/{rank}", png(image), image.shape, "one of the highest losses"))
        values.append(text_value("hardest/classes", "\n".join(lines)))
        writer = summary_writer(self._folder)
        writer.add_summary(Summary(value=values), int(session.run(self._step)))
        writer.flush()


def image_value(tag: str, encoded: bytes, shape: Sequence[int], description: str) -> Any:
    """An image summary of a PNG of `[height, width, channels]`. TensorFlow keeps a tag's first description alone."""
    image = Summary.Image(height=shape[0], width=shape[1], colorspace=shape[2], encoded_image_string=encoded)
    return Summary.Value(tag=tag, image=image, metadata={"summary_description": description})


def text_value(tag: str, text: str) -> Any:
    """A text summary; TensorBoard reads it as Markdown."""
    metadata = {"plugin_data": {"plugin_name": "text"}}
    return Summary.Value(tag=tag, tensor=tf.make_tensor_proto([text]), metadata=metadata)
