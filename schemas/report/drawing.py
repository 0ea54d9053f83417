"""What charts are drawn with: paths, dots and words, in pixels from the top left corner. Written as SVG, and as PNG.

The SVG has no colours of its own: its elements have classes that `base.html` gives light and dark ones.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Sequence
from typing import Literal

from markupsafe import escape

Tone = int | str  # a series from 0 on, 'soft', 'pale' or 'ink'
PAIRS = (  # in the light, and in the dark
    ("#2563eb", "#60a5fa"),
    ("#ea580c", "#fb923c"),
    ("#16a34a", "#4ade80"),
    ("#9333ea", "#c084fc"),
    ("#dc2626", "#f87171"),
    ("#0891b2", "#22d3ee"),
    ("#ca8a04", "#facc15"),
    ("#db2777", "#f472b6"),
    ("#65a30d", "#a3e635"),
    ("#475569", "#94a3b8"),
    ("#7c3aed", "#a78bfa"),
    ("#0d9488", "#2dd4bf"),
)
COLORS = [light for light, _ in PAIRS]
_OTHERS = {
    "soft": "#64748b",
    "pale": "#cbd5e1",
    "ink": "#0f172a",
    "grid": "#e2e8f0",
    "axis": "#94a3b8",
    "white": "#ffffff",
}
LETTER = 6.9  # the width of a letter
_FONT = 11.5
_SIDES: dict[str, Literal["left", "center", "right"]] = {"start": "left", "middle": "center", "end": "right"}


@dataclasses.dataclass(frozen=True)
class Path:
    """Points that are joined by a line of a `width`, or that enclose an area; a `title` shows under the pointer."""

    points: Sequence[tuple[float, float]]
    tone: Tone
    width: float | None = None
    opacity: float = 1.0
    dashed: bool = False
    title: str = ""


@dataclasses.dataclass(frozen=True)
class Dot:
    """A dot around a place."""

    x: float
    y: float
    radius: float
    tone: Tone
    opacity: float


@dataclasses.dataclass(frozen=True)
class Words:
    """A text whose `anchor`, its start, middle or end, stands on a place; `turned`: it reads upwards."""

    x: float
    y: float
    text: str
    anchor: str = "start"
    tone: Tone = "soft"
    bold: bool = False
    turned: bool = False


Shape = Path | Dot | Words


def box(left: float, top: float, right: float, bottom: float, tone: Tone, opacity: float, title: str = "") -> Path:
    """A filled rectangle."""
    return Path([(left, top), (right, top), (right, bottom), (left, bottom)], tone, None, opacity, title=title)


def svg(shape: Shape) -> str:
    """A shape as an element of SVG. Texts are escaped."""
    look = f'class="s{shape.tone}"'
    if isinstance(shape, Words):
        at = f'x="{shape.x:.1f}" y="{shape.y:.1f}" text-anchor="{shape.anchor}"'
        more = (' font-weight="600"' if shape.bold else "") + (
            f' transform="rotate(-90 {shape.x:.1f} {shape.y:.1f})"' if shape.turned else ""
        )
        return f"<text {look} {at}{more}>{escape(shape.text)}</text>"
    if shape.opacity < 1:
        look += f' opacity="{shape.opacity:.2f}"'
    if isinstance(shape, Dot):
        return f'<circle {look} cx="{shape.x:.1f}" cy="{shape.y:.1f}" r="{shape.radius:g}"/>'
    look += f' points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)}"'
    if shape.width is not None:
        dashes = ' stroke-dasharray="4 3"' if shape.dashed else ""
        return f'<polyline {look} stroke-width="{shape.width:g}"{dashes}/>'
    return f"<polygon {look}><title>{escape(shape.title)}</title></polygon>" if shape.title else f"<polygon {look}/>"


def png(shapes: Iterable[Shape], width: int, height: int) -> bytes:
    """Shapes as a PNG of twice as many pixels, on white."""
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle, Polygon
    from matplotlib.text import Text
    from matplotlib.transforms import Affine2D

    figure = Figure(figsize=(width / 100, height / 100), dpi=200)
    from_top = Affine2D().scale(2, -2).translate(0, 2 * height)  # Matplotlib's origin is at the bottom
    for order, shape in enumerate(shapes):
        color = COLORS[shape.tone % len(COLORS)] if isinstance(shape.tone, int) else _OTHERS[shape.tone]
        artist: Artist
        if isinstance(shape, Words):
            artist = Text(
                shape.x,
                shape.y,
                shape.text,
                color=color,
                fontsize=0.66 * _FONT,
                fontweight="bold" if shape.bold else "normal",
                horizontalalignment=_SIDES[shape.anchor],
                rotation=90 if shape.turned else 0,
                rotation_mode="anchor",
                parse_math=False,  # $5$ is a name
            )
        elif isinstance(shape, Dot):
            place = shape.x, shape.y
            artist = Circle(place, shape.radius, facecolor=color, alpha=shape.opacity, edgecolor="none")
        elif not shape.points:
            continue
        elif shape.width is None:
            artist = Polygon(shape.points, facecolor=color, alpha=shape.opacity, edgecolor="none")
        else:
            x, y = zip(*shape.points, strict=True)
            style = "--" if shape.dashed else "-"
            artist = Line2D(x, y, color=color, linewidth=0.72 * shape.width, linestyle=style, alpha=shape.opacity)
        artist.set(transform=from_top, zorder=order)
        figure.add_artist(artist)
    out = io.BytesIO()
    figure.savefig(out, format="png")
    return out.getvalue()
