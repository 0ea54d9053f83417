"""The stored results, and the tables between markers in the documentation and the plots that are made of them.

`python -m benchmarks.report` writes them. `results.json` has every run of every contest, with the machine, the versions
and the load.
"""

from __future__ import annotations

import dataclasses
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contests import (
    CONTESTS,
    GRADIENT_BOOSTING,
    LINEAR,
    MLP,
    OURS,
    RIDGE,
    TABULAR,
    TF_IDF,
    TREES,
    Candidate,
    Contest,
)
from benchmarks.measure import PACKAGES, Figures
from benchmarks.model_sets import SETS

PATH = Path(__file__).parent / "results.json"
ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md")
NOT_MEASURED = "(not measured)"
SUMMARIZED = ("covertype", "photos_small", "read_rows")  # one contest of each kind of work
MODELS = (TABULAR, TREES, LINEAR, GRADIENT_BOOSTING, RIDGE, MLP)
MODEL_GOALS = {TABULAR: (GRADIENT_BOOSTING, 1.03), TREES: (GRADIENT_BOOSTING, 1.02), LINEAR: (RIDGE, 1.02)}
TEXT_GOAL = (TF_IDF, 1.0)  # another model, and how many times its loss a model of Millrace may have
PLOT_FOLDER = Path(__file__).parent / "plots"
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


@dataclasses.dataclass(frozen=True)
class Results:
    """By contest: the `conditions` (see `benchmarks.measure`), and `runs`, the figures of each candidate's runs."""

    contests: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def with_contest(
        self, contest: Contest, runs: Mapping[str, Sequence[Figures]], conditions: Mapping[str, str]
    ) -> Results:
        """Returns these results with a new measurement of one contest."""
        measured = {
            "conditions": conditions,
            "runs": {name: [dataclasses.asdict(run) for run in figures] for name, figures in runs.items()},
        }
        return Results({**self.contests, contest.name: measured})

    def conditions(self, contest: str) -> Mapping[str, str]:
        """Returns the conditions under which a contest was measured."""
        return self.contests[contest]["conditions"]

    def runs(self, contest: str) -> dict[str, list[Figures]]:
        """Returns the runs of each candidate; empty if the contest was not measured."""
        runs = self.contests.get(contest, {}).get("runs", {})
        return {name: [Figures(**figures) for figures in of_candidate] for name, of_candidate in runs.items()}

    def median(self, contest: str, candidate: str, figure: Callable[[Figures], float | None]) -> float | None:
        """Returns the median of one figure over a candidate's runs; None if it has none."""
        values = [value for run in self.runs(contest).get(candidate, ()) if (value := figure(run)) is not None]
        return statistics.median(values) if values else None

    def rates(self, contest: str) -> dict[str, float]:
        """Returns the median rate of each candidate."""
        return {name: statistics.median(run.rate for run in runs) for name, runs in self.runs(contest).items()}


def shown(rate: float) -> str:
    """Returns a rate as tables and plots show it: a whole number, or three digits below 100."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def load(path: Path = PATH) -> Results:
    """Reads the stored results; empty if there are none."""
    return Results(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Results()


def save(results: Results, path: Path = PATH) -> None:
    """Writes the results."""
    path.write_text(json.dumps(results.contests, indent=1) + "\n", encoding="utf-8")


def markdown(heads: str, aligned: str, rows: Iterable[Iterable[str]]) -> str:
    """Returns a Markdown table of its heads, the line that aligns its columns, and its rows."""
    return "\n".join([heads, aligned, *(f"| {' | '.join(cells)} |" for cells in rows)])


def table(measured: Results, contest: Contest) -> str:
    """Returns the candidates of one contest; of a contest of models, its line of the table of all sets."""
    runs = measured.runs(contest.name)
    if not runs:
        return NOT_MEASURED
    if contest.kind == "train":
        return models(measured, [contest])
    factor, places, cpu = (1e3, 3, "CPU ms/photo") if contest.unit == "photos" else (1e6, 1, "CPU µs/row")
    rows = []
    for candidate in contest.candidates:
        if candidate.name not in runs:
            continue
        name = candidate.name
        label = f"**{name}**" if name == OURS else f"*{name}*" if candidate.bound else name
        cpu_each = measured.median(contest.name, name, lambda run: run.cpu_each)
        peak = measured.median(contest.name, name, lambda run: run.peak_bytes)
        rows.append(
            (
                label,
                shown(measured.rates(contest.name)[name]),
                speedup(measured, contest, candidate),
                "" if candidate.goal is None else f"≥{candidate.goal:g}x",
                "" if cpu_each is None else f"{factor * cpu_each:.{places}f}",
                "" if peak is None else f"{peak / 2**30:.2f}",
            )
        )
    inputs = "" if measured.conditions(contest.name)["real_data"] == "true" else ", synthetic samples"
    compared = "speedup by CPU" if contest.by_cpu else "speedup"
    heads = f"| {contest.title}{inputs} | {contest.unit}/s | {compared} | goal | {cpu} | peak GB |"
    return markdown(heads, "|---|--:|--:|--:|--:|--:|", rows)


def speedup(measured: Results, contest: Contest, candidate: Candidate) -> str:
    """Says how many times as fast Millrace is; in bold where it misses the goal, with enough places to show it."""

    def speed(run: Figures) -> float | None:
        if contest.by_cpu:
            return None if run.cpu_each is None else 1 / run.cpu_each
        return run.rate

    ours, other = (measured.median(contest.name, name, speed) for name in (candidate.beside, candidate.name))
    if ours is None or other is None or candidate.name == candidate.beside:
        return ""
    ratio, goal = ours / other, candidate.goal
    if goal is None or ratio >= goal:
        return f"{ratio:.2f}x"
    places = next(n for n in range(2, 16) if round(ratio, n) != goal)
    return f"**{ratio:.{places}f}x**"


def models(measured: Results, contests: Sequence[Contest]) -> str:
    """Returns mean loss on test ± deviation, accuracy, CPU seconds and the ratio of losses, by set and model."""
    rows = []
    for contest in contests:
        runs, model_set = measured.runs(contest.name), SETS[contest.name]
        if not runs:
            continue
        cells = []
        for model in MODELS:
            other, limit = TEXT_GOAL if model_set.text else MODEL_GOALS.get(model, ("", 0.0))
            # Of texts, the only other model stands in the column of logistic regression.
            ours = runs.get(TF_IDF if model_set.text and model == RIDGE else model)
            cells.append(score(ours) + (loss_ratio(ours, runs.get(other), limit) if model in MODEL_GOALS else ""))
        loss = "log loss" if model_set.classes else "squared error"
        rows.append((f"{contest.title}, {next(iter(runs.values()))[0].count:,} rows, {loss}", *cells))
    return markdown(f"| set, loss | {' | '.join(MODELS)} |", f"|---|{'---|' * len(MODELS)}", rows)


def score(runs: Sequence[Figures] | None) -> str:
    """Returns mean loss ± standard deviation of several runs, accuracy if there is one, and CPU seconds."""
    if not runs:
        return ""
    losses = scores(runs, "loss")
    numbers = [statistics.mean(losses), *([statistics.stdev(losses)] if len(losses) > 1 else [])]
    places = 0 if numbers[0] >= 100 else 5 if numbers[0] < 0.1 else 4
    accuracy = [f"{statistics.mean(shares):.1%}" for shares in [scores(runs, "accuracy")] if shares]
    cpu = statistics.mean(run.cpu or 0 for run in runs)
    return ", ".join([" ± ".join(f"{number:,.{places}f}" for number in numbers), *accuracy, f"{cpu:.0f} s"])


def scores(runs: Sequence[Figures], name: str) -> list[float]:
    """Returns one score of several runs; empty if they have none of that name."""
    return [run.scores[name] for run in runs if run.scores and name in run.scores]


def loss_ratio(ours: Sequence[Figures] | None, other: Sequence[Figures] | None, limit: float) -> str:
    """Returns the ratio of two models' mean losses, in bold where it is beyond the limit."""
    if not ours or not other:
        return ""
    ratio = statistics.mean(scores(ours, "loss")) / statistics.mean(scores(other, "loss"))
    return f"; {ratio:.3f}x" if ratio <= limit else f"; **{ratio:.3f}x**"


