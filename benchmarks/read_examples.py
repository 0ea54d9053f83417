"""How many examples a second the trainer reads from a data set, shuffled and parsed, as training does.

    python -m benchmarks.read_examples --data_dir out/

Each pass is timed after a first one that warms the file cache and the graph up; the figures are rows/s of each pass.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from schemas.dataset import open_dataset
from schemas.errors import MillraceError


def main(argv: list[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.read_examples", description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="the data set")
    parser.add_argument("--split", default="train", help="(default: %(default)s)")
    parser.add_argument("--batch_size", type=int, default=512, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--passes", type=int, default=5, metavar="N", help="that are timed (default: %(default)s)")
    options = parser.parse_args(argv)
    try:
        dataset = open_dataset(options.data_dir)
        rows = dataset.rows(options.split)
    except MillraceError as error:
        print(f"benchmarks.read_examples: {error}", file=sys.stderr)
        return error.exit_code
    from trainer.inputs import InputOptions, input_fn

    batches = input_fn(
        dataset, options.split, mode="train", options=InputOptions(batch_size=options.batch_size, num_epochs=1)
    )
    rates = []
    for i in range(options.passes + 1):
        begun = time.perf_counter()
        for _ in batches:
            pass
        if i:
            rates.append(rows / (time.perf_counter() - begun))
            print(f"pass {i}: {rates[-1]:,.0f} rows/s")
    print(f"median: {statistics.median(rates):,.0f} rows/s over {rows:,} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
