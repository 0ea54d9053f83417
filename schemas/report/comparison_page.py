"""Comparisons as a page of their own, which loads nothing."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from typing import Any

from schemas.report.data_report import environment
from schemas.report.drift import section

PAGE = "comparison.html"
EXPLAINED = (
    "The distance of strings is the greatest difference of one value's shares (L-infinity), that of numbers the "
    "Jensen-Shannon divergence over common ranges; both are from 0 to 1. Noise is what the distance is at most if "
    "nothing but chance is at work. Missing values are told apart."
)


def page(title: str, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The page.

    Args:
      title: its heading.
      comparisons: as `schemas.comparison.Comparison.as_json` has them.
    """
    from markupsafe import Markup

    jinja = environment()
    template = importlib.resources.files(__package__).joinpath(PAGE).read_text(encoding="utf-8")
    shown = Markup(section(comparisons, jinja))  # noqa: S704 - escaped where it was made
    return str(jinja.from_string(template).render(title=title, explained=EXPLAINED, drift=shown))
