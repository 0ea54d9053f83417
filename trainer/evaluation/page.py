"""A report as one HTML page that needs no network, its content as JSON, its pictures as PNG, drawn with Matplotlib."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from schemas import storage
from schemas.command import finite
from schemas.dataset import layout
from schemas.report.data_report import templates

Content = Mapping[str, Any]
BLUE, ORANGE, GREY, LIGHT = "#2563eb", "#ea580c", "#94a3b8", "#e2e8f0"
_COLORS = (
    BLUE,
    ORANGE,
    "#16a34a",
    "#9333ea",
    "#dc2626",
    "#0891b2",
    "#ca8a04",
    "#db2777",
    "#65a30d",
    "#475569",
    "#7c3aed",
    "#0d9488",
)
_STYLE = {
    "svg.fonttype": "none",  # text stays text: small, and in the page's font
    "svg.hashsalt": "millrace",  # so that the same figures give the same bytes
    "text.parse_math": False,  # a class may be called $5$
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": "#334155",
    "axes.labelcolor": "#475569",
    "axes.edgecolor": "#cbd5e1",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#f1f5f9",
    "xtick.color": "#64748b",
    "ytick.color": "#64748b",
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 2,
}
_NAME = 18  # characters of a class's name in a picture


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture that can be drawn.

    Attributes:
      paint: draws on a `matplotlib.figure.Figure`.
      size: width and height, in inches of 100 pixels.
      fitted: whether margins are fitted to the labels, which takes as long as drawing; else they are fixed.
    """

    paint: Callable[[Any], None]
    size: tuple[float, float] = (4.6, 3.8)
    fitted: bool = False

    @property
    def pixels(self) -> tuple[int, int, int]:
        """Height, width and channels of the PNG."""
        return round(100 * self.size[1]), round(100 * self.size[0]), 4

    def draw(self, *forms: str) -> dict[str, bytes]:
        """The picture as files of the given forms, 'svg' and 'png'."""
        import matplotlib as mpl
        from matplotlib.figure import Figure

        with mpl.rc_context(_STYLE):
            figure = Figure(figsize=self.size, dpi=100, layout="constrained" if self.fitted else None)
            self.paint(figure)
            if not self.fitted:
                width, height = self.size
                figure.subplots_adjust(0.72 / width, 0.55 / height, 1 - 0.12 / width, 1 - 0.36 / height, 0.28, 0.55)
            found = {}
            for form in forms:
                out = io.BytesIO()
                settings: dict[str, Any] = {"transparent": True, "metadata": {"Date": None}} if form == "svg" else {}
                figure.savefig(out, format=form, **settings)
                figure.set_layout_engine("none")  # it is laid out
                found[form] = out.getvalue()
        return found


def pictures(content: Content) -> dict[str, Picture]:
    """The pictures that an evaluation has, by name; without the confusion matrix, which the page has as a table."""
    found: dict[str, Picture] = {}
    curves = {name: c for name, c in content.get("curves", {}).items() if "roc" in c}
    if curves:
        found["roc"] = Picture(lambda figure: _roc(figure, curves))
        found["precision_recall"] = Picture(lambda figure: _precision_recall(figure, curves))
    if content.get("calibration", {}).get("weight"):
        found["calibration"] = Picture(lambda figure: _calibration(figure, content["calibration"]))
    if "thresholds" in content:
        found["thresholds"] = Picture(lambda figure: _thresholds(figure, content["thresholds"]))
    if "residuals" in content:
        found["predictions"] = Picture(lambda figure: _predictions(figure, content["rows_shown"]), fitted=True)
        found["residuals"] = Picture(lambda figure: _residuals(figure, content["residuals"]), fitted=True)
        found["groups"] = Picture(lambda figure: _groups(figure, content["groups"]), fitted=True)
    panels = content.get("learning_curves", {}).get("panels", [])
    if panels:
        across = min(3, len(panels))
        down = -(-len(panels) // across)
        found["learning_curves"] = Picture(lambda figure: _learning(figure, panels, across), (3.7 * across, 2.7 * down))
    return found


def all_pictures(content: Content) -> dict[str, Picture]:
    """The same with the confusion matrix."""
    confusion = content.get("confusion", {})
    if not confusion.get("matrix"):
        return pictures(content)
    matrix = confusion_picture(np.array(confusion["matrix"]), confusion["classes"], complete=confusion["complete"])
    return {"confusion_matrix": matrix, **pictures(content)}


def confusion_picture(matrix: np.ndarray, names: Sequence[str], *, complete: bool) -> Picture:
    """A confusion matrix, `[true, predicted]`: with names, and with numbers for up to 20 classes."""
    side = max(3.6, min(12.0, 1.6 + 0.42 * len(names)))

    def paint(figure: Any) -> None:
        axes = figure.add_subplot()
        shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1e-300)
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.grid(visible=False)
        axes.set_xticks(range(len(names)), [_short(name) for name in names], rotation=90 if len(names) > 3 else 0)
        axes.set_yticks(range(len(names)), [_short(name) for name in names])
        axes.set_xlabel("predicted")
        axes.set_ylabel("true")
        axes.set_title("Confusion matrix" if complete else f"The {len(names)} most confused classes")
        if len(names) <= 20:
            for i, j in np.ndindex(matrix.shape):
                color = "white" if shares[i, j] > 0.5 else "#334155"
                axes.text(j, i, compact(matrix[i, j]), ha="center", va="center", color=color, fontsize=8)

    return Picture(paint, (side + 0.6, side), fitted=True)


