"""What the demos share: a bucket in a server of this machine, steps that are commands, and a clean end."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from schemas import storage
from schemas.storage import folders
from tests.support import cloud

BUCKET = "gs://demo"
RAW, DATA = f"{BUCKET}/raw/sample.csv", f"{BUCKET}/data"


def in_a_bucket(demonstrate: Callable[[Path], None]) -> int:
    """Runs a demo with everything in `BUCKET`, which is gone afterwards.

    Args:
      demonstrate: does the steps; it is given a folder for temporary files.

    Returns:
      The exit code: 0, that of the first step that failed, or 130 if interrupted.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="millrace-demo-") as folder, cloud.running_gcs(Path(folder)) as running:
            cloud.make_bucket(running.gateway, BUCKET.removeprefix("gs://"))
            os.environ.update(running.environment)
            os.environ["TMPDIR"] = folder  # whatever a library forgets there is removed as well
            demonstrate(Path(folder))
    except subprocess.CalledProcessError as error:
        print(f"error: this step ended with exit code {error.returncode}: {shlex.join(error.cmd)}", file=sys.stderr)
        return error.returncode if error.returncode > 0 else 1
    except KeyboardInterrupt:
        print("interrupted; the servers are stopped, and nothing is left", file=sys.stderr)
        return 130
    return 0


def make_dataset(rows: int, *flags: str) -> None:
    """Draws raw rows, and makes a dataset of them by a job with further flags."""
    run_step("schemas.samples", "covertype", RAW, "--rows", str(rows), "--seed", "1")
    run_step("beam_jobs.preprocess", "--schema", "covertype", "--input", RAW, "--output", DATA, *flags)


def predict_rows(model: str, *made: tuple[str, str]) -> None:
    """Predicts the raw rows by a model's best export, and prints what lies in the bucket; see `print_made`."""
    export, predictions = best_export(model), f"{BUCKET}/predictions.jsonl"
    run_step("trainer.predict", "--saved_model", export, "--input", RAW, "--output", predictions)
    what = (
        ("raw", "the raw rows"),
        ("data", "the dataset: its manifest, shards, transform and rejects"),
        *made,
        (model.removeprefix(f"{BUCKET}/"), "checkpoints, evaluation metrics, TensorBoard summaries, exports"),
        (export.removeprefix(f"{BUCKET}/"), "the served model"),
    )
    print_made(predictions, what)


def print_made(predictions: str, what: Sequence[tuple[str, str]]) -> None:
    """Prints the first predictions, and what lies in the bucket.

    Args:
      predictions: the file of predictions.
      what: folders of the bucket, and what each holds.
    """
    lines = storage.read_bytes(predictions).decode().splitlines()
    print("", *lines[:2], "", f"What was made, in {BUCKET}, and is gone when the server ends now:", sep="\n")
    width = max(len(name) for name, _ in what)
    for name, holds in what:
        files = [storage.join(BUCKET, name, file) for file in folders.walk(storage.join(BUCKET, name))]
        size = sum(storage.stat(file).size for file in files)
        objects = "object " if len(files) == 1 else "objects"
        print(f"  {name:<{width}} {len(files):>4} {objects} {size:>12,} bytes  {holds}")
    print(f"  {'predictions.jsonl':<{width}} {len(lines):,} lines, one for each raw row")


def best_export(model_dir: str) -> str:
    """The folder of a training's newest best export."""
    best = storage.join(model_dir, "export", "best")
    return storage.join(best, json.loads(storage.read_bytes(storage.join(best, "best.json")))["export"])


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say how long a demo takes."""
    parser.add_argument("--rows", type=int, default=20_000, metavar="N", help="rows of the sample (%(default)s)")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="training steps (%(default)s)")


def run_step(module: str, *args: str) -> None:
    """Prints a command and runs it. No process that it has started survives it.

    Raises:
      CalledProcessError: the command failed.
    """
    command = [python(), "-m", module, *args]
    print(f"\n$ {shlex.join(command)}", flush=True)
    # A session of its own: Ctrl-C reaches this process alone, which then ends the step and everything that it started.
    process = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - our own commands
    try:
        status = process.wait()
    finally:  # also if interrupted: what the step has not finished is in the server's memory, and gone with it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if status:
        raise subprocess.CalledProcessError(status, command)


def python() -> str:
    """This interpreter, as a person in the checkout would type it."""
    return os.path.relpath(sys.executable) if sys.executable.startswith(os.getcwd() + os.sep) else sys.executable


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