def summary(measured: Results) -> str:
    """Returns the README's table."""
    rows = []
    for contest in CONTESTS:
        rates = measured.rates(contest.name)
        if contest.name not in SUMMARIZED or not rates:
            continue
        ours = [
            f"**{shown(rate)} {contest.unit}/s**{name.removeprefix(OURS).replace(', ', ' ')}"
            for name, rate in rates.items()
            if name.startswith(OURS)
        ]
        bounds = [candidate.name for candidate in contest.candidates if candidate.bound]
        rivals = sorted(
            (rate, name) for name, rate in rates.items() if name not in bounds and not name.startswith(OURS)
        )
        ends = (f"{name}: {shown(rate)}" for rate, name in (rivals[-1], rivals[0]))
        rows.append((contest.title, ", ".join(ours), *ends, ", ".join(shown(rates[name]) for name in bounds)))
    return markdown("| work | Millrace | fastest other way | slowest | bound |", "|---|---|---|---|---|", rows)


def environment(measured: Results) -> str:
    """Describes the machine and the versions of the latest measurement, and when and under which load it ran."""
    described = {name: measured.conditions(name) for name in measured.contests}
    if not described:
        return NOT_MEASURED
    dates = sorted(conditions["date"] for conditions in described.values())
    last = next(conditions for conditions in described.values() if conditions["date"] == dates[-1])
    machine = "{processor}, {cores} cores, {memory}, {system}, Python {python}".format(**last)
    versions = ", ".join(f"{package} {last[package]}" for package in PACKAGES if package in last)
    loads = ", ".join(f"{name} {conditions['load']}" for name, conditions in described.items())
    return (
        f"{machine}; {versions}. Measured from {dates[0]} to {dates[-1]}. "
        f"Load average at the start of each contest (if it is high, compare CPU): {loads}."
    )


def blocks(measured: Results) -> dict[str, str]:
    """Returns the contents between the markers, by name."""
    return {
        **{contest.name: table(measured, contest) for contest in CONTESTS},
        "environment": environment(measured),
        "models": models(measured, [contest for contest in CONTESTS if contest.kind == "train"]),
        "summary": summary(measured),
    }


def fill(text: str, contents: dict[str, str]) -> str:
    """Replaces the text between `<!-- bench: NAME -->` and `<!-- /bench -->` in a page."""
    return re.sub(
        r"<!-- bench: (\w+) -->.*?<!-- /bench -->",
        lambda match: f"<!-- bench: {match[1]} -->\n{contents[match[1]]}\n<!-- /bench -->",
        text,
        flags=re.DOTALL,
    )


def draw(measured: Results) -> None:
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
            figure.savefig(PLOT_FOLDER / name, metadata={"Date": None})
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


def write(measured: Results) -> None:
    """Writes the tables into the pages, and the plots."""
    contents = blocks(measured)
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8"), contents), encoding="utf-8")
    draw(measured)


def main() -> int:
    """Writes tables and plots from the stored results."""
    write(load())
    return 0


if __name__ == "__main__":
    sys.exit(main())
