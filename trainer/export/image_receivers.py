"""The image inputs of an exported model: files pass through the dataset's ingest graph, then as in evaluation.

The ingest graph's output is encoded and decoded again, like a stored image, since training saw the pixels of the
stored JPEG.

Isolates the images of a request from each other, so that an invalid image does not fail the others.

The only way in TensorFlow to continue after a failing op is a `tf.data` pipeline that drops the element. It prepares
its function again for every request, which takes 0.2 s for an ingest graph, but only milliseconds for a small graph.
So a small graph looks at the images first. JPEGs and PNGs of ordinary sizes that decode cannot fail: the ingest graph
is called directly. What has the first bytes of no format is not looked at. Only the rest goes through the slow
pipeline, if there is any: unusual sizes, and damaged files, of which ingest graphs accept some.

Checks that raw image files, ingested again, equal the stored records byte for byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from schemas.dataset import OpenDataset, layout
from schemas.images.header import JPEG, JPEG_SCANS, PNG
from schemas.spec.images import CLASS, ENCODED, PAIR, TEXT, Exact, ImageOptions, ImageSchema
from trainer.export.row_errors import ROW_ERROR
from trainer.images.augment import AugmentOptions
from trainer.images.inputs import record_spec, stored_image

PARALLEL_IMAGES = 8  # decoded at once in a request: a large image takes some 100 MB
_MAX_ASPECT_RATIO = 4  # of an ordinary image

ImageFn = Callable[[tf.Tensor], tf.Tensor]


def map_isolated(
    files: tf.Tensor, image_fn: ImageFn, spec: tf.TensorSpec, images: ImageOptions
) -> tuple[tf.Tensor, tf.Tensor]:
    """Applies `image_fn` to each file, independently of the others.

    Args:
      files: string `[batch]`.
      image_fn: string `[]` -> `spec`; raises for a file that it does not accept.
      spec: has a fixed shape.
      images: the limits of accepted images.

    Returns:
      The accepted files' results, `[accepted, ...]` in their order; and bool `[batch]`, true for accepted files.
    """
    places = _rows(starts_like_an_image(files) & (tf.strings.length(files) <= images.max_file_bytes))
    candidates = tf.gather(files, places)
    decoded, ordinary = map_ignoring_errors(
        candidates, lambda data: is_ordinary(data, images), tf.TensorSpec([], tf.bool)
    )
    sure = tf.scatter_nd(decoded[:, tf.newaxis], ordinary, tf.shape(candidates, tf.int64))
    direct, slow_places = tf.boolean_mask(places, sure), tf.boolean_mask(places, ~sure)
    made = tf.map_fn(image_fn, tf.gather(files, direct), fn_output_signature=spec, parallel_iterations=PARALLEL_IMAGES)
    slow_indices, slowly_made = map_ignoring_errors(tf.gather(files, slow_places), image_fn, spec)
    places = tf.concat([direct, tf.gather(slow_places, slow_indices)], 0)
    results = tf.gather(tf.concat([made, slowly_made], 0), tf.argsort(places))
    accepted = tf.scatter_nd(places[:, tf.newaxis], tf.ones_like(places, tf.bool), tf.shape(files, tf.int64))
    return tf.ensure_shape(results, [None, *spec.shape]), accepted


def map_ignoring_errors(files: tf.Tensor, image_fn: ImageFn, spec: tf.TensorSpec) -> tuple[tf.Tensor, tf.Tensor]:
    """Applies `image_fn` by the pipeline that drops files which it raises for. Without files, it is not made.

    Returns:
      The places of the others in `files`, int64 `[accepted]`, rising; and their results, `[accepted, ...]`.
    """
    places, results = tf.cond(tf.size(files) > 0, lambda: _mapped(files, image_fn, spec), lambda: _nothing(spec))
    return places, tf.ensure_shape(results, [None, *spec.shape])


def _mapped(files: tf.Tensor, image_fn: ImageFn, spec: tf.TensorSpec) -> tuple[tf.Tensor, tf.Tensor]:
    count = tf.shape(files, tf.int64)[0]
    numbered = tf.data.Dataset.from_tensor_slices((tf.range(count), files))
    made = numbered.map(lambda i, data: (i, image_fn(data)), num_parallel_calls=PARALLEL_IMAGES, deterministic=True)
    options = tf.data.Options()  # tf.data would optimize its graph in each request, which is slow
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    all_in_one = made.ignore_errors().batch(tf.maximum(count, 1)).with_options(options)  # one batch, or none
    places, results = all_in_one.reduce(_nothing(spec), lambda _, batch: batch)
    return places, results


def _nothing(spec: tf.TensorSpec) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.zeros([0], tf.int64), tf.zeros([0, *spec.shape], spec.dtype)


def _rows(chosen: tf.Tensor) -> tf.Tensor:
    """Where bool `[batch]` is true, int64 `[chosen]`."""
    return tf.where(chosen)[:, 0]


def starts_like_an_image(files: tf.Tensor) -> tf.Tensor:
    """Returns which files, string `[batch]`, begin with the first bytes of a format that is read: bool `[batch]`."""
    return tf.reduce_any([tf.equal(tf.strings.substr(files, 0, len(m)), m) for m in (JPEG, PNG)], axis=0)


def is_ordinary(data: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Returns true for a JPEG or PNG, string `[]`, that every ingest graph accepts; false where it must decide.

    It decodes a JPEG at an eighth of its size, which still reads all of its data.

    Raises:
      InvalidArgumentError: of the graph, for a JPEG or PNG of an ordinary size that does not decode.
    """
    is_jpeg, is_png = (tf.equal(tf.strings.substr(data, 0, len(magic)), magic) for magic in (JPEG, PNG))

    def png_sides() -> tf.Tensor:
        return tf.io.decode_raw(tf.strings.substr(data, 16, 8), tf.int32, little_endian=False)

    def sides() -> tf.Tensor:
        return tf.cond(is_jpeg, lambda: tf.io.extract_jpeg_shape(data)[:2], png_sides)

    def decodes() -> tf.Tensor:
        decoded = tf.io.decode_jpeg(data, channels=3, ratio=8)  # of a PNG, too
        return tf.size(decoded) > 0  # depends on the pixels, so that decoding is not optimized away

    def few_scans() -> tf.Tensor:
        scans = tf.raw_ops.StringSplitV2(input=[data], sep=b"\xff\xda", maxsplit=JPEG_SCANS + 1).values
        return is_png | (tf.size(scans) <= JPEG_SCANS)

    def ordinary() -> tf.Tensor:
        return tf.cond(few_scans() & _is_ordinary_size(sides(), images), decodes, lambda: tf.constant(False))

    return tf.cond(is_jpeg | is_png, ordinary, lambda: tf.constant(False))


