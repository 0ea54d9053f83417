"""What `benchmarks.scale` has measured, as a table and as curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.kept import Kept

NAME = "scale"
PLOT = Path(__file__).parent / "plots" / "scale.png"


def table(found: Kept | None) -> str:
    """Rows a second and peak memory for every number of rows and of shards, in Markdown.

    Args:
      found: a list of jobs, each with `rows`, `shards`, and the medians of its `runs`: `rows_per_second`, `seconds`,
        `peak_mb`.
    """
    if found is None:
        return "(not measured)"
    jobs = found.figures
    shards = sorted({int(job["shards"]) for job in jobs})
    heads = ["1 shard" if n == 1 else f"{n} shards" for n in shards]
    lines = [f"| rows | {' | '.join(heads)} |", f"|--:|{'--:|' * len(shards)}"]
    for count in sorted({int(job["rows"]) for job in jobs}):
        of = {job["shards"]: job for job in jobs if job["rows"] == count}
        cells = [_cell(of[n]) if n in of else "" for n in shards]
        lines.append(f"| {count:,} | {' | '.join(cells)} |")
    runs = min(job["runs"] for job in jobs)
    return "\n".join([*lines, "", f"{found.told()} Runs of each: {runs}."])


def _cell(job: dict[str, float]) -> str:
    return f"{job['rows_per_second']:,.0f} rows/s, {job['peak_mb']:,.0f} MB"


def plot(found: Kept | None, path: Path = PLOT) -> None:
    """Seconds and peak memory over rows, a curve for each number of shards, into a PNG."""
    if found is None:
        return
    jobs = found.figures
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
