"""Charts: described once, by marks in the units of their axes; drawn as SVG in the colours of a page, and as PNG.

The SVG has no colours of its own: its elements have classes that `base.html` gives light and dark ones.
"""

from __future__ import annotations

import dataclasses
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

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
_OTHERS = {"soft": "#64748b", "pale": "#cbd5e1", "ink": "#0f172a"}
_FONT, _LETTER = 11.5, 6.9  # the size of text, and the width of a letter
_NAME = 18  # characters of a name that are shown
_LIMIT = 8e307  # beyond it, differences overflow


def short(name: str, most: int = _NAME) -> str:
    """The beginning of a name."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


@dataclasses.dataclass(frozen=True)
class Line:
    """Points `(x, y)` that are joined.

    Attributes:
      dots: whether each point is marked, too.
      dashed: thin and dashed, for what others are compared with.
      filled: whether the area below it is coloured.
    """

    x: Sequence[float]
    y: Sequence[float]
    tone: Tone = 0
    name: str = ""
    dots: bool = False
    dashed: bool = False
    filled: bool = False
    opacity: float = 1.0


@dataclasses.dataclass(frozen=True)
class Dots:
    """Points that are not joined."""

    x: Sequence[float]
    y: Sequence[float]
    tone: Tone = 0
    name: str = ""
    radius: float = 4.0
    opacity: float = 0.85


@dataclasses.dataclass(frozen=True)
class Bars:
    """Rectangles `(left, right, bottom, top)`; `opacity` of each, or 0.75; `titles` show under the pointer."""

    sides: Sequence[tuple[float, float, float, float]]
    tone: Tone = 0
    name: str = ""
    opacity: Sequence[float] = ()
    titles: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Rule:
    """A thin dashed line across the chart, at `x` or at `y`."""

    x: float | None = None
    y: float | None = None


@dataclasses.dataclass(frozen=True)
class Text:
    """A text in the middle of a place; `inverse`: on a dark cell."""

    x: float
    y: float
    text: str
    inverse: bool = False


Mark = Line | Dots | Bars | Rule | Text


def stairs(edges: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The outline of a histogram: float `[2 * bins + 2]` each, x and y."""
    x = [edge for edge in edges for _ in range(2)]
    return x, [0.0, *(value for value in values for _ in range(2)), 0.0]


@dataclasses.dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
      label: what it shows.
      low, high: its ends; None: those of the marks, and some space.
      ticks: places with a text of their own; None: round numbers.
      log: whether it is logarithmic.
      whole: whether only whole numbers are marked.
      percent: whether shares are marked as percents.
    """

    label: str = ""
    low: float | None = None
    high: float | None = None
    ticks: Sequence[tuple[float, str]] | None = None
    log: bool = False
    whole: bool = False
    percent: bool = False


UNIT = Axis(low=-0.02, high=1.02)


@dataclasses.dataclass(frozen=True)
class _Scale:
    axis: Axis
    low: float
    high: float
    start: float  # pixels
    stop: float

    def __call__(self, value: float) -> float:
        value = math.log10(max(value, 1e-300)) if self.axis.log else min(max(value, -_LIMIT), _LIMIT)
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Pixels and texts."""
        if self.axis.ticks is not None:
            return [(self(value), text) for value, text in self.axis.ticks]
        if self.axis.log:
            factors = (1,) if self.high - self.low > 2 else (1, 2, 5)
            powers = range(math.floor(self.low), math.ceil(self.high) + 1)
            values = [factor * 10.0**power for power in powers for factor in factors]
            values = [value for value in values if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9]
            return [
                (self(value), compact(value) if value >= 10_000 else f"{value:g}")
                for value in values[:: -(-len(values) // most) or 1]
            ]
        step = _step((self.high - self.low) / most, whole=self.axis.whole)
        places = range(math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9) + 1)
        found = {tick_text(place * step, step, percent=self.axis.percent): self(place * step) for place in places}
        return [(at, text) for text, at in found.items()]


def _step(least: float, *, whole: bool) -> float:
    """The least round number that is no less."""
    least = max(least, 1.0 if whole else 1e-300)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least * (1 - 1e-9))


def tick_text(value: float, step: float, *, percent: bool = False) -> str:
    """A number beside an axis, in as many digits as its step needs."""
    if percent:
        return f"{100 * value:.{max(0, -math.floor(math.log10(100 * step) + 1e-9))}f} %"
    largest = max(abs(value), step)
    if largest >= 10_000:
        return compact(value)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.0e}" if digits > 5 and value else f"{value + 0.0:,.{min(digits, 6)}f}" if value else "0"


