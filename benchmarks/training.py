"""Training steps per second, by `trainer.doctor`: with the real input, with a batch from memory, and the input alone.

python -m benchmarks.training        # writes benchmarks/training.json, and updates its table
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import report, results
from benchmarks.results import Kept
from benchmarks.sources import FULL, Sources

CASES = {  # by title: the source, and the options of the training
    "`dnn` on Covertype": ("rows", ["--model", "dnn"]),
    "`squeezenext` on photos, 224 x 224": ("images_jpeg", ["--model", "squeezenext", "--batch_size", "32"]),
}
LENGTH = ["--seconds", "40", "--rounds", "3", "--seed", "1", "--one_process"]


def main() -> int:
    """Measures every case, and stores the figures of those that succeed. Returns the exit status."""
    found, status = {}, 0
    with tempfile.TemporaryDirectory() as folder:
        sources = Sources(folder, FULL)
        conditions = results.conditions(real_data=all(sources[source].real for source, _ in CASES.values()))
        for title, (source, options) in CASES.items():
            figures = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "trainer.doctor", "--data_dir", sources[source].path, *options, *LENGTH]
            done = subprocess.run([*command, "--json", str(figures), "--overwrite"], check=False)
            if done.returncode:
                print(f"benchmarks.training: {title}: exit status {done.returncode}", file=sys.stderr)
                status = 1
                continue
            found[title] = json.loads(figures.read_text(encoding="utf-8"))
    results.save_kept(report.TRAINING, Kept(conditions, found))
    report.write(results.load())
    return status


if __name__ == "__main__":
    sys.exit(main())
