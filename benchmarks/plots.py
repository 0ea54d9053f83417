"""The plots that the README shows, from the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contests import CONTESTS, OURS, Contest
from benchmarks.results import Results

FOLDER = Path(__file__).parent / "plots"
PLOTS = {
    "writing.png": ("covertype", "census", "mnist", "images"),
    "reading.png": ("read_rows", "read_images"),
}
OWN, RIVAL, BOUND = "#1b6ca8", "#b8b8b8", "#e8c26a"
MEANING = {OWN: "Millrace", RIVAL: "other ways", BOUND: "bounds, which leave out what the others do"}
WIDE = 100  # times the slowest way: beyond it, bars of a linear axis would vanish


def write(found: Results, folder: Path = FOLDER) -> None:
    """Writes a PNG for each group of contests that were measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(exist_ok=True)
    for name, members in PLOTS.items():
        contests = [c for c in CONTESTS if c.name in members and found.medians(c.name)]
        if not contests:
            continue
        heights = [len(contest.entries) for contest in contests]
        figure, axes = plt.subplots(
            len(contests),
            1,
            figsize=(9, 0.6 + sum(0.32 * height + 0.75 for height in heights)),
            gridspec_kw={"height_ratios": heights},
            squeeze=False,
            layout="constrained",
        )
        for axis, contest in zip(axes[:, 0], contests, strict=True):
            _bars(axis, contest, found)
        boxes = [plt.Rectangle((0, 0), 1, 1, color=color) for color in MEANING]
        figure.legend(boxes, list(MEANING.values()), loc="outside upper left", ncols=3, fontsize=8, frameon=False)
        figure.savefig(folder / name, dpi=110)
        plt.close(figure)


def _bars(axis: Any, contest: Contest, found: Results) -> None:
    """A bar for each way, the fastest on top."""
    medians = found.medians(contest.name)
    bounds = {entry.name for entry in contest.entries if entry.bound}
    ways = sorted(medians, key=lambda way: medians[way].rate)
    rates = [medians[way].rate for way in ways]
    colors = [OWN if way.startswith(OURS) else BOUND if way in bounds else RIVAL for way in ways]
    bars = axis.barh(ways, rates, color=colors)
    axis.bar_label(bars, [f"{rate:,.0f}" for rate in rates], padding=3, fontsize=8)
    axis.margins(x=0.12)
    wide = rates[-1] > WIDE * rates[0]
    if wide:
        axis.set_xscale("log")
        axis.set_xlim(rates[0] / 4, rates[-1] * 4)
    told = f"{contest.title}, {contest.unit} a second{', logarithmic' if wide else ''}"
    axis.set_title(told, loc="left", fontsize=10)
    axis.xaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}")
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
