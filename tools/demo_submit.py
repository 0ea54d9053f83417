"""`make demo-submit`: the demo trained by `millrace submit vertex`, on servers of this machine.

Raw rows, dataset, staged package, model and predictions are on gs://, in a server process on loopback. Vertex AI is a
server of this process, which takes the requests of Google's client and runs what they ask for, in an environment that
has this project only as the package that was staged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import cloud, vertex_service
from tools.demo_steps import BUCKET, DATA, add_sizes, in_a_bucket, make_dataset, predict_rows, python, run_step

_TO_TRY = """
What to try next, with a project and a bucket of your own (docs/submit.md):
  {python} -m millrace submit vertex --project my-project --region us-central1 --image IMAGE \\
      --staging_bucket gs://my-bucket/staging -- train --data_dir gs://my-bucket/data --model_dir gs://my-bucket/model"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo. Returns the exit code: 0, that of the first step that failed, or 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="python -m tools.demo_submit", description=(__doc__ or "").partition("\n")[0])
    add_sizes(parser)
    options = parser.parse_args(argv)
    if not cloud.BINARY.is_file():
        parser.error(f"{cloud.BINARY}: missing; run make cloud-tools")
    return in_a_bucket(lambda folder: _demonstrate(folder, rows=options.rows, steps=options.steps))


def _demonstrate(folder: Path, *, rows: int, steps: int) -> None:
    make_dataset(rows)
    (folder / "vertex").mkdir()
    output = f"{BUCKET}/out"
    with vertex_service.running(folder / "vertex") as vertex:
        train = ("train", "--data_dir", DATA, "--model", "dnn", "--max_steps", str(steps))
        run_step("millrace.submit", "vertex", *vertex.flags(BUCKET), "--output_dir", output, "--", *train)
    predict_rows(f"{output}/model", ("staging", "the package that was staged for the machines"))
    print(_TO_TRY.format(python=python()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
