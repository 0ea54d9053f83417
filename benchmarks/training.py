"""Training steps a second with their real input, with one batch from memory, and the input alone: `trainer.doctor`'s.

python -m benchmarks.training        # writes benchmarks/training.json, and its table anew
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import kept, measured_tables, report, results
from benchmarks.kept import Kept
from benchmarks.sources import FULL, Sources

CASES = {  # by title: the source, and the training's options
    "`dnn` on Covertype": ("rows", ["--model", "dnn"]),
    "`squeezenext` on photos, 224 x 224": ("images_jpeg", ["--model", "squeezenext", "--batch_size", "32"]),
}
LENGTH = ["--seconds", "60", "--rounds", "5", "--seed", "1"]


def main() -> int:
    """Measures every case, and keeps what the doctor says. Returns the exit status."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = Sources(folder, FULL)
        told = kept.conditions(real_data=all(sources[source].real for source, _ in CASES.values()))
        for title, (source, options) in CASES.items():
            figures = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "trainer.doctor", "--data_dir", sources[source].path, *options, *LENGTH]
            subprocess.run([*command, "--json", str(figures)], check=True)
            found[title] = json.loads(figures.read_text(encoding="utf-8"))
    kept.save(measured_tables.TRAINING, Kept(told, found))
    report.write(results.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
