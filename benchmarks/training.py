"""What whole trainings of a few steps on 1,000 rows take: evaluations, exports, reports and imports included.

python -m benchmarks.training        # writes benchmarks/small.json, and updates the pages
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import report, results
from benchmarks.sources import FULL, Sources
from benchmarks.wide import run

SMALL = {  # by title: the model, and the source
    f"`{model}`, 1,000 rows of {name}": (model, source)
    for model in ("dnn", "tabular")
    for name, source in (("Covertype", "covertype_tiny"), ("census", "census_tiny"))
}
STEPS, ROUNDS = (500, 5000), 3


def small(folder: Path, rows: Path, model: str) -> dict[str, dict[str, float]]:
    """Medians of the CPU and wall time of trainings, by their number of steps."""
    data, trained = str(folder / "data"), folder / "model"
    run("beam_jobs.preprocess", "--schema", str(rows.with_suffix(".yaml")), "--input", str(rows), "--output", data)
    turns: dict[int, list[dict[str, float]]] = {steps: [] for steps in STEPS}
    for _ in range(ROUNDS):
        for steps, runs in turns.items():
            shutil.rmtree(trained, ignore_errors=True)
            options = ("--model", model, "--max_steps", str(steps), "--early_stopping_steps", "0", "--seed", "1")
            runs.append(run("trainer.task", "--data_dir", data, "--model_dir", str(trained), *options))
    return {
        str(steps): {key: statistics.median(each[key] for each in runs) for key in ("cpu", "wall")}
        for steps, runs in turns.items()
    }


def main() -> int:
    """Measures every case, and stores the figures. Returns the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        sources = Sources(folder, FULL)
        conditions = results.conditions(real_data=all(sources[source].real for _, source in SMALL.values()))
        trained = {}
        for title, (model, source) in SMALL.items():
            with tempfile.TemporaryDirectory() as made:
                trained[title] = small(Path(made), Path(sources[source].path), model)
    report.keep(report.SMALL, conditions, trained)
    return 0


if __name__ == "__main__":
    sys.exit(main())
