"""The goals of this project next to the measurements: by wall time, and by CPU, which other load hardly changes."""

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
    WEBDATASET,
)
from benchmarks.results import Medians, Results, shown


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio that should be at least, or at most, `wanted`.

    Attributes:
      wall, cpu: the measured ratios; cpu is None for memory.
      by_cpu: whether the goal is on CPU and not on wall time.
    """

    what: str
    wanted: float
    wall: float
    cpu: float | None
    at_most: bool = False
    by_cpu: bool = False

    @property
    def met(self) -> bool:
        """Whether the measurement reaches the goal."""
        value = self.cpu if self.by_cpu and self.cpu is not None else self.wall
        return value <= self.wanted if self.at_most else value >= self.wanted


def ratio(found: Results, contest: str, way: str, ours: str = OURS) -> tuple[float, float] | None:
    """How many times as fast as another way this project is: by wall time, and by CPU."""
    medians = found.medians(contest)
    if ours not in medians or way not in medians:
        return None
    own, other = medians[ours], medians[way]
    return own.rate / other.rate, other.cpu_each / own.cpu_each


def fastest_bare(images: dict[str, Medians]) -> str | None:
    """The fastest of the bounds of writing images; None if none was measured."""
    measured = [name for name in (BARE, BARE_SCALED, BARE_PILLOW) if name in images]
    return max(measured, key=lambda name: images[name].rate, default=None)


def thriftiest_rival(images: dict[str, Medians]) -> str | None:
    """The other way to write images that takes the least CPU; None if none was measured."""
    rivals = [name for name in images if name not in (OURS, *_BOUNDS)]
    return min(rivals, key=lambda name: images[name].cpu_each, default=None)


def goals(found: Results) -> list[Goal]:
    """The goals whose contests were measured."""
    out = []

    def add(what: str, wanted: float, contest: str, way: str, ours: str = OURS, *, by_cpu: bool = False) -> None:
        if (times := ratio(found, contest, way, ours)) is not None:
            out.append(Goal(what, wanted, *times, by_cpu=by_cpu))

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
    add("images written: times as fast as webdataset with Pillow", 0.9, "images", WEBDATASET)
    if (bare := fastest_bare(found.medians("images"))) is not None:
        add(f"images written: the rate of the fastest bound ({bare})", 0.8, "images", bare)
    for contest, megapixels in (("images_2mp", 2), ("images_12mp", 12)):
        if (best := thriftiest_rival(found.medians(contest))) is not None:
            what = f"photos of {megapixels} megapixels written: times as fast as the other way of least CPU ({best})"
            add(what, 1, contest, best, by_cpu=True)
    add("rows read: times as fast as the per-example parse", 10, "read_rows", "map(parse_single_example)")
    add("rows read: the rate of raw records", 0.9, "read_rows", RAW)
    add("rows read, all in memory: the rate of raw records", 0.9, "read_rows", RAW_HELD, HELD)
    read = "images read: times as fast as the original files by tf.data"
    add(f"{read}, resized as most do it, without antialiasing", 4, "read_images", ORIGINAL_PLAIN)
    add(f"{read}, resized with antialiasing as here", 4, "read_images", ORIGINAL)
    return out


def table(found: Results) -> str:
    """The goals as a Markdown table."""
    lines = ["| goal | wanted | measured | by CPU | |", "|---|--:|--:|--:|---|"]
    for goal in goals(found):
        sign = "<=" if goal.at_most else ">="
        cpu = "" if goal.cpu is None else f"{goal.cpu:.2f}x"
        wanted = f"{sign} {goal.wanted:g}x{' by CPU' * goal.by_cpu}"
        verdict = "met" if goal.met else "**missed**"
        lines.append(f"| {goal.what} | {wanted} | {goal.wall:.2f}x | {cpu} | {verdict} |")
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
    """The README's table: a line for each contest."""
    lines = ["| work | Millrace | fastest other way | slowest | bound |", "|---|---|---|---|---|"]
    for name, unit in _SUMMARY:
        medians = found.medians(name)
        if OURS not in medians:
            continue
        rates = {way: each.rate for way, each in medians.items()}
        own = {way: rate for way, rate in rates.items() if way.startswith(OURS)}
        others = sorted((rate, way) for way, rate in rates.items() if way not in (*own, *_BOUNDS, RAW_BUFFER))
        if not others:
            continue
        bounds = [way for way in (FLOOR, fastest_bare(medians), RAW, RAW_HELD) if way in rates]
        cells = (
            found.contests[name]["title"],
            ", ".join(
                f"**{shown(rate)} {unit}/s**{way.removeprefix(OURS).replace(', ', ' ')}" for way, rate in own.items()
            ),
            *(f"{way}: {shown(rate)}" for rate, way in (*others[-1:], *others[:1])),
            ", ".join(shown(rates[way]) for way in bounds),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


_BOUNDS = (FLOOR, BARE, BARE_SCALED, BARE_PILLOW, RAW, RAW_HELD)