def _is_ordinary_size(sides: tf.Tensor, images: ImageOptions) -> tf.Tensor:
    """Whether sides, int32 `[2]`, are within all limits on pixels and proportions, before and after resizing."""
    to = max(images.resize.exact) if isinstance(images.resize, Exact) else images.resize.shorter
    sides = tf.cast(sides, tf.int64)
    short, long = tf.reduce_min(sides), tf.reduce_max(sides)
    resized = _MAX_ASPECT_RATIO * to * tf.maximum(long, _MAX_ASPECT_RATIO * to)
    small = (long <= images.max_pixels) & (short * long <= images.max_pixels) & (resized <= images.max_pixels)
    return (short > 0) & (long <= _MAX_ASPECT_RATIO * short) & small


def load_ingest(dataset: OpenDataset) -> Any:
    """Loads the dataset's ingest graph into the current graph, or eagerly.

    Its `record` takes the bytes of one file, its `batch` those of several. Both return what is stored:
    `image/encoded` and `image/format`, strings, `image/height` and `image/width`, int64. A file that is
    not an image, or exceeds the schema's limits, is an InvalidArgumentError.

    It has no variables, so nothing needs to be initialized.
    """
    return tf.saved_model.load(layout.join(dataset.graphs_dir, layout.INGEST_FN))


