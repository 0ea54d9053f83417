"""The job's image rate beside a bare `tf.data` map of the same decode, resize and re-encode, in turn, on one machine.

    python -m benchmarks.image_ingest --images 'photos/*/*' --times 5 --rounds 3

The images are taken several times (as hard links), so that the job's fixed cost does not hide its rate. The job's time
is the manifest's: pipeline, statistics, shuffle, checksums and commit.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time

from beam_jobs.job import load_libraries, run_job
from beam_jobs.options import JobOptions
from schemas import storage
from schemas.errors import MillraceError

SCHEMA = "name: rate\nformat: image_folder\nimages: {resize: {shorter: 256}, crop: [224, 224]}\n"
SCHEMA += "split: {by: name, train: 0.8, eval: 0.1, test: 0.1}\n"


def link(paths: list[str], folder: str, times: int) -> int:
    """Hard links to every image, `times` over, in folders named like theirs. Returns how many."""
    for path in paths:
        label = os.path.basename(os.path.dirname(path))
        os.makedirs(os.path.join(folder, label), exist_ok=True)
        for i in range(times):
            target = os.path.join(folder, label, f"{i}-{os.path.basename(path)}")
            try:
                os.link(path, target)
            except OSError:  # another file system
                os.symlink(os.path.abspath(path), target)
    return len(paths) * times


def bare(paths: list[str]) -> float:
    """Seconds of a `tf.data` map that reads, decodes, resizes and encodes, with a thread for each core."""
    import tensorflow as tf

    def work(path: tf.Tensor) -> tf.Tensor:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_ACCURATE")
        size = tf.shape(image)[:2]
        size = tf.cast(tf.round(tf.cast(size, tf.float32) * 256 / tf.cast(tf.reduce_min(size), tf.float32)), tf.int32)
        small = tf.image.resize(image, size, antialias=True)
        return tf.io.encode_jpeg(tf.cast(tf.clip_by_value(tf.round(small), 0, 255), tf.uint8), quality=95)

    images = tf.data.Dataset.from_tensor_slices(paths).map(work, num_parallel_calls=tf.data.AUTOTUNE).prefetch(16)
    begun = time.perf_counter()
    for _ in images:
        pass
    return time.perf_counter() - begun


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.image_ingest", description=__doc__.splitlines()[0])
    parser.add_argument("--images", required=True, metavar="PATTERN", help="JPEG files in a folder for each class")
    parser.add_argument("--times", type=int, default=5, metavar="N", help="each image is taken (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: %(default)s)")
    options = parser.parse_args(argv)
    load_libraries()
    with tempfile.TemporaryDirectory() as folder:
        try:
            count = link(storage.expand([options.images]), f"{folder}/raw", options.times)
            paths = storage.expand([f"{folder}/raw/*/*"])
            with open(f"{folder}/rate.yaml", "w", encoding="utf-8") as file:
                file.write(SCHEMA)
            ratios = []
            for i in range(options.rounds):
                by_itself = count / bare(paths)
                job = JobOptions(
                    schema=f"{folder}/rate.yaml", input=(f"{folder}/raw/*/*",), output=f"{folder}/{i}", quiet=True
                )
                in_job = count / run_job(job).seconds
                ratios.append(in_job / by_itself)
                print(f"round {i + 1}: bare {by_itself:,.0f} images/s, job {in_job:,.0f}, ratio {ratios[-1]:.2f}")
        except MillraceError as error:
            print(f"benchmarks.image_ingest: {error}", file=sys.stderr)
            return error.exit_code
    print(f"median ratio {statistics.median(ratios):.2f} over {count:,} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
