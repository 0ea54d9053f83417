"""Training steps a second with their real input, with one batch from memory, and the input alone: `trainer.doctor`'s.

python -m benchmarks.training        # writes benchmarks/training.json, and its table anew
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.sources import FULL, Sources

KEPT = Path(__file__).with_name("training.json")
CASES = {  # by title: the source, and the training's options
    "`dnn` on Covertype": ("rows", ["--model", "dnn"]),
    "`squeezenext` on photos, 224 x 224": ("images_jpeg", ["--model", "squeezenext", "--batch_size", "32"]),
}
LENGTH = ["--seconds", "60", "--rounds", "5", "--seed", "1"]


def load() -> dict[str, Any]:
    """What the doctor said of each case; nothing where none was measured."""
    found: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return found


def table(found: dict[str, Any]) -> str:
    """Steps a second of each case, in Markdown."""
    if not found:
        return "(not measured)"
    lines = ["| model | batch | with its input | batch in memory | input alone | share of a step that is input |"]
    lines.append("|---|--:|--:|--:|--:|--:|")
    for title, figures in found.items():
        rates = (f"{1 / figures[way]['seconds']:,.1f} steps/s" for way in ("training", "memory", "alone"))
        lines.append(f"| {title} | {figures['batch_size']} | {' | '.join(rates)} | {figures['share']:.0%} |")
    return "\n".join(lines)


def main() -> int:
    """Measures every case, and keeps what the doctor says. Returns the exit status."""
    from benchmarks import report, results  # which reads what is kept here

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        sources = Sources(folder, FULL)
        for title, (source, options) in CASES.items():
            figures = Path(folder) / "figures.json"
            command = [sys.executable, "-m", "trainer.doctor", "--data_dir", sources[source].path, *options, *LENGTH]
            subprocess.run([*command, "--json", str(figures)], check=True)
            found[title if sources[source].real else f"{title}, made samples"] = json.loads(
                figures.read_text(encoding="utf-8")
            )
    KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    report.write(results.load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
