"""The trials of a study as a table, as JSON, and as its page: one HTML file that loads nothing.

Its pictures show the metric by trial, by each hyper-parameter, and by all of them at once.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Sequence
from typing import Any

from millrace.tune.records import DONE, PRUNED, Trial
from millrace.tune.space import CATEGORICAL, DISCRETE, LOG, REVERSE_LOG, Parameter
from millrace.tune.study import described, trial_dir
from schemas import storage
from schemas.command import duration
from trainer.evaluation.page import BLUE, GREY, LIGHT, ORANGE, Picture, render


@dataclasses.dataclass(frozen=True)
class Results:
    """What a study has found.

    Attributes:
      study: its folder.
      metric: the name of the metric.
      higher: whether its larger value is the better one.
      trials: all trials, by number.
      best: the best of those that are done; None where none is.
      command: what trains the best one again; empty where there is none.
      ended: why the study has ended.
      page: where the trials are shown.
    """

    study: str
    metric: str
    higher: bool
    trials: Sequence[Trial]
    best: Trial | None
    command: Sequence[str]
    ended: str
    page: str

    @property
    def ranked(self) -> list[Trial]:
        """The trials, the best first; then those that were pruned, and those that have no value."""
        order = {DONE: 0, PRUNED: 1}
        sign = -1 if self.higher else 1
        return sorted(
            self.trials,
            key=lambda trial: (
                order.get(trial.state, 2),
                sign * trial.value if trial.value is not None else 0.0,
                trial.number,
            ),
        )

    def as_json(self) -> dict[str, Any]:
        """It for --json."""
        return {
            "study": self.study,
            "metric": self.metric,
            "goal": "maximize" if self.higher else "minimize",
            "ended": self.ended,
            "best": None if self.best is None else dataclasses.asdict(self.best),
            "command": list(self.command),
            "report": self.page,
            "trials": [dataclasses.asdict(trial) for trial in self.trials],
        }

    def table(self) -> str:
        """The trials, a line each, the best first."""
        names = list(dict.fromkeys(name for trial in self.trials for name in trial.values))
        rows = [["trial", "state", self.metric, "step", "time", *names]]
        for trial in self.ranked:
            found = ["", ""] if trial.value is None else [f"{trial.value:.5g}", f"{trial.step:,}"]
            took = duration(trial.seconds) if trial.ended else ""
            rows.append([str(trial.number), trial.state, *found, took, *(trial.values.get(name, "") for name in names)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        told = [f"trial {t.number} {described(t, self.metric)}" for t in self.trials if t.why and t.state != PRUNED]
        return "\n".join([*lines, *told])


_MOST_CHOICES = 12  # whose names fit below a picture
_LABEL = 16  # characters of a choice in a picture


def pictures(results: Results, parameters: Sequence[Parameter]) -> dict[str, Picture]:
    """The pictures, by name; none where no trial has a value."""
    measured = [trial for trial in results.trials if trial.value is not None]
    if not measured:
        return {}
    down = -(-len(parameters) // 3)
    across = min(3, len(parameters))
    found = {
        "history": Picture(lambda figure: _history(figure, results, measured), (5.6, 3.4), fitted=True),
        "evaluations": Picture(lambda figure: _evaluations(figure, results), (5.6, 3.4), fitted=True),
        "parameters": Picture(
            lambda figure: _parameters(figure, results, measured, parameters, across),
            (3.7 * across, 3.0 * down),
            fitted=True,
        ),
    }
    if len(parameters) > 1:
        size = (max(6.0, 2.0 * (len(parameters) + 1)), 3.8)
        found["parallel"] = Picture(lambda figure: _parallel(figure, results, measured, parameters), size, fitted=True)
    return found


def _history(figure: Any, results: Results, measured: Sequence[Trial]) -> None:
    axes = figure.add_subplot()
    axes.set(title="Trials, one after another", xlabel="trial", ylabel=results.metric)
    for done, color, label in ((True, BLUE, "done"), (False, GREY, "pruned or failed")):
        some = [trial for trial in measured if (trial.state == DONE) == done]
        if some:
            axes.scatter([t.number for t in some], [t.value for t in some], s=24, color=color, label=label)
    best: list[tuple[int, float]] = []
    choose = max if results.higher else min
    for trial in measured:
        if trial.state == DONE and trial.value is not None:
            best.append((trial.number, choose(trial.value, best[-1][1]) if best else trial.value))
    if best:
        axes.step(*zip(*best, strict=True), where="post", color=ORANGE, label="best so far")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend()


def _evaluations(figure: Any, results: Results) -> None:
    axes = figure.add_subplot()
    axes.set(title="Evaluations", xlabel="step", ylabel=results.metric)
    for trial in results.trials:
        if trial.evaluations:
            color = _color(results, trial)
            above = (GREY, BLUE, ORANGE).index(color) + 1
            style = {"color": color, "zorder": above, "marker": "o", "markersize": 3, "linewidth": 1.2}
            axes.plot([*trial.evaluations], [*trial.evaluations.values()], **style)


def _parameters(
    figure: Any, results: Results, measured: Sequence[Trial], parameters: Sequence[Parameter], across: int
) -> None:
    for place, parameter in enumerate(parameters):
        axes = figure.add_subplot(-(-len(parameters) // across), across, place + 1)
        axes.set(title=parameter.name, ylabel=results.metric if place % across == 0 else "")
        choices = _choices(parameter)
        _points(axes, results, [(_position(parameter, trial), trial) for trial in measured])
        if choices:
            axes.set_xticks(range(len(choices)), [_short(choice) for choice in choices], rotation=30, ha="right")
            axes.margins(x=0.2)
        elif parameter.scale in (LOG, REVERSE_LOG):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter(lambda value, place: f"{value:g}")
            axes.xaxis.set_minor_formatter(lambda value, place: "")


def _color(results: Results, trial: Trial) -> str:
    return ORANGE if trial == results.best else BLUE if trial.state == DONE else GREY


def _points(axes: Any, results: Results, places: Sequence[tuple[float, Trial]]) -> None:
    for place, trial in places:
        size = 34 if trial == results.best else 20
        axes.scatter([place], [trial.value], s=size, color=_color(results, trial), alpha=0.8)


def _parallel(figure: Any, results: Results, measured: Sequence[Trial], parameters: Sequence[Parameter]) -> None:
    """A line for each trial, across an axis for each hyper-parameter and one for the metric."""
    import numpy as np

    axes = figure.add_subplot()
    values = np.array([trial.value for trial in measured], float)
    columns = [np.array([_position(p, t) for t in measured], float) for p in parameters]
    logarithmic = [p.scale in (LOG, REVERSE_LOG) for p in parameters]
    scaled = [_unit(np.log(c) if log else c) for c, log in zip(columns, logarithmic, strict=True)] + [_unit(values)]
    lines = np.stack(scaled, axis=1)
    order = np.argsort(values if results.higher else -values)  # the best on top
    for rank, index in enumerate(order):
        color = _color(results, measured[index])
        axes.plot(lines[index], color=color, alpha=0.25 + 0.75 * (rank + 1) / len(order), linewidth=1.5)
    for place in range(lines.shape[1]):
        axes.axvline(place, color=LIGHT, linewidth=1.5, zorder=0)
    for place, (parameter, column) in enumerate(zip(parameters, columns, strict=True)):
        choices = _choices(parameter)
        ends = [f"{column.min():.3g}", f"{column.max():.3g}"]
        if choices:
            ends = [_short(choices[int(end)]) for end in (column.min(), column.max())]
        _ends(axes, place, ends)
    _ends(axes, len(parameters), [f"{values.min():.4g}", f"{values.max():.4g}"])
    axes.set(title="All at once", ylim=(-0.14, 1.14), yticks=[])
    axes.set_xticks(range(lines.shape[1]), [*(p.name for p in parameters), results.metric])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.margins(x=0.06)


def _ends(axes: Any, place: float, ends: Sequence[str]) -> None:
    for height, text, side in ((-0.04, ends[0], "top"), (1.04, ends[1], "bottom")):
        axes.text(place, height, text, ha="center", va=side, fontsize=8)


def _unit(values: Any) -> Any:
    """Scaled to 0 to 1; the middle where all are equal."""
    width = values.max() - values.min()
    return (values - values.min()) / width if width > 0 else values * 0 + 0.5


def _choices(parameter: Parameter) -> Sequence[str]:
    """The values that stand at equal distances, by their names; none of a range."""
    few = parameter.kind in (CATEGORICAL, DISCRETE) and len(parameter.values) <= _MOST_CHOICES
    return parameter.values if few or parameter.kind == CATEGORICAL else ()


def _position(parameter: Parameter, trial: Trial) -> float:
    """Where a trial's value stands on the axis of a hyper-parameter."""
    value = trial.values[parameter.name]
    choices = _choices(parameter)
    return choices.index(value) if choices else float(value)


def _short(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


FILE = "report.html"
_TEMPLATE = "page.html"


def write_page(results: Results, parameters: Sequence[Parameter]) -> str:
    """Writes `report.html` into the study's folder. Returns its path.

    Args:
      results: what the study has found.
      parameters: what was searched.
    """
    drawn = {name: picture.draw("svg")["svg"] for name, picture in pictures(results, parameters).items()}
    links = {trial.number: _report_of(results.study, trial.number) for trial in results.trials}
    text = render(
        __package__,
        _TEMPLATE,
        drawn,
        results=results,
        parameters=parameters,
        links=links,
        command=shlex.join(results.command),
        duration=duration,
    )
    path = storage.join(results.study, FILE)
    storage.write_bytes(path, text.encode())
    return path


def _report_of(study: str, number: int) -> str | None:
    """A trial's own report, relative to the page; None if it has none."""
    folder = trial_dir(study, number)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [name for name in names if name.startswith("report-") and name.endswith(".html")]
    return os.path.relpath(os.path.join(folder, found[0]), study) if found else None
