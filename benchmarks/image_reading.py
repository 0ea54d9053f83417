"""How many images a second training reads from a data set, beside decoding the original files anew in every epoch.

    python -m benchmarks.image_reading --images 'photos/*/*' --rounds 5

Each way gives shuffled batches of uint8 `[64, 224, 224, 3]`, cropped at random and mirrored:

- original: the files, decoded whole, resized to a shorter side of 256 with antialias, cropped. The same pixels as ours.
- original, rough: the same without antialias, as most tutorials do it, which is quicker and worse.
- jpeg, raw: what `trainer.inputs` reads from a data set that stores JPEGs (quality 95), or raw pixels.

All are run in turn, several rounds; a round is one pass over the files. Wall time depends on what else the machine
does; the CPU that an image costs hardly does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from beam_jobs.job import load_libraries, run_job
from beam_jobs.options import JobOptions
from schemas import storage
from schemas.dataset import open_dataset
from schemas.errors import MillraceError

SHORTER, CROP, BATCH = 256, 224, 64
SCHEMA = (
    f"name: rate\nformat: image_folder\nimages: {{resize: {{shorter: {SHORTER}}}, crop: [{CROP}, {CROP}], store: %s}}\n"
)
SCHEMA += "split: {by: name, train: 1.0, eval: 0, test: 0}\n"
ORIGINAL = "original"


def from_originals(paths: list[str], *, antialias: bool) -> Any:
    """A `tf.data.Dataset` of batches made from the files, as one writes it by hand."""
    import tensorflow as tf

    def example(path: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        size = tf.cast(tf.shape(image)[:2], tf.float32)
        size = tf.cast(tf.round(size * SHORTER / tf.reduce_min(size)), tf.int32)
        image = tf.cast(tf.round(tf.image.resize(image, size, antialias=antialias)), tf.uint8)
        image = tf.image.stateless_random_crop(image, [CROP, CROP, 3], seed)
        return tf.image.stateless_random_flip_left_right(image, seed)

    files = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths))
    seeds = tf.data.Dataset.random(seed=1).batch(2)
    images = tf.data.Dataset.zip((files, seeds)).map(example, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    return images.batch(BATCH).prefetch(tf.data.AUTOTUNE)


def from_dataset(folder: str, images: str, store: str) -> Any:
    """The batches that training reads from a data set, which is written here."""
    from trainer.inputs import InputOptions, input_fn

    schema = os.path.join(folder, f"{store}.yaml")
    storage.write_bytes(schema, (SCHEMA % store).encode())
    output = os.path.join(folder, store)
    run_job(JobOptions(schema=schema, input=(images,), output=output, quiet=True))
    options = InputOptions(batch_size=BATCH, num_epochs=1, shuffle_buffer=1000)
    return input_fn(open_dataset(output), "train", mode="train", options=options)


def one_pass(batches: Any, count: int) -> tuple[float, float]:
    """Images a second, and milliseconds of CPU each."""
    begun, cpu = time.perf_counter(), time.process_time()
    for _ in batches:
        pass
    return count / (time.perf_counter() - begun), 1e3 * (time.process_time() - cpu) / count


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.image_reading", description=__doc__.splitlines()[0])
    parser.add_argument("--images", required=True, metavar="PATTERN", help="JPEG files in a folder for each class")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="(default: %(default)s)")
    options = parser.parse_args(argv)
    load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        try:
            paths = storage.expand([options.images])
            ways = {
                ORIGINAL: from_originals(paths, antialias=True),
                "original, rough": from_originals(paths, antialias=False),
                **{store: from_dataset(folder, options.images, store) for store in ("jpeg", "raw")},
            }
        except MillraceError as error:
            print(f"benchmarks.image_reading: {error}", file=sys.stderr)
            return error.exit_code
        passes: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for i in range(options.rounds + 1):
            for name, batches in ways.items():
                figures = one_pass(batches, len(paths))
                if i:  # the first pass warms caches and graphs up
                    passes[name].append(figures)
    print(f"{'':<16} {'images/s':>9} {'ratio':>6} {'CPU ms each':>12} {'ratio':>6}")
    rate, cpu = (statistics.median(column) for column in zip(*passes[ORIGINAL], strict=True))
    for name, figures_of in passes.items():
        per_second, each = (statistics.median(column) for column in zip(*figures_of, strict=True))
        print(f"{name:<16} {per_second:>9,.0f} {per_second / rate:>6.1f} {each:>12.2f} {cpu / each:>6.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
