"""What the report shows of leakage: every check, examples, pictures; features that tell the label come first."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.dataset.leakage import lines, looked_at
from schemas.report.data_report import render
from schemas.report.leakage import files_of
from tests.schemas.report.test_data_report import AGE, HOSTILE, JOB, LABEL, Page, manifest_of, reject, statistics_of

PLACES = [{"path": "a.csv", "offset": 1_234}, {"path": "b.csv", "offset": 7}]
ROWS = {
    "records": 100,
    "share": 1.0,
    "repeated": {"split": "train", "records": 0, "of": 80},
    "equal": [{"splits": ["train", "eval"], "records": 3, "of": 20, "examples": [PLACES]}],
    "equal_but_for_label": [{"splits": ["train", "eval"], "records": 2, "of": 20}],
}
KEYS = {"records": 100, "share": 0.25, "in_two_splits": []}
TELLING = {
    "name": "late",
    "rows": 80,
    "judged": True,
    "limit": 0.99,
    "leaks": 1,
    "features": [
        {"name": "job", "auc": 0.9987, "leaks": True},
        {"name": "age", "auc": 0.61, "leaks": False, "best": {"class": "yes", "auc": 0.75}},
    ],
}


def image(name: str, split: str) -> dict[str, Any]:
    return {"path": f"/photos/cats/{name}", "split": split, "label": HOSTILE}


NEAR = [[image("c.jpg", "train"), image("d.jpg", "eval")]]
IMAGES = {
    "records": 50,
    "share": 1.0,
    "repeated": 1,
    "equal": [],
    "two_labels": {"images": 1, "examples": [[image("a.jpg", "train"), image("b.jpg", "train")]]},
    "compared_by_look": 49,
    "near": [{"splits": ["train", "eval"], "records": 4, "of": 9, "examples": NEAR}],
    "near_within": [],
}


def found(**parts: Any) -> dict[str, Any]:
    return {"format_version": 1, **parts}


def test_each_check_says_what_it_compared_and_what_it_found() -> None:
    page = Page(render_page(found(rows=ROWS, keys=KEYS, label=TELLING)))
    assert "equal rows: 3 of eval in train (all 100 rows)" in page.text
    assert "equal rows with another label: 2 of eval in train" in page.text
    assert "keys in two splits: none (1/4 of 100 rows, chosen by a hash of what is compared)" in page.text
    assert "features that tell the label: job" in page.text
    assert "a.csv : 1,234 b.csv : 7" in page.text
    assert "job 0.9987" in page.text
    assert "age 0.6100 yes against the rest: 0.7500" in page.text


def test_features_that_tell_the_label_come_first_and_then_those_with_rejects() -> None:
    page = Page(render_page(found(label=TELLING), rejects=[reject("age"), reject("age")]))
    assert page.cards() == ["job", "age", "late"]
    assert "job category tells the label" in page.text
    assert "age numeric 2 rejected" in page.text


def test_pairs_of_images_stand_side_by_side_with_what_they_are() -> None:
    pictures = {f"/photos/cats/{name}.jpg": f"data:image/jpeg;base64,{name}" for name in "abc"}  # d is gone
    sized = [{"path": "/photos/cats/c.jpg", "height": 3000, "width": 4000}]
    small = [{"path": "/photos/cats/c.jpg", "height": 30, "width": 40}]
    leakage = found(images=IMAGES, largest=sized, smallest=small)
    text = render_page(leakage, pictures=pictures)
    page = Page(text)
    shown = [attributes["src"][-1] for tag, attributes in page.tags if tag == "img"]
    assert shown == ["c", "a", "b", "c", "c"]
    assert "4 of eval look nearly the same as one of train" in page.text
    assert "1 with more than one label" in page.text
    assert "4,000 x 3,000 cats/c.jpg" in page.text
    assert "Smallest images" in page.text
    assert "Smallest images" not in render_page(found(images=IMAGES, largest=sized, smallest=sized), pictures=pictures)
    assert HOSTILE not in text
    assert files_of(leakage) == [f"/photos/cats/{name}.jpg" for name in "cdab"]


def test_a_run_of_an_earlier_release_has_no_such_section() -> None:
    assert "leakage" not in {attributes.get("id") for _, attributes in Page(render_page(None)).tags}


@pytest.mark.parametrize(
    ("share", "expected"), [(1.0, "all 9,000 rows"), (0.125, "1/8 of 9,000 rows, chosen by a hash of what is compared")]
)
def test_how_much_was_compared_is_said(share: float, expected: str) -> None:
    assert looked_at({"share": share, "records": 9_000}, "rows") == expected


def test_a_label_that_was_not_judged_says_why() -> None:
    label = {"name": "late", "rows": 8, "judged": False, "features": [], "because": "it has one class"}
    assert list(lines(found(label=label))) == ["features that tell the label: not judged, because it has one class"]


def render_page(leakage: dict[str, Any] | None, **changes: Any) -> str:
    values: dict[str, Any] = {"rejects": [], "statistics": statistics_of(AGE, JOB, LABEL), **changes}
    return render(manifest_of(), leakage=leakage, **values)
