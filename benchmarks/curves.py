"""What `benchmarks.scale` has measured, as a table and as curves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEPT = Path(__file__).with_name("scale.json")
PLOT = Path(__file__).parent / "plots" / "scale.png"

Jobs = list[dict[str, float]]  # rows, shards, real_data, rows_per_second, seconds, peak_mb of each


def save(jobs: Jobs) -> None:
    """Keeps what was measured."""
    KEPT.write_text(json.dumps(jobs, indent=1) + "\n", encoding="utf-8")


def load() -> Jobs:
    """What was kept; nothing where nothing was."""
    jobs: Jobs = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    return jobs


def table(jobs: Jobs) -> str:
    """Rows a second and peak memory for every number of rows and of shards, in Markdown."""
    if not jobs:
        return "(not measured)"
    shards = sorted({int(job["shards"]) for job in jobs})
    rows = "rows" if all(job["real_data"] for job in jobs) else "rows, made samples"
    heads = ["1 shard" if n == 1 else f"{n} shards" for n in shards]
    lines = [f"| {rows} | {' | '.join(heads)} |", f"|--:|{'--:|' * len(shards)}"]
    for count in sorted({int(job["rows"]) for job in jobs}):
        of = {job["shards"]: job for job in jobs if job["rows"] == count}
        cells = [_cell(of[n]) if n in of else "" for n in shards]
        lines.append(f"| {count:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(job: dict[str, float]) -> str:
    return f"{job['rows_per_second']:,.0f} rows/s, {job['peak_mb']:,.0f} MB"


def plot(jobs: Jobs, path: Path = PLOT) -> None:
    """Seconds and peak memory over rows, a curve for each number of shards, into a PNG."""
    if not jobs:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    titles = {"rows_per_second": "Rows a second", "peak_mb": "Peak memory, MB"}
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for shards in sorted({job["shards"] for job in jobs}):
            points = sorted((job["rows"], job[key]) for job in jobs if job["shards"] == shards)
            _curve(axis, points, f"{shards:.0f} shard{'s' * (shards > 1)}")
        axis.set_xscale("log")
        axis.set_ylim(bottom=0)
        axis.set_title(title, loc="left", fontsize=10)
        axis.set_xlabel("rows of Covertype", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(fontsize=8, frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _curve(axis: Any, points: list[tuple[float, float]], label: str) -> None:
    axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=label)