def compact(number: float) -> str:
    """A count in few characters: 950, 12k, 3.4M."""
    if abs(number) < 1000:
        return f"{number:.3g}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{letter}" if abs(number) < 999.5 * size else f"{number / size:.0f}{letter}"
    return f"{number:.0f}"


def _short(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _unit_square(figure: Any, title: str, x: str, y: str) -> Any:
    axes = figure.add_subplot()
    axes.set(title=title, xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return axes


def _roc(figure: Any, curves: Content) -> None:
    axes = _unit_square(figure, "ROC curve", "false positive rate", "true positive rate")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    for color, (name, curve) in zip(_COLORS, curves.items(), strict=False):
        x, y = curve["roc"]["false_positive_rate"], curve["roc"]["true_positive_rate"]
        axes.plot(x, y, color=color, label=f"{_short(name)}  {curve['auc']:.3f}")
    axes.legend(loc="lower right", title="area" if len(curves) > 1 else None)


def _precision_recall(figure: Any, curves: Content) -> None:
    axes = _unit_square(figure, "Precision and recall", "recall", "precision")
    for color, (name, curve) in zip(_COLORS, curves.items(), strict=False):
        pair = curve["precision_recall"]
        label = f"{_short(name)}  {curve['average_precision']:.3f}"
        axes.plot(pair["recall"], pair["precision"], color=color, label=label)
        if len(curves) == 1:
            axes.axhline(curve["share"], color=GREY, linewidth=1, linestyle="--")
    axes.legend(loc="lower left")


def _calibration(figure: Any, content: Content) -> None:
    axes = _unit_square(figure, "Calibration", content["of"], "share of rows for which it holds")
    weight = np.array(content["weight"])
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    axes.bar(content["mean_probability"], weight / weight.max() * 0.25, width=0.05, color=LIGHT)
    axes.plot(content["mean_probability"], content["share"], color=BLUE, marker="o", markersize=5)
    axes.xaxis.label.set_text(_short(content["of"], 46))


def _thresholds(figure: Any, content: Content) -> None:
    axes = _unit_square(figure, "Decision threshold", "threshold", "")
    rows = content["table"]
    for color, name in zip((BLUE, ORANGE, GREY), ("precision", "recall", "f1"), strict=True):
        known = [row for row in rows if row[name] is not None]  # none, where every probability is below the thresholds
        x, y = [row["threshold"] for row in known], [row[name] for row in known]
        axes.plot(x, y, color=color, label="F1" if name == "f1" else name)
    axes.axvline(content["best_f1"]["threshold"], color=GREY, linewidth=1, linestyle=":")
    axes.legend(loc="lower center", ncols=3)


def _predictions(figure: Any, rows: Content) -> None:
    axes = figure.add_subplot()
    axes.set(title="Predictions", xlabel="label", ylabel="prediction")
    ends = [min(*rows["label"], *rows["prediction"]), max(*rows["label"], *rows["prediction"])]
    axes.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
    axes.scatter(rows["label"], rows["prediction"], s=6, color=BLUE, alpha=0.35, linewidths=0)


def _residuals(figure: Any, content: Content) -> None:
    axes = figure.add_subplot()
    axes.set(title="Residuals", xlabel="prediction minus label", ylabel="rows")
    axes.stairs(content["counts"], content["edges"], fill=True, color=BLUE, alpha=0.75)
    axes.axvline(0, color=GREY, linewidth=1, linestyle="--")


def _groups(figure: Any, groups: Sequence[Content]) -> None:
    axes = figure.add_subplot()
    axes.set(title="Mean label by prediction", xlabel="mean prediction of a tenth of the rows", ylabel="mean label")
    x, y = [group["mean_prediction"] for group in groups], [group["mean_label"] for group in groups]
    ends = [min(*x, *y), max(*x, *y)] if len(x) > 1 else [min(x[0], y[0]), max(x[0], y[0])]
    axes.plot(ends, ends, color=GREY, linewidth=1, linestyle="--")
    axes.plot(x, y, color=BLUE, marker="o", markersize=5)


MARKED = 50  # evaluations of which each is a dot


def _learning(figure: Any, panels: Sequence[Content], across: int) -> None:
    for place, panel in enumerate(panels):
        axes = figure.add_subplot(-(-len(panels) // across), across, place + 1)
        few = {"marker": "o", "markersize": 4} if len(panel["steps"]) <= MARKED else {}
        axes.plot(panel["steps"], panel["values"], color=BLUE, **few)
        if panel.get("train"):
            axes.plot(panel["steps"], panel["train"], color=GREY, linewidth=1, label="train")
            axes.legend()
        if panel["best"] is not None:
            axes.plot([panel["best"]], [panel["values"][panel["steps"].index(panel["best"])]], "o", color=ORANGE)
        axes.set_title(panel["metric"])
        axes.set_xlabel("round" if "by round" in panel["metric"] else "step")
        axes.margins(x=0.06, y=0.15)


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
      content: see `trainer.evaluation.report`. NaN and infinity become null.
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
      template: its file, which extends `base.html` of this package.
      drawn: pictures by name, as SVG, which the template has as `figures`.
      **values: what else it has. Their text is escaped.
    """
    figures = {name: _inline(name, svg.decode()) for name, svg in drawn.items()}
    page: str = _environment(package).get_template(template).render(figures=figures, **values)
    return page


@functools.cache
def _environment(package: str) -> Any:
    """The package's templates: a training writes a page at each evaluation."""
    return templates(package, __package__, number=number, percent=percent, count=count, words=words)


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
