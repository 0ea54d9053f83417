"""What charts are drawn with: paths, dots and words, in pixels from the top left corner. Written as SVG, and as PNG.

The SVG has no colours of its own: its elements have classes that `base.html` gives light and dark ones.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import escape

if TYPE_CHECKING:
    from PIL import Image

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
}
LETTER = 6.9  # the width of a letter
_FONT = 11.5
_FINE = 4  # how many pixels are drawn for one, along a side
_FAR = 100_000  # pixels: what is longer, infinite or NaN is in no picture


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
    """Shapes as a PNG of twice as many pixels, on white, with which lines are blended."""
    from PIL import Image, ImageColor, ImageDraw

    # Pillow draws hard edges: at four times the pixels, of which each four become one, they are soft.
    picture = Image.new("RGB", (_FINE * width, _FINE * height), "white")
    draw = ImageDraw.Draw(picture, "RGBA")
    for shape in shapes:
        named = COLORS[shape.tone % len(COLORS)] if isinstance(shape.tone, int) else _OTHERS[shape.tone]
        color = ImageColor.getrgb(named)[:3]
        if isinstance(shape, Words):
            _write(picture, shape, color)
        elif isinstance(shape, Dot):
            place = (_FINE * shape.x, _FINE * shape.y)
            draw.circle(place, _FINE * shape.radius, fill=(*color, round(255 * shape.opacity)))
        elif not shape.points:
            continue
        elif shape.width is not None:
            blended = tuple(round(255 + shape.opacity * (value - 255)) for value in color)
            for line in _dashes(shape.points) if shape.dashed else [shape.points]:
                at = [(_FINE * x, _FINE * y) for x, y in line]
                draw.line(at, fill=blended, width=round(_FINE * shape.width), joint="curve")
        elif len(shape.points) > 1:
            at = [(_FINE * x, _FINE * y) for x, y in shape.points]
            draw.polygon(at, fill=(*color, round(255 * shape.opacity)))
    out = io.BytesIO()
    picture.reduce(_FINE // 2).save(out, "png")
    return out.getvalue()


def _write(picture: Image.Image, words: Words, color: tuple[int, ...]) -> None:
    """Writes a text; Pillow turns pictures only, so that one that reads upwards is drawn aside."""
    from PIL import Image, ImageDraw

    font = _font(bold=words.bold)
    x, y = round(_FINE * words.x), round(_FINE * words.y)
    anchor = {"start": "l", "middle": "m", "end": "r"}[words.anchor]
    if not words.turned:
        ImageDraw.Draw(picture).text((x, y), words.text, fill=color, font=font, anchor=f"{anchor}s")
        return
    length, above = math.ceil(font.getlength(words.text)), _FINE * _FONT
    aside = Image.new("L", (length, round(1.5 * above)))
    ImageDraw.Draw(aside).text((0, round(above)), words.text, fill=255, font=font, anchor="ls")
    top = y - length * {"l": 2, "m": 1, "r": 0}[anchor] // 2
    picture.paste(color, (x - round(above), top), aside.rotate(90, expand=True))


@functools.cache
def _font(*, bold: bool) -> Any:
    """DejaVu, which has the letters of many scripts, where the system has it; else Pillow's own."""
    from PIL import ImageFont

    try:
        return ImageFont.truetype(f"DejaVuSans{'-Bold' * bold}.ttf", 0.9 * _FINE * _FONT)
    except OSError:
        return ImageFont.load_default(_FINE * _FONT)


def _dashes(points: Sequence[tuple[float, float]]) -> Iterator[list[tuple[float, float]]]:
    """The dashes of a line, 4 pixels long and 3 apart."""
    for (x, y), (to_x, to_y) in itertools.pairwise(points):
        length = math.dist((x, y), (to_x, to_y))
        if not length < _FAR:
            continue
        for start in range(0, math.ceil(length), 7):
            ends = (start / length, min((start + 4) / length, 1))
            yield [(x + share * (to_x - x), y + share * (to_y - y)) for share in ends]
