"""What this project means to reach, beside what was measured: by wall time, and by CPU, which other work on the machine
hardly moves.
"""

from __future__ import annotations

import dataclasses

from benchmarks.contests import (
    BARE,
    BARE_PILLOW,
    BARE_SCALED,
    FLOOR,
    HELD,
    ORIGINAL,
    ORIGINAL_PLAIN,
    OURS,
    RAW,
    RAW_BUFFER,
    RAW_HELD,
)
from benchmarks.results import Medians, Results


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio (or seconds) that is to be at least, or at most, what is wanted.

    Attributes:
      wall, cpu: as measured; None where it was not, or is not told by it.
    """

    what: str
    wanted: float
    wall: float | None
    cpu: float | None
    at_most: bool = False
    unit: str = "x"

    @property
    def met(self) -> bool:
        """By wall time where there is one."""
        value = self.wall if self.wall is not None else self.cpu
        assert value is not None
        return value <= self.wanted if self.at_most else value >= self.wanted


def ratio(found: Results, contest: str, way: str, ours: str = OURS) -> tuple[float, float] | None:
    """How many times as fast as another way this project's is: by wall time, and by CPU."""
    medians = found.medians(contest)
    if ours not in medians or way not in medians:
        return None
    own, other = medians[ours], medians[way]
    return own.rate / other.rate, other.cpu_each / own.cpu_each


def fastest_bare(images: dict[str, Medians]) -> str | None:
    """Of the bounds of writing images, the one that was measured as the fastest; None: none was."""
    measured = [name for name in (BARE, BARE_SCALED, BARE_PILLOW) if name in images]
    return max(measured, key=lambda name: images[name].rate, default=None)


def goals(found: Results) -> list[Goal]:
    """Those whose contests were measured."""
    out = []

    def add(what: str, wanted: float, contest: str, way: str, ours: str = OURS) -> None:
        if (times := ratio(found, contest, way, ours)) is not None:
            out.append(Goal(what, wanted, *times))

    for name in ("covertype", "census", "mnist"):
        add(f"{name}: times as fast as tf.Transform's census example", 8, name, "tf.Transform, census example")
        add(f"{name}: times as fast as a Python loop", 3, name, "Python loop over tf.train.Example")
    if (times := ratio(found, "covertype_6m", FLOOR)) is not None:
        out.append(Goal("6,000,000 rows: the floor's time", 2.5, 1 / times[0], 1 / times[1], at_most=True))
    memory = [found.medians(name).get(OURS) for name in ("covertype", "covertype_6m")]
    if all(way is not None and way.peak_bytes for way in memory):
        small, large = (way.peak_bytes for way in memory if way is not None)
        assert small
        assert large
        out.append(Goal("6,000,000 rows: the memory of 600,000", 1.25, large / small, None, at_most=True))
    for contest, what, wanted in (
        ("images", "images written", 0.9),
        ("images_2mp", "photos of 2 megapixels written", 1),
        ("images_12mp", "photos of 12 megapixels written", 1),
    ):
        images = found.medians(contest)
        rivals = {name: way for name, way in images.items() if name not in (OURS, *_BOUNDS)}
        if rivals:
            best = max(rivals, key=lambda name: rivals[name].rate)
            add(f"{what}: times as fast as the best other way ({best})", wanted, contest, best)
        if (bare := fastest_bare(images)) is not None:
            add(f"{what}: the rate of the fastest bound ({bare})", 0.8, contest, bare)
    add("rows read: times as fast as the per-example parse", 10, "read_rows", "map(parse_single_example)")
    add("rows read: the rate of raw records", 0.9, "read_rows", RAW)
    add("rows read, all in memory: the rate of raw records", 0.9, "read_rows", RAW_HELD, HELD)
    read = "images read: times as fast as the original files by tf.data"
    add(f"{read}, resized as most do it, without antialiasing", 4, "read_images", ORIGINAL_PLAIN)
    add(f"{read}, resized with antialiasing as here", 4, "read_images", ORIGINAL)
    return out


def table(found: Results) -> str:
    """As a Markdown table."""
    lines = ["| goal | wanted | measured | by CPU | |", "|---|--:|--:|--:|---|"]
    for goal in goals(found):
        sign = "<=" if goal.at_most else ">="
        wall, cpu = (("" if v is None else f"{v:.2f}{goal.unit}") for v in (goal.wall, goal.cpu))
        told = "met" if goal.met else "**missed**"
        lines.append(f"| {goal.what} | {sign} {goal.wanted:g}{goal.unit} | {wall} | {cpu} | {told} |")
    return "\n".join(lines)


_SUMMARY = (
    ("covertype", "rows"),
    ("census", "rows"),
    ("mnist", "rows"),
    ("images", "images"),
    ("images_2mp", "images"),
    ("images_12mp", "images"),
    ("read_rows", "rows"),
    ("read_images", "images"),
)


def summary(found: Results) -> str:
    """The README's table: each contest in a line."""
    lines = ["| work | Millrace | fastest other way | slowest | bound |", "|---|---|---|---|---|"]
    for name, unit in _SUMMARY:
        medians = found.medians(name)
        if OURS not in medians:
            continue
        rates = {way: each.rate for way, each in medians.items()}
        own = {way: rate for way, rate in rates.items() if way.startswith(OURS)}
        others = sorted((rate, way) for way, rate in rates.items() if way not in (*own, *_BOUNDS, RAW_BUFFER))
        bounds = [way for way in (FLOOR, fastest_bare(medians), RAW, RAW_HELD) if way in rates]
        cells = (
            found.contests[name]["title"],
            ", ".join(
                f"**{rate:,.0f} {unit}/s**{way.removeprefix(OURS).replace(', ', ' ')}" for way, rate in own.items()
            ),
            *(f"{way}: {rate:,.0f}" for rate, way in (others[-1], others[0])),
            ", ".join(f"{rates[way]:,.0f}" for way in bounds),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_BOUNDS = (FLOOR, BARE, BARE_SCALED, BARE_PILLOW, RAW, RAW_HELD)
