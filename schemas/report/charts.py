"""Charts: described by marks in the units of their axes, and drawn in the pixels of a page, as SVG.

The SVG has no colours of its own: its elements have classes that `base.html` gives light and dark ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

Tone = int | str  # a series from 0 on, 'soft', 'pale' or 'ink'
PAIRS = (  # the colours of series: in the light, and in the dark
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
LETTER = 6.9  # the width of a letter, in pixels
_NAME = 18  # characters of a name that are shown
_LIMIT = 8e307  # beyond it, differences overflow


def short(name: str, most: int = _NAME) -> str:
    """Cuts a name that is long."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


@dataclasses.dataclass(frozen=True)
class Curve:
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
    """Rectangles `(left, right, bottom, top)`; `titles` show under the pointer."""

    sides: Sequence[tuple[float, float, float, float]]
    tone: Tone = 0
    name: str = ""
    titles: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Rule:
    """A thin dashed line across the chart, at `x` or at `y`."""

    x: float | None = None
    y: float | None = None


Mark = Curve | Dots | Bars | Rule


def stairs(edges: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """Returns the outline of a histogram: float `[2 * bins + 2]` each, x and y."""
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
        value = _measure(value, self.axis)
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Returns the place of each tick in pixels, and its text."""
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
        texts = {tick_text(place * step, step, percent=self.axis.percent): self(place * step) for place in places}
        return [(at, text) for text, at in texts.items()]


def _step(least: float, *, whole: bool) -> float:
    """The least round number that is no less."""
    least = max(least, 1.0 if whole else 1e-300)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least * (1 - 1e-9))


def tick_text(value: float, step: float, *, percent: bool = False) -> str:
    """Writes a number beside an axis, in as many digits as its step needs."""
    if percent:
        return f"{100 * value:.{max(0, -math.floor(math.log10(100 * step) + 1e-9))}f} %"
    largest = max(abs(value), step)
    if largest >= 10_000:
        return compact(value)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{value:.0e}" if digits > 5 and value else f"{value + 0.0:.{min(digits, 6)}f}" if value else "0"


def compact(number: float) -> str:
    """Writes a number in few characters: 950, 12k, 3.4M."""
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

    def svg(self) -> Markup:
        """Draws the chart as an element of a page. Texts are escaped."""
        width, height = self.size
        head = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(self.title)}"'
        text = f'{head} style="max-width: {1.6 * width:.0f}px">{"".join(self._elements())}</svg>'
        return Markup(text)  # noqa: S704 - texts are escaped

    def _elements(self) -> Iterator[str]:
        width, height = self.size
        top = 8.0
        if self.title:
            yield _words(0, 13, short(self.title, int(width / LETTER)), tone="ink", more=' font-weight="600"')
            top = 24.0
        at = float(width)
        named = [(m.tone, short(m.name, 34)) for m in self.marks if isinstance(m, Curve | Dots | Bars) and m.name]
        for tone, name in named:
            wide = 20 + LETTER * len(name)
            if at and at + wide > width:
                at, top = 0.0, top + 16
            yield _box(at, top - 13, at + 10, top - 3, tone, 0.9)
            yield _words(at + 14, top - 4, name)
            at += wide
        top += 8
        (x_low, x_high), (y_low, y_high) = (
            _ends(self.marks, axis, place) for place, axis in enumerate((self.x, self.y))
        )
        bottom = height - (36.0 if self.x.label else 20.0)
        turned = bool(self.x.ticks) and sum(len(text) + 2 for _, text in self.x.ticks or ()) * LETTER > width - 50
        if turned:
            bottom -= LETTER * max(len(short(text)) for _, text in self.x.ticks or ()) - 12
        y = _Scale(self.y, y_low, y_high, bottom, top)
        rows = y.ticks(max(2, int((bottom - top) / 26)))
        left = 6 + LETTER * max((len(short(text)) for _, text in rows), default=0) + (15 if self.y.label else 0)
        x = _Scale(self.x, x_low, x_high, left, width - 8.0)
        for at, text in rows:
            yield _line([(left, at), (width - 8, at)], "grid", 1)
            yield _words(left - 5, at + 4, short(text), "end")
        for at, text in x.ticks(max(2, int((width - left) / 58))):
            half = LETTER * len(text) / 2
            if turned:
                yield _words(at + 4, bottom + 8, short(text), "end", turned=True)
            else:
                yield _words(min(max(at, half), width - half), bottom + 14, text, "middle")
        yield _line([(left, bottom), (width - 8, bottom)], "axis", 1)
        if self.x.label:
            label = short(self.x.label, int((width - left) / LETTER))
            yield _words((left + width) / 2, height - 5, label, "middle")
        if self.y.label:
            yield _words(11, (top + bottom) / 2, short(self.y.label, 40), "middle", turned=True)
        for mark in self.marks:
            yield from _drawn(mark, x, y)


def drawn(chart: Chart | None) -> str:
    """Draws a chart as an element of a page; nothing where there is none."""
    return "" if chart is None else chart.svg()


def _measure(value: float, axis: Axis) -> float:
    """A number by which an axis places a value; the exponent on a logarithmic one."""
    return math.log10(max(value, 1e-300)) if axis.log else min(max(value, -_LIMIT), _LIMIT)


def _ends(marks: Sequence[Mark], axis: Axis, place: int) -> tuple[float, float]:
    """The ends of an axis, those of a logarithmic one as exponents."""
    values = [_measure(value, axis) for mark in marks for value in _values(mark, place) if math.isfinite(value)]
    low, high = min(values, default=0.0), max(values, default=1.0)
    space = (high - low) * 0.05 if high > low else abs(low) * 0.1 or 0.5
    floor = 0.0 if low == 0 and place else low - space  # bars stand on their axis
    ends = axis.low if axis.low is not None else floor, axis.high if axis.high is not None else high + space
    return ends if ends[1] > ends[0] else (ends[0] - 0.5, ends[0] + 0.5)


def _values(mark: Mark, place: int) -> Iterator[float]:
    if isinstance(mark, Bars):
        yield from (side for sides in mark.sides for side in sides[2 * place : 2 * place + 2])
    elif isinstance(mark, Curve | Dots):
        yield from mark.y if place else mark.x
    elif isinstance(mark, Rule):
        value = mark.y if place else mark.x
        yield from () if value is None else (value,)


def _drawn(mark: Mark, x: _Scale, y: _Scale) -> Iterator[str]:
    """A mark as elements of SVG."""
    if isinstance(mark, Curve):
        points = [(x(a), y(b)) for a, b in zip(mark.x, mark.y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        if mark.filled:
            yield f"<polygon {_look(mark.tone, 0.22)} {_points(points)}/>"
        yield _line(points, mark.tone, 1 if mark.dashed else 1.8, mark.opacity, dashed=mark.dashed)
        for point in points if mark.dots or len(points) == 1 else ():  # of one, no line is to be seen
            yield _dot(*point, 2.6, mark.tone, mark.opacity)
    elif isinstance(mark, Dots):
        for a, b in zip(mark.x, mark.y, strict=True):
            yield _dot(x(a), y(b), mark.radius, mark.tone, mark.opacity)
    elif isinstance(mark, Bars):
        for place, (left, right, low, high) in enumerate(mark.sides):
            title = mark.titles[place] if mark.titles else ""
            yield _box(x(left), y(high), x(right), y(low), mark.tone, 0.75, title)
    else:
        ends = [(x.start, y(mark.y)), (x.stop, y(mark.y))] if mark.y is not None else []
        ends = ends or [(x(mark.x or 0.0), y.start), (x(mark.x or 0.0), y.stop)]
        yield _line(ends, "soft", 1, dashed=True)


def _look(tone: Tone, opacity: float = 1.0) -> str:
    return f'class="s{tone}"' + (f' opacity="{opacity:.2f}"' if opacity < 1 else "")


def _points(points: Sequence[tuple[float, float]]) -> str:
    return f'points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"'


def _line(
    points: Sequence[tuple[float, float]], tone: Tone, width: float, opacity: float = 1.0, *, dashed: bool = False
) -> str:
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<polyline {_look(tone, opacity)} {_points(points)} stroke-width="{width:g}"{dashes}/>'


def _box(left: float, top: float, right: float, bottom: float, tone: Tone, opacity: float, title: str = "") -> str:
    """A filled rectangle, whose title shows under the pointer."""
    shape = f"{_look(tone, opacity)} {_points([(left, top), (right, top), (right, bottom), (left, bottom)])}"
    return f"<polygon {shape}><title>{escape(title)}</title></polygon>" if title else f"<polygon {shape}/>"


def _dot(x: float, y: float, radius: float, tone: Tone, opacity: float) -> str:
    return f'<circle {_look(tone, opacity)} cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def _words(
    x: float, y: float, text: str, anchor: str = "start", tone: Tone = "soft", *, more: str = "", turned: bool = False
) -> str:
    """A text whose start, middle or end stands on a place; `turned`: it reads upwards."""
    more += f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text {_look(tone)} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
