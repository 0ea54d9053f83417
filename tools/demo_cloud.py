"""`make demo-cloud`: the demo with everything in a bucket, and Prism as the job's engine, on servers of this machine.

Raw rows, dataset, model and predictions are on gs://, in a server process on loopback that keeps them in memory. When
the demo ends, or is interrupted, the server and every other process that it has started end too, and nothing is left.
With `--shell`, a person types the commands.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import cloud
from tools.demo_steps import BUCKET, DATA, add_sizes, in_a_bucket, make_dataset, predict_rows, python, run_step

PRISM = ".cloud/bin/prism"

_TO_TRY = """
What to try next, with a bucket of your own:
  {python} -m beam_jobs.preprocess --schema covertype --input 'gs://my-bucket/raw/*.csv' --output gs://my-bucket/data
  credentials and tests: see docs/cloud.md"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo. Returns the exit code: 0, that of the first step that failed, or 130 if interrupted."""
    parser = _parser()
    options = parser.parse_args(argv)
    for program in (cloud.BINARY, Path(options.prism)):
        if not program.is_file():
            parser.error(f"{program}: missing; run make cloud-tools")
    if options.shell:
        return in_a_bucket(lambda folder: _open_shell())
    return in_a_bucket(lambda folder: _demonstrate(rows=options.rows, steps=options.steps, prism=options.prism))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.demo_cloud", description=(__doc__ or "").partition("\n")[0])
    add_sizes(parser)
    parser.add_argument("--prism", default=PRISM, metavar="FILE", help="Prism's program (%(default)s)")
    parser.add_argument("--shell", action="store_true", help="open a shell instead, to type commands")
    return parser


def _open_shell() -> None:
    print(f"In this shell gs:// is a server of this machine. {BUCKET} is gone when you leave with exit.", flush=True)
    subprocess.call(["bash"])  # noqa: S607 - the one that the person has


def _demonstrate(*, rows: int, steps: int, prism: str) -> None:
    model = f"{BUCKET}/model"
    make_dataset(rows, "--runner", "PrismRunner", "--prism_location", prism)
    run_step("schemas.dataset", "verify", DATA)
    run_step("trainer.task", "--data_dir", DATA, "--model_dir", model, "--model", "dnn", "--max_steps", str(steps))
    predict_rows(model)
    print(_TO_TRY.format(python=python()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
