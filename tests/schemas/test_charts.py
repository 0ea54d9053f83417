"""Charts: round numbers beside axes, texts that are no markup, and any float drawn inside the picture."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.report.charts import Axis, Bars, Chart, Curve, Dots, Mark, compact

NUMBERS = st.floats(allow_nan=False, width=64)


def texts(chart: Chart) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", chart.svg())


@pytest.mark.parametrize(
    ("values", "axis", "expected"),
    [
        ([0, 1], Axis(), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ([0.0, 0.31], Axis(percent=True), ["0 %", "10 %", "20 %", "30 %"]),
        ([0.0, 0.004], Axis(percent=True), ["0.0 %", "0.1 %", "0.2 %", "0.3 %", "0.4 %"]),
        ([0, 60_000], Axis(), ["0", "20k", "40k", "60k"]),
        ([0, 3], Axis(whole=True), ["0", "1", "2", "3"]),
        ([0.001, 0.1], Axis(log=True), ["0.001", "0.01", "0.1"]),
        ([0, 1], Axis(ticks=[(0, "no"), (1, "yes")]), ["no", "yes"]),
        ([5, 5], Axis(), ["4.6", "4.8", "5.0", "5.2", "5.4"]),
    ],
)
def test_axes_have_round_numbers(values, axis, expected) -> None:
    chart = Chart("", [Dots([0] * len(values), values)], Axis(ticks=()), axis)
    chart_texts = texts(chart)
    assert [text for text in chart_texts if text in expected] == expected


def test_texts_are_no_markup() -> None:
    hostile = "<script>alert('1')</script>"
    marks: list[Mark] = [
        Curve([0, 1], [0, 1], name=hostile),
        Bars([(0, 1, 0, 1)], titles=[hostile]),
    ]
    svg = Chart(hostile, marks, Axis(hostile), Axis("", ticks=[(0, hostile)])).svg()
    assert "<script" not in svg
    assert svg.count("&lt;script") == 6


@example([(0.0, -1.6e308)])
@example([(1.6e308, 0.0)])
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5))
def test_any_numbers_are_drawn_within_the_picture(points) -> None:
    x, y = zip(*points, strict=True)
    chart = Chart("t", [Curve(x, y, dots=True)], Axis("x"), Axis("y"))
    svg = chart.svg()
    assert "nan" not in svg
    assert "inf" not in svg
    for at, size in (("cx", chart.size[0]), ("cy", chart.size[1])):
        assert all(-1 <= float(value) <= size + 1 for value in re.findall(rf'{at}="([^"]+)"', svg))


@pytest.mark.parametrize(
    ("number", "text"),
    [(950, "950"), (12_345, "12.3k"), (999_950, "1M"), (3.4e6, "3.4M"), (0.25, "0.25"), (-2e9, "-2G")],
)
def test_counts_are_compact(number, text) -> None:
    assert compact(number) == text