def compact(number: float) -> str:
    """A number in few characters: 950, 12k, 3.4M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 0.9995 * size <= abs(number) < 0.9995e12:  # rounded, it has four digits
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


@dataclasses.dataclass(frozen=True)
class Chart:
    """A chart. `size`: width and height in the pixels of a narrow page, where its text is not scaled down."""

    title: str
    marks: Sequence[Mark]
    x: Axis = Axis()
    y: Axis = Axis()
    size: tuple[int, int] = (340, 250)

    def svg(self) -> str:
        """The chart as an element of a page. Texts are escaped."""
        width, height = self.size
        sink = _Svg()
        self._paint(sink)
        title = str(escape(self.title))
        head = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{title}"'
        return f'{head} style="max-width: {1.6 * width:.0f}px">{"".join(sink.parts)}</svg>'

    @property
    def pixels(self) -> tuple[int, int, int]:
        """Height, width and channels of the PNG."""
        return 2 * self.size[1], 2 * self.size[0], 4

    def png(self) -> bytes:
        """The chart as a PNG, on white."""
        from matplotlib.figure import Figure

        width, height = self.size
        figure = Figure(figsize=(width / 100, height / 100), dpi=200)
        self._paint(_Png(figure, height))
        out = io.BytesIO()
        figure.savefig(out, format="png")
        return out.getvalue()

    def _legend(self) -> list[tuple[Mark, str]]:
        return [
            (mark, short(mark.name, 34)) for mark in self.marks if isinstance(mark, Line | Dots | Bars) and mark.name
        ]

    def _paint(self, sink: _Svg | _Png) -> None:
        width, height = self.size
        top = 8.0
        if self.title:
            sink.text(0, 13, short(self.title, int(width / _LETTER)), bold=True, tone="ink")
            top = 24.0
        at = 0.0
        legend = self._legend()
        for place, (mark, name) in enumerate(legend):
            wide = 20 + _LETTER * len(name)
            if (at and at + wide > width) or not place:
                at, top = 0.0, top + 16
            sink.rect(at, top - 13, 10, 10, mark.tone, 0.9)  # type: ignore[union-attr]
            sink.text(at + 14, top - 4, name)
            at += wide
        top += 8
        (x_low, x_high), (y_low, y_high) = (
            _ends(self.marks, axis, place) for place, axis in enumerate((self.x, self.y))
        )
        bottom = height - (36.0 if self.x.label else 20.0)
        turned = bool(self.x.ticks) and sum(len(text) + 2 for _, text in self.x.ticks or ()) * _LETTER > width - 50
        if turned:
            bottom -= _LETTER * max(len(short(text)) for _, text in self.x.ticks or ()) - 12
        y = _Scale(self.y, y_low, y_high, bottom, top)
        rows = y.ticks(max(2, int((bottom - top) / 26)))
        left = 6 + _LETTER * max((len(short(text)) for _, text in rows), default=0) + (15 if self.y.label else 0)
        x = _Scale(self.x, x_low, x_high, left, width - 8.0)
        for at, text in rows:
            sink.line([(left, at), (width - 8, at)], "grid", 1)
            sink.text(left - 5, at + 4, short(text), anchor="end")
        for at, text in x.ticks(max(2, int((width - left) / 58))):
            half = _LETTER * len(text) / 2
            if turned:
                sink.text(at + 4, bottom + 8, short(text), anchor="end", turned=True)
            else:
                sink.text(min(max(at, half), width - half), bottom + 14, text, anchor="middle")
        sink.line([(left, bottom), (width - 8, bottom)], "axis", 1)
        if self.x.label:
            sink.text(
                (left + width) / 2, height - 5, short(self.x.label, int((width - left) / _LETTER)), anchor="middle"
            )
        if self.y.label:
            sink.text(11, (top + bottom) / 2, short(self.y.label, 40), anchor="middle", turned=True)
        for mark in self.marks:
            _mark(sink, mark, x, y)


def _ends(marks: Sequence[Mark], axis: Axis, place: int) -> tuple[float, float]:
    """The ends of an axis, those of a logarithmic one as exponents."""
    values = [value for mark in marks for value in _values(mark, place) if math.isfinite(value)]
    if axis.log:
        values = [math.log10(max(value, 1e-300)) for value in values]
    low, high = min(values, default=0.0), max(values, default=1.0)
    low, high = max(low, -_LIMIT), min(high, _LIMIT)
    space = (high - low) * 0.05 if high > low else abs(low) * 0.5 or 0.5
    floor = 0.0 if low == 0 and place else low - space  # bars stand on their axis
    found = axis.low if axis.low is not None else floor, axis.high if axis.high is not None else high + space
    return found if found[1] > found[0] else (found[0] - 0.5, found[0] + 0.5)


def _values(mark: Mark, place: int) -> Iterator[float]:
    if isinstance(mark, Bars):
        yield from (side for sides in mark.sides for side in sides[2 * place : 2 * place + 2])
    elif isinstance(mark, Line | Dots):
        yield from mark.y if place else mark.x
    elif isinstance(mark, Rule):
        value = mark.y if place else mark.x
        yield from () if value is None else (value,)


def _mark(sink: _Svg | _Png, mark: Mark, x: _Scale, y: _Scale) -> None:
    if isinstance(mark, Line):
        points = [(x(a), y(b)) for a, b in zip(mark.x, mark.y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        if mark.filled:
            sink.area(points, mark.tone, 0.22)
        sink.line(points, mark.tone, 1 if mark.dashed else 1.8, dashed=mark.dashed, opacity=mark.opacity)
        for point in points if mark.dots else ():
            sink.dot(*point, 2.6, mark.tone, mark.opacity)
    elif isinstance(mark, Dots):
        for a, b in zip(mark.x, mark.y, strict=True):
            sink.dot(x(a), y(b), mark.radius, mark.tone, mark.opacity)
    elif isinstance(mark, Bars):
        for place, (left, right, low, high) in enumerate(mark.sides):
            start, stop, base, top = x(left), x(right), y(low), y(high)
            opacity = mark.opacity[place] if mark.opacity else 0.75
            title = mark.titles[place] if mark.titles else ""
            sink.rect(min(start, stop), min(base, top), abs(stop - start), abs(base - top), mark.tone, opacity, title)
    elif isinstance(mark, Rule):
        ends = [(x.start, y(mark.y)), (x.stop, y(mark.y))] if mark.y is not None else []
        ends = ends or [(x(mark.x or 0.0), y.start), (x(mark.x or 0.0), y.stop)]
        sink.line(ends, "soft", 1, dashed=True)
    else:
        sink.text(x(mark.x), y(mark.y) + 4, mark.text, anchor="middle", tone="white" if mark.inverse else "ink")


Points = Sequence[tuple[float, float]]


class _Svg:
    """Draws as elements of SVG."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def line(self, points: Points, tone: Tone, width: float, *, dashed: bool = False, opacity: float = 1.0) -> None:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        more = (' stroke-dasharray="4 3"' if dashed else "") + (f' opacity="{opacity:.2f}"' if opacity < 1 else "")
        self.parts.append(f'<polyline class="s{tone}" stroke-width="{width:g}"{more} points="{joined}"/>')

    def area(self, points: Points, tone: Tone, opacity: float) -> None:
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polygon class="s{tone}" fill-opacity="{opacity:.2f}" points="{joined}"/>')

    def rect(
        self, x: float, y: float, width: float, height: float, tone: Tone, opacity: float, title: str = ""
    ) -> None:
        at = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        inner = f"><title>{escape(title)}</title></rect>" if title else "/>"
        self.parts.append(f'<rect class="s{tone}" fill-opacity="{opacity:.2f}" {at}{inner}')

    def dot(self, x: float, y: float, radius: float, tone: Tone, opacity: float) -> None:
        self.parts.append(
            f'<circle class="s{tone}" fill-opacity="{opacity:.2f}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        tone: Tone = "soft",
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        more = (' font-weight="600"' if bold else "") + (f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else "")
        at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        self.parts.append(f'<text class="s{tone}" {at}{more}>{escape(text)}</text>')


_PLAIN = {"grid": "#e2e8f0", "axis": "#94a3b8", "white": "#ffffff", **_OTHERS}


class _Png:
    """Draws on a figure of Matplotlib, whose origin is at the bottom."""

    def __init__(self, figure: Any, height: float) -> None:
        from matplotlib.transforms import Affine2D

        self._figure = figure
        self._drawn = 0
        self._place = Affine2D().scale(2, -2).translate(0, 2 * height)

    def _add(self, artist: Any) -> None:
        artist.set(transform=self._place, zorder=self._next())
        self._figure.add_artist(artist, clip=False)

    def _next(self) -> int:
        """Above all that is drawn so far."""
        self._drawn += 1
        return self._drawn

    def line(self, points: Points, tone: Tone, width: float, *, dashed: bool = False, opacity: float = 1.0) -> None:
        from matplotlib.lines import Line2D

        x, y = zip(*points, strict=True) if points else ((), ())
        style = "--" if dashed else "-"
        self._add(Line2D(x, y, color=_color(tone), linewidth=0.72 * width, linestyle=style, alpha=opacity))

    def area(self, points: Points, tone: Tone, opacity: float) -> None:
        from matplotlib.patches import Polygon

        if points:
            self._add(Polygon(points, facecolor=_color(tone), alpha=opacity, edgecolor="none"))

    def rect(
        self, x: float, y: float, width: float, height: float, tone: Tone, opacity: float, title: str = ""
    ) -> None:
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        self.area(corners, tone, opacity)

    def dot(self, x: float, y: float, radius: float, tone: Tone, opacity: float) -> None:
        from matplotlib.patches import Circle

        self._add(Circle((x, y), radius, facecolor=_color(tone), alpha=opacity, edgecolor="none"))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        tone: Tone = "soft",
        bold: bool = False,
        turned: bool = False,
    ) -> None:
        side = {"start": "left", "middle": "center", "end": "right"}[anchor]
        style: dict[str, Any] = {"rotation": 90, "rotation_mode": "anchor"} if turned else {}
        found = self._figure.text(
            0, 0, text, ha=side, va="baseline", fontsize=0.66 * _FONT, color=_color(tone), **style
        )
        weight = "bold" if bold else "normal"
        found.set(
            x=x, y=y, transform=self._place, zorder=self._next(), parse_math=False, weight=weight
        )  # $5$ is a name


def _color(tone: Tone) -> str:
    return COLORS[tone % len(COLORS)] if isinstance(tone, int) else _PLAIN[tone]
