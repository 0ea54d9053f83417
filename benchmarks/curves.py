"""The figures of `benchmarks.scale` as a table and as curves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import plots
from benchmarks.kept import Kept

NAME = "scale"
PLOT = plots.FOLDER / "scale.svg"


def table(found: Kept | None) -> str:
    """Rows per second and peak memory for every number of rows and of shards, in Markdown.

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
    """Draws rows per second and peak memory over rows, with a curve for each number of shards, as an SVG."""
    if found is None:
        return
    jobs = found.figures
    titles = {"rows_per_second": "Rows a second", "peak_mb": "Peak memory, MB"}
    with plots.svg(path, [1], columns=len(titles), inches=4.5) as (_, axes):
        for axis, (key, title) in zip(axes[0], titles.items(), strict=True):
            for shards in sorted({job["shards"] for job in jobs}):
                points = sorted((job["rows"], job[key]) for job in jobs if job["shards"] == shards)
                _curve(axis, points, f"{shards:.0f} shard{'s' * (shards > 1)}")
            axis.set_xscale("log")
            axis.set_ylim(bottom=0)
            axis.set_title(title)
            axis.set_xlabel("rows of Covertype")
            counts = sorted({job["rows"] for job in jobs})
            axis.set_xticks(counts, [f"{count:,}" for count in counts], fontsize=11)
            axis.minorticks_off()
            axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes[0, 0].legend(frameon=False)


def _curve(axis: Any, points: list[tuple[float, float]], label: str) -> None:
    axis.plot(*zip(*points, strict=True), marker="o", label=label)
