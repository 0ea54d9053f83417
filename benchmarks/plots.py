"""Draws the plots of the README and of the documentation from the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contests import CONTESTS, OURS, Contest
from benchmarks.results import Results, shown

FOLDER = Path(__file__).parent / "plots"
PLOTS = {
    "rows_written.svg": ("covertype", "census", "mnist", "scale_workers"),
    "photos_written.svg": ("photos_small", "photos_2mp", "photos_12mp"),
    "rows_read.svg": ("read_rows",),
    "photos_read.svg": ("read_photos",),
}
INCHES = 800 / 72  # an SVG has 72 points per inch, and the README shows 800 of them
COLORS = {"Millrace": "#1b6ca8", "others": "#b8b8b8", "bounds, which leave out what the others do": "#e8c26a"}
LOGARITHMIC = 100  # times the slowest candidate: beyond it, bars of a linear axis would vanish
STYLE = {
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


def write(measured: Results) -> None:
    """Writes an SVG for each group of contests that were measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(STYLE):
        for name, members in PLOTS.items():
            contests = [c for c in CONTESTS if c.name in members and measured.rates(c.name)]
            if not contests:
                continue
            heights = [len(measured.rates(contest.name)) + 3 for contest in contests]
            size = (INCHES, 0.5 + 0.33 * sum(heights))
            ratios = {"height_ratios": heights}
            figure, axes = plt.subplots(
                len(heights), figsize=size, gridspec_kw=ratios, squeeze=False, layout="constrained"
            )
            for axis, contest in zip(axes[:, 0], contests, strict=True):
                _draw_bars(axis, contest, measured)
            boxes = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()]
            figure.legend(boxes, list(COLORS), loc="outside upper left", ncols=3, frameon=False)
            figure.savefig(FOLDER / name, metadata={"Date": None})
            plt.close(figure)


def _draw_bars(axis: Any, contest: Contest, measured: Results) -> None:
    """Draws a bar for each candidate, the fastest on top."""
    ours, rivals, bounds = COLORS.values()
    bound_names = {candidate.name for candidate in contest.candidates if candidate.bound}
    rates = dict(sorted(measured.rates(contest.name).items(), key=lambda item: item[1]))
    slowest, fastest = min(rates.values()), max(rates.values())
    colors = [ours if name.startswith(OURS) else bounds if name in bound_names else rivals for name in rates]
    bars = axis.barh(list(rates), list(rates.values()), color=colors)
    axis.bar_label(bars, [shown(rate) for rate in rates.values()], padding=4)
    axis.margins(x=0.12)
    logarithmic = fastest > LOGARITHMIC * slowest
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xlim(slowest / 4, fastest * 4)
    axis.set_title(contest.title)
    axis.set_xlabel(f"{contest.unit} a second{', logarithmic' if logarithmic else ''}", loc="right")
    axis.xaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}")
