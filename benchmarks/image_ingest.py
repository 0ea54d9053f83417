"""The job's image rate beside a bare `tf.data` map of the same decode, resize and re-encode, in turn, on one machine.

    python -m benchmarks.image_ingest --images 'photos/*/*' --times 5 --rounds 3

The images are taken several times (as hard links), so that the job's fixed cost does not hide its rate. The job's time
is the manifest's: pipeline, statistics, shuffle, checksums and commit. Beside the rates stand the milliseconds of CPU
that an image costs, which say what the job adds even where other work shares the machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

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


@dataclasses.dataclass(frozen=True)
class Rate:
    """Images a second, and the milliseconds of CPU that each takes."""

    per_second: float
    cpu_ms: float


def measured(work: Callable[[], float], count: int) -> Rate:
    """The rate of `work`, which handles `count` images and returns its own seconds."""
    begun = time.process_time()
    seconds = work()
    return Rate(count / seconds, 1e3 * (time.process_time() - begun) / count)


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


def job_seconds(job: JobOptions) -> float:
    """Seconds of the job, by its manifest."""
    return run_job(job).seconds


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
            ratios, cpu_ratios = [], []
            for i in range(options.rounds):
                by_itself = measured(lambda: bare(paths), count)
                job = JobOptions(
                    schema=f"{folder}/rate.yaml", input=(f"{folder}/raw/*/*",), output=f"{folder}/{i}", quiet=True
                )
                in_job = measured(functools.partial(job_seconds, job), count)
                ratios.append(in_job.per_second / by_itself.per_second)
                cpu_ratios.append(by_itself.cpu_ms / in_job.cpu_ms)
                print(
                    f"round {i + 1}: bare {by_itself.per_second:,.0f} images/s, {by_itself.cpu_ms:.2f} ms CPU each; "
                    f"job {in_job.per_second:,.0f}, {in_job.cpu_ms:.2f} ms; "
                    f"ratio {ratios[-1]:.2f}, of CPU {cpu_ratios[-1]:.2f}"
                )
        except MillraceError as error:
            print(f"benchmarks.image_ingest: {error}", file=sys.stderr)
            return error.exit_code
    told = f"{statistics.median(ratios):.2f} of the rate, {statistics.median(cpu_ratios):.2f} of the CPU"
    print(f"median ratio {told}, over {count:,} images")
    return 0


if __name__ == "__main__":
    sys.exit(main())