def at_least_one(images: Mapping[str, tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Pads an empty batch to one black image (or pair); also returns the original batch size, an int32 scalar.

    With oneDNN, TensorFlow's convolutions (as of 2.21) return a wrong shape for an empty batch, so that later layers
    fail.
    """
    count = tf.shape(next(iter(images.values())))[0]
    more = [[0, tf.maximum(1 - count, 0)], [0, 0], [0, 0], [0, 0]]
    return {name: tf.ensure_shape(tf.pad(x, more), [None, *x.shape[1:]]) for name, x in images.items()}, count


def served_images(dataset: OpenDataset, files: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """Bytes of files -> the model's input.

    Args:
      dataset: has the ingest graph and the image size.
      files: string `[batch]` for each of the schema's `image_names`.

    Returns:
      uint8 `[good, height, width, 3]` by the same names, and string `[batch]` as `ROW_ERROR`: '' if every image of the
      row was accepted. The images are those of these rows alone: no model computes what is not answered.
    """
    schema = dataset.image_schema
    assert schema is not None  # noqa: S101 - the caller has checked
    images = schema.images
    size = images.input_size
    options = AugmentOptions(size=size)
    ingest = load_ingest(dataset)

    def preprocess(data: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(stored_image(ingest.record(data), images, options), pixels.shape)

    pixels = tf.TensorSpec([*size, 3], tf.uint8)
    errors = tf.fill(tf.shape(next(iter(files.values()))), "")
    with tf.device("/cpu:0"):  # the decoders run on the CPU; moving single images to another device would be slow
        made = {name: map_isolated(data, preprocess, pixels, images) for name, data in files.items()}
        for name, (_, accepted) in reversed(made.items()):
            errors = tf.where(accepted, errors, _reason(name, files[name], images.max_file_bytes))
        good = tf.equal(errors, "")
        features = {name: tf.boolean_mask(x, tf.boolean_mask(good, accepted)) for name, (x, accepted) in made.items()}
    return {**features, ROW_ERROR: errors}


def _reason(name: str, files: tf.Tensor, max_bytes: int) -> tf.Tensor:
    """Why each file was not accepted, judging by its size and its first bytes: string `[batch]`."""
    reason = tf.where(starts_like_an_image(files), "undecodable_image", "not_an_image")
    reason = tf.where(tf.equal(files, ""), "empty_file", reason)
    reason = tf.where(tf.strings.length(files) <= max_bytes, reason, "file_too_large")
    return tf.strings.join([f"{name}: ", reason])


IMAGE, LABEL = "image", "label"  # keys of the file and the class name in a raw parity record


def stored_records(dataset: OpenDataset, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Parses all keys of serialized stored records, string `[batch]`: tensors `[batch]` by key."""
    return dict(tf.io.parse_example(serialized, record_spec(_schema(dataset).images, everything=True)))


def ingested_records(dataset: OpenDataset, serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """Ingests serialized raw records, string `[batch]`, again, in the form of `stored_records`.

    A raw record has the bytes of a file and the class name; the id of an unknown class is -1.
    """
    raw = tf.io.parse_example(serialized, dict.fromkeys((IMAGE, LABEL), tf.io.FixedLenFeature([], tf.string)))
    equal = tf.equal(raw[LABEL][:, tf.newaxis], tf.constant(list(dataset.manifest.classes)))
    ids = tf.where(tf.reduce_any(equal, 1), tf.argmax(equal, 1), -1)
    return {**load_ingest(dataset).batch(raw[IMAGE]), CLASS: ids, TEXT: raw[LABEL]}


def paired(raw: Sequence[bytes]) -> list[bytes]:
    """Yields raw records of images as requests for pairs: each image with the next one."""
    files = [tf.train.Example.FromString(record).features.feature[IMAGE] for record in raw]
    pairs = (dict(zip(PAIR, (files[i - 1], file), strict=True)) for i, file in enumerate(files))
    return [tf.train.Example(features=tf.train.Features(feature=pair)).SerializeToString() for pair in pairs]


def without_bytes(records: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces each encoded image of the records by its length and digest, for comparisons and messages."""
    return {**records, ENCODED: _digests(records[ENCODED])}


def _digests(images: np.ndarray) -> np.ndarray:
    return np.array([f"{len(x):,} bytes, SHA-256 {hashlib.sha256(x).hexdigest()}" for x in images], object)


def _schema(dataset: OpenDataset) -> ImageSchema:
    assert dataset.image_schema is not None  # noqa: S101 - callers pass image datasets only
    return dataset.image_schema
