"""Writes a report beside the metrics: one HTML page that needs no network, its content as JSON, its pictures as PNG."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas import storage
from schemas.dataset import layout
from trainer.report.figures import all_pictures, pictures

if TYPE_CHECKING:
    import jinja2

PAGE = "page.html"
NO_VALUE = "\N{EN DASH}"


def page_path(model_dir: str, split: str) -> str:
    """Where the page of a split's report is."""
    return layout.join(model_dir, f"report-{split}.html")


def write_report(
    model_dir: str, split: str, content: Mapping[str, Any], drawn: Mapping[str, Mapping[str, bytes]] | None = None
) -> str:
    """Writes `report-<split>.html`, `report-<split>.json` and, in the folder `report-<split>`, PNGs.

    Args:
      model_dir: a folder on local disk or `gs://`.
      split: the split that was evaluated.
      content: see `trainer.report.model_report`. NaN and infinity become null.
      drawn: its pictures, as `draw_all` gives them; None: draw those of the page, and write no PNGs.

    Returns:
      The page's path.
    """
    content = finite(content)
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    storage.write_bytes(layout.join(model_dir, f"report-{split}.json"), text.encode() + b"\n")
    for name, files in (drawn or {}).items():
        storage.write_bytes(layout.join(model_dir, f"report-{split}", f"{name}.png"), files["png"])
    if drawn is None:
        drawn = {name: picture.draw("svg") for name, picture in pictures(content).items()}
    path = page_path(model_dir, split)
    storage.write_bytes(path, page(content, {name: files["svg"] for name, files in drawn.items()}).encode())
    return path


def draw_all(content: Mapping[str, Any]) -> dict[str, dict[str, bytes]]:
    """All pictures of a report, as SVG and as PNG, by name."""
    return {name: picture.draw("svg", "png") for name, picture in all_pictures(finite(content)).items()}


def page(content: Mapping[str, Any], drawn: Mapping[str, bytes]) -> str:
    """The page. Everything that comes from data is escaped; the page loads nothing and sends nothing.

    Args:
      content: what `finite` gives.
      drawn: its pictures, as SVG.
    """
    return render(__package__, PAGE, drawn, content=content)


def render(package: str, template: str, drawn: Mapping[str, bytes], **values: Any) -> str:
    """A page from its template.

    Args:
      package: the package that the template lies in.
      template: its file.
      drawn: pictures by name, as SVG, which the template has as `figures`.
      **values: what else it has. Their text is escaped.
    """
    figures = {name: _inline(name, svg.decode()) for name, svg in drawn.items()}
    return _compiled(package, template).render(figures=figures, **values)


@functools.cache
def _compiled(package: str, template: str) -> jinja2.Template:
    """A template, compiled once: a training writes a page at each evaluation."""
    import importlib.resources

    import jinja2

    text = importlib.resources.files(package).joinpath(template).read_text(encoding="utf-8")
    undefined = jinja2.StrictUndefined
    environment = jinja2.Environment(autoescape=True, undefined=undefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "percent": percent, "count": count, "words": words}
    return environment.from_string(text)


def _inline(name: str, svg: str) -> str:
    """An SVG as it stands in a page: without a head, its ids apart from those of others. Matplotlib escapes text."""
    return re.sub(r'(id="|"#|url\(#)', rf"\1{name}-", svg[svg.index("<svg") :])


def number(value: float | None) -> str:
    """A metric, in four digits; a dash where there is none."""
    if value is None:
        return NO_VALUE
    return f"{value:.4f}" if 0.001 <= abs(value) < 10 else f"{value:,.4g}" if abs(value) < 1e5 else f"{value:.3e}"


def percent(value: float | None) -> str:
    """A share."""
    return NO_VALUE if value is None else f"{100 * value:.1f} %"


def count(value: float | None) -> str:
    """A number of rows, or the sum of their weights."""
    return NO_VALUE if value is None else f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def words(name: str) -> str:
    """The name of a metric, in words."""
    return (
        name.replace("_", " ")
        .replace("auc", "AUC")
        .replace(" f1", " F1")
        .replace("r2", "R²")
        .replace("brier", "Brier")
        .replace("matthews", "Matthews")
    )


def finite(value: Any) -> Any:
    """The same with None for NaN and infinity, which JSON cannot hold, and plain numbers for NumPy's."""
    match value:
        case Mapping():
            return {str(name): finite(held) for name, held in value.items()}
        case list() | tuple():
            return [finite(held) for held in value]
        case np.generic():
            return finite(value.item())
        case float():
            return value if math.isfinite(value) else None
        case _:
            return value
