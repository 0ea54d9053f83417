"""The page of a study: one HTML file that loads nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from schemas import storage
from schemas.command import duration
from trainer.report.write import render
from trainer.tuning.figures import pictures
from trainer.tuning.results import Results
from trainer.tuning.space import Parameter
from trainer.tuning.study import trial_dir

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
