"""The data report in a browser: its scripts run, it loads nothing, and nothing is wider than the window."""

from __future__ import annotations

import html.parser
from pathlib import Path

import PIL.Image
import pytest

from schemas.dataset.manifest import DataWarning
from schemas.report.data_report import render
from tests.schemas.test_report import (
    AGE,
    IMAGES,
    JOB,
    KEYS,
    LABEL,
    ROWS,
    TELLING,
    found,
    item,
    manifest_of,
    numbers,
    reject,
    statistics_of,
)
from tests.support.html_page import opened, screenshot

pytestmark = pytest.mark.browser

TOO_WIDE = """
document.title = [...document.querySelectorAll("main *")].filter(
  (e) => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1 && !e.closest(".card")
).map((e) => e.tagName).join(" ") + " " + (document.documentElement.scrollWidth > document.documentElement.clientWidth);
"""


class Cards(html.parser.HTMLParser):
    """The names of the features that are shown, in their order, and the page's title."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.title = ""
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._in_title = tag == "title"
        if "data-name" in found and "hidden" not in found:
            self.names.append(found["data-name"] or "")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
            self._in_title = False


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with every section."""
    pictures = {f"/photos/cats/{name}.jpg": _PIXEL for name in "abcd"}
    sized = [{"path": "/photos/cats/c.jpg", "height": 3000, "width": 4000}]
    small = [{"path": "/photos/cats/c.jpg", "height": 30, "width": 40}]
    text = render(
        manifest_of(warnings=(DataWarning(feature="age", code="constant", message="age: is the same in every row"),)),
        statistics=statistics_of(AGE, JOB, LABEL),
        rejects=[reject("age"), reject(None, b"x" * 5000)],
        phases=[("analyzing", 1.0), ("transforming", 3.0)],
        images={"cats": [_PIXEL] * 10},
        leakage=found(rows=ROWS, keys=KEYS, images=IMAGES, label=TELLING, largest=sized, smallest=small),
        pictures=pictures,
    )
    (tmp_path / "report.html").write_text(text)
    return tmp_path / "report.html"


_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_nothing_is_refused_or_fails(page: Path) -> None:
    assert opened(page).console == []


@pytest.mark.parametrize("width", [1240, 420])
def test_the_page_fits_its_window(page: Path, tmp_path: Path, width: int) -> None:
    """Only what is inside a card may be wider; the card scrolls."""
    screenshot(page, tmp_path / "page.png", width=width, height=2000)
    with PIL.Image.open(tmp_path / "page.png") as image:
        assert image.size == (width, 2000)
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50  # it is not empty
    assert Cards(opened(page, script=TOO_WIDE).dom).title.strip() == "false"


def test_features_are_searched_and_sorted(tmp_path: Path) -> None:
    items = [item(f"f{i}", "numeric", numbers(), numbers(40, missing=i)) for i in range(1000)]
    report = tmp_path / "report.html"
    report.write_text(render(manifest_of(), statistics=statistics_of(*items), rejects=[]))
    search = "const s = document.getElementById('search'); s.value = 'F77'; s.dispatchEvent(new Event('input'));"
    assert Cards(opened(report, script=search).dom).names == ["f77", *(f"f77{i}" for i in range(10))]
    order = "const o = document.getElementById('order'); o.value = 'missing'; o.dispatchEvent(new Event('change'));"
    shown = opened(report, script=order)
    assert Cards(shown.dom).names[:3] == ["f999", "f998", "f997"]
    assert shown.console == []
