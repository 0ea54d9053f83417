"""Draws the plots of the README from the results."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.contests import CONTESTS, OURS, Contest
from benchmarks.results import Results, shown

FOLDER = Path(__file__).parent / "plots"
PLOTS = {
    "rows_written.svg": ("covertype", "census", "mnist", "covertype_6m"),
    "images_written.svg": ("images", "images_2mp", "images_12mp"),
    "rows_read.svg": ("read_rows",),
    "images_read.svg": ("read_images",),
}
INCHES = 800 / 72  # an SVG has 72 points per inch, and the README shows 800 of them
OWN, RIVAL, BOUND = "#1b6ca8", "#b8b8b8", "#e8c26a"
MEANING = {OWN: "Millrace", RIVAL: "other ways", BOUND: "bounds, which leave out what the others do"}
WIDE = 100  # times the slowest way: beyond it, bars of a linear axis would vanish
_STYLE = {
    "figure.facecolor": "white",  # a separate background, which is readable on a dark page, too
    "font.size": 12,
    "axes.titlesize": 14,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.w_pad": 0.15,
    "figure.constrained_layout.h_pad": 0.12,
    "svg.hashsalt": "millrace",  # so that the same figures give the same bytes
}


@contextmanager
def svg(path: Path, heights: list[int], *, columns: int = 1, inches: float) -> Iterator[tuple[Any, Any]]:
    """A figure to draw on, as wide as the README, which is written at the end of the block.

    Args:
      path: the file to write.
      heights: the rows of axes, as shares of the height.
      columns: the number of columns of axes.
      inches: the height.

    Yields:
      The figure, and its axes `[rows, columns]`.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(_STYLE):
        figure, axes = plt.subplots(
            len(heights),
            columns,
            figsize=(INCHES, inches),
            gridspec_kw={"height_ratios": heights},
            squeeze=False,
            layout="constrained",
        )
        yield figure, axes
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def write(found: Results, folder: Path = FOLDER) -> None:
    """Writes an SVG for each group of contests that were measured."""
    for name, members in PLOTS.items():
        contests = [c for c in CONTESTS if c.name in members and found.medians(c.name)]
        if not contests:
            continue
        heights = [len(found.medians(contest.name)) + 3 for contest in contests]
        with svg(folder / name, heights, inches=0.5 + 0.33 * sum(heights)) as (figure, axes):
            for axis, contest in zip(axes[:, 0], contests, strict=True):
                _bars(axis, contest, found)
            _legend(figure)


def _legend(figure: Any) -> None:
    from matplotlib.patches import Rectangle

    boxes = [Rectangle((0, 0), 1, 1, color=color) for color in MEANING]
    figure.legend(boxes, list(MEANING.values()), loc="outside upper left", ncols=3, frameon=False)


def _bars(axis: Any, contest: Contest, found: Results) -> None:
    """Draws a bar for each way, the fastest on top."""
    medians = found.medians(contest.name)
    bounds = {entry.name for entry in contest.entries if entry.bound}
    ways = sorted(medians, key=lambda way: medians[way].rate)
    rates = [medians[way].rate for way in ways]
    colors = [OWN if way.startswith(OURS) else BOUND if way in bounds else RIVAL for way in ways]
    bars = axis.barh(ways, rates, color=colors)
    axis.bar_label(bars, [shown(rate) for rate in rates], padding=4)
    axis.margins(x=0.12)
    wide = rates[-1] > WIDE * rates[0]
    if wide:
        axis.set_xscale("log")
        axis.set_xlim(rates[0] / 4, rates[-1] * 4)
    axis.set_title(contest.title)
    axis.set_xlabel(f"{contest.unit} a second{', logarithmic' if wide else ''}", loc="right")
    axis.xaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}")
