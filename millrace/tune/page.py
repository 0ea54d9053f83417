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
from schemas.report.charts import Axis, Chart, Dots, Line, Mark, Text, short
from schemas.report.drawing import Tone
from trainer.evaluation.page import render


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


_MOST_CHOICES = 12  # whose names fit below a chart


def charts(results: Results, parameters: Sequence[Parameter]) -> dict[str, Chart]:
    """The charts, by name; none where no trial has a value."""
    measured = [trial for trial in results.trials if trial.value is not None]
    if not measured:
        return {}
    found = {"history": _history(results, measured), "evaluations": _evaluations(results)}
    found |= {f"by {parameter.name}": _by_parameter(results, measured, parameter) for parameter in parameters}
    if len(parameters) > 1:
        found["parallel"] = _parallel(results, measured, parameters)
    return found


def _history(results: Results, measured: Sequence[Trial]) -> Chart:
    marks: list[Mark] = []
    for done, tone, name in ((True, 0, "done"), (False, "soft", "pruned or failed")):
        some = [trial for trial in measured if (trial.state == DONE) == done]
        if some:
            marks.append(Dots([t.number for t in some], [t.value or 0.0 for t in some], tone, name))
    best: list[tuple[int, float]] = []
    choose = max if results.higher else min
    for trial in measured:
        if trial.state == DONE and trial.value is not None:
            if best:
                best.append((trial.number, best[-1][1]))
            best.append((trial.number, choose(trial.value, best[-1][1]) if best else trial.value))
    if best:
        marks.append(Line([trial for trial, _ in best], [value for _, value in best], 1, "best so far"))
    return Chart("Trials, one after another", marks, Axis("trial", whole=True), Axis(results.metric))


def _evaluations(results: Results) -> Chart:
    marks = []
    for trial in sorted(results.trials, key=lambda trial: _rank(results, trial)):
        if trial.evaluations:
            marks.append(Line([*trial.evaluations], [*trial.evaluations.values()], _tone(results, trial), dots=True))
    return Chart("Evaluations", marks, Axis("step", whole=True), Axis(results.metric))


def _by_parameter(results: Results, measured: Sequence[Trial], parameter: Parameter) -> Chart:
    choices = _choices(parameter)
    axis = Axis(log=parameter.scale in (LOG, REVERSE_LOG))
    if choices:
        ends = -0.5, len(choices) - 0.5
        axis = Axis("", *ends, [(place, short(choice)) for place, choice in enumerate(choices)])
    marks = [
        Dots(
            [_position(parameter, trial)],
            [trial.value or 0.0],
            _tone(results, trial),
            radius=5 if trial == results.best else 3.5,
        )
        for trial in sorted(measured, key=lambda trial: _rank(results, trial))
    ]
    return Chart(parameter.name, marks, axis, Axis(results.metric))


def _rank(results: Results, trial: Trial) -> int:
    """Its place from the back to the front of a chart."""
    return 2 if trial == results.best else int(trial.state == DONE)


def _tone(results: Results, trial: Trial) -> Tone:
    return ("soft", 0, 1)[_rank(results, trial)]


def _parallel(results: Results, measured: Sequence[Trial], parameters: Sequence[Parameter]) -> Chart:
    """A line for each trial, across an axis for each hyper-parameter and one for the metric."""
    import numpy as np

    values = np.array([trial.value for trial in measured], float)
    columns = [np.array([_position(p, t) for t in measured], float) for p in parameters]
    logarithmic = [p.scale in (LOG, REVERSE_LOG) for p in parameters]
    scaled = [_scaled(np.log(c) if log else c) for c, log in zip(columns, logarithmic, strict=True)] + [_scaled(values)]
    lines = np.stack(scaled, axis=1)
    order = np.argsort(values if results.higher else -values)  # the best on top
    marks: list[Mark] = [Line([place, place], [0, 1], "pale") for place in range(lines.shape[1])]
    for rank, index in enumerate(order):
        opacity = 0.25 + 0.75 * (rank + 1) / len(order)
        marks.append(Line(range(lines.shape[1]), lines[index], _tone(results, measured[index]), opacity=opacity))
    ends = []
    for parameter, column in zip(parameters, columns, strict=True):
        choices = _choices(parameter)
        sides = (column.min(), column.max())
        ends.append([short(choices[int(end)], 12) if choices else f"{end:.3g}" for end in sides])
    for place, (low, high) in enumerate([*ends, [f"{values.min():.4g}", f"{values.max():.4g}"]]):
        marks += [Text(place, -0.09, low), Text(place, 1.08, high)]
    names = [(place, name) for place, name in enumerate([*(p.name for p in parameters), results.metric])]
    edge = lines.shape[1] - 0.6
    return Chart(
        "All at once", marks, Axis("", -0.4, edge, names), Axis("", -0.16, 1.16, []), (100 + 70 * len(names), 260)
    )


def _scaled(values: Any) -> Any:
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


FILE = "report.html"
_TEMPLATE = "page.html"


def write_page(results: Results, parameters: Sequence[Parameter]) -> str:
    """Writes `report.html` into the study's folder. Returns its path.

    Args:
      results: what the study has found.
      parameters: what was searched.
    """
    links = {trial.number: _report_of(results.study, trial.number) for trial in results.trials}
    text = render(
        __package__,
        _TEMPLATE,
        charts(results, parameters),
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
