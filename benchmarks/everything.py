"""What `make bench` runs: each part in its own process. If a part fails, the others still run.

    python -m benchmarks.everything

Progress is printed immediately; errors of failed parts are printed at the end, and the exit status is then 1.
"""

from __future__ import annotations

import subprocess
import sys
import time

PARTS = (
    ("benchmarks.bench",),
    ("benchmarks.training",),
    ("benchmarks.shuffle_quality", "--keep", "--rounds", "3"),
    ("benchmarks.scale", "--keep", "--rounds", "3"),
    ("benchmarks.wide", "--keep"),
    ("benchmarks.statistics_cost", "--keep", "--pairs", "3"),
)
LAST = 8000  # characters of a failed part's errors


def main() -> int:
    """Runs all parts. Returns the exit status."""
    failed = []
    for i, part in enumerate(PARTS, 1):
        name = f"python -m {' '.join(part)}"
        print(f"{time.strftime('%H:%M:%S')} part {i} of {len(PARTS)}: {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", *part], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            failed.append(f"failed: {name}: exit status {done.returncode}\n{done.stderr[-LAST:]}")
    print(f"{time.strftime('%H:%M:%S')} done", flush=True)
    print("\n".join(failed), file=sys.stderr, end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
