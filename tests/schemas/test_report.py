"""The report of a dataset: what it says, that it escapes what comes from data, and how it works in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from schemas.comparison import compare
from schemas.dataset.manifest import Count, DataWarning, Input, Manifest, Shard, SplitShards
from schemas.rejects import Reject
from schemas.report import data_report
from schemas.report.charts import Curve
from schemas.report.data_report import (
    EXAMPLES,
    FOLDED,
    LEAST,
    LOOKED_AT,
    reject_groups,
    render,
    shown,
    verdict,
    verdict_of,
)
from schemas.report.features import PICTURED, features_of, frequent, histogram
from schemas.report.leakage import files_of, places_of
from tests.support import html_page
from tests.support.html_page import FAINT, TOO_WIDE, measured, opened, screenshot
from tests.support.samples import sample_of

HOSTILE = "<script>alert(1)</script>"


class Page(html_page.Page):
    """A report: its elements with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        self.elements: list[tuple[str, dict[str, str]]] = []
        super().__init__(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag != "img":
            super().handle_starttag(tag, attrs)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def cards(self) -> list[str]:
        """The names of the features, in the order of the page."""
        shown = (attributes for _, attributes in self.elements if "hidden" not in attributes)
        return [attributes["data-name"] for attributes in shown if "data-name" in attributes]


def manifest_of(**changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "run": "20260101T000000Z-abcd",
        "created": "2026-01-01T00:00:00+00:00",
        "name": "people",
        "schema_fingerprint": "f",
        "compression": "none",
        "seed": 0,
        "split_hash_version": 1,
        "versions": {},
        "inputs": (Input(path="a.csv", bytes=1, version="1", read=110, written=100, rejected=10),),
        "splits": {
            "train": SplitShards(rows=80, shards=(Shard(path="r/t", rows=80, bytes=8_000, crc32c="0" * 8),)),
            "eval": SplitShards(rows=20, shards=(Shard(path="r/e", rows=20, bytes=2_000, crc32c="0" * 8),)),
        },
        "files": (),
        "counts": (Count(input="a.csv", outcome="rejected", stage="parse", reason="too_few_columns", rows=10),),
        "read": 110,
        "written": 100,
        "rejected": 10,
        "seconds": 4.0,
    }
    return Manifest(**{**values, **changes})


def numbers(count: int = 80, **changes: Any) -> dict[str, Any]:
    statistics = {
        "count": count,
        "missing": 4,
        "mean": 2.5,
        "std": 1.0,
        "min": 0.0,
        "max": 4.0,
        "zeros": 1,
        "distinct": 5,
        "distinct_exact": True,
        "quantiles": {"ranks": [0.0, 0.25, 0.5, 0.75, 1.0], "values": [0.0, 1.0, 2.0, 3.0, 4.0], "exact": True},
        "histogram": {"edges": [0.0, 2.0, 4.0], "counts": [20, count - 20]},
        "top_values": [{"value": 2.0, "count": 30}],
        "top_values_error": 0,
    }
    return {**statistics, **changes}


def strings(*values: tuple[str, int]) -> dict[str, Any]:
    return {
        "count": sum(n for _, n in values),
        "missing": 0,
        "distinct": len(values),
        "distinct_exact": True,
        "length": {"mean": 3.0, "min": 1, "max": 5},
        "top_values": [{"value": value, "count": n} for value, n in values],
        "top_values_error": 0,
    }


def item(name: str, kind: str, train: dict[str, Any], evals: dict[str, Any], role: str = "feature") -> dict[str, Any]:
    return {
        "name": name,
        "feature": name.partition("[")[0],
        "kind": kind,
        "role": role,
        "type": "string" if "length" in train else "number",
        "splits": {"train": train, "eval": evals},
    }


def statistics_of(*items: dict[str, Any]) -> dict[str, Any]:
    return {"format_version": 1, "splits": {"train": {"rows": 80}, "eval": {"rows": 20}}, "features": list(items)}


AGE = item("age", "numeric", numbers(), numbers(40))
JOB = item("job", "category", strings(("nurse", 60), (HOSTILE, 20)), strings(("nurse", 20)))
LABEL = item("late", "category", strings(("no", 70), ("yes", 10)), strings(("no", 20)), role="label")
EMPTY = item("empty", "numeric", {"count": 0, "missing": 80}, {"count": 0, "missing": 20})


def reject(column: str | None, raw: bytes = b"1,2", offset: int = 5, reason: str = "not_a_number") -> Reject:
    return Reject("a.csv", offset, "decode", reason, column, f"found {HOSTILE}", raw)


def test_the_page_says_what_was_rejected_first_and_then_what_the_features_are() -> None:
    warning = DataWarning(feature="age", code="constant", message="age: is the same in every row")
    page = render(
        manifest_of(warnings=(warning,)),
        statistics=statistics_of(JOB, LABEL, AGE, EMPTY),
        rejects=[reject("age"), reject("age"), reject(None, reason="too_few_columns")],
        phases=[("analyzing", 1.0), ("transforming", 3.0)],
    )
    parsed_page = Page(page)
    sections = [attributes["id"] for tag, attributes in parsed_page.elements if tag == "section"]
    assert sections == ["rejected", "warnings", "features", "job"]
    assert "not_a_number in age : 2 rows" in parsed_page.text
    assert "too_few_columns : 1 row" in parsed_page.text
    assert "a.csv 110 10 (9.1 %)" in parsed_page.text
    assert parsed_page.cards() == ["age", "late", "job", "empty"]  # the warning, the label, and the schema's order
    assert "age: is the same in every row" in parsed_page.text
    assert "analyzing 1.0 s transforming 3.0 s" in parsed_page.text
    assert "4 s, 28 rows/s" in parsed_page.text


def test_what_comes_from_data_is_escaped_and_nothing_is_loaded() -> None:
    page = render(
        manifest_of(name=HOSTILE),
        statistics=statistics_of(JOB, item(f'x" onload="{HOSTILE}', "text", strings(("a", 1)), strings(("a", 1)))),
        rejects=[reject(HOSTILE, HOSTILE.encode() + b"\xff\x00\n")],
        images={HOSTILE: ["data:image/jpeg;base64,AAAA"]},
    )
    assert ("img", {"alt": HOSTILE, "loading": "lazy", "src": "data:image/jpeg;base64,AAAA"}) in Page(page).elements
    bare = Page(render(manifest_of(rejected=0), statistics=None, rejects=[]))
    assert "features are not described" in bare.text
    assert "Rejected rows" not in bare.text
    assert HOSTILE not in page
    assert Page(page).tags.count("script") == 1
    assert not any(name.startswith("on") for _, attributes in Page(page).elements for name in attributes)
    assert re.findall(r"(?:src|href)=\"(?!#|data:)", page) == []
    assert "http" not in page.replace("http-equiv", "")


def test_a_thousand_features_are_one_card_each_to_search_and_sort() -> None:
    items = [item(f"f{i}", "numeric", numbers(), numbers(40, missing=i)) for i in range(1000)]
    page = render(manifest_of(), statistics=statistics_of(*items), rejects=[])
    parsed_page = Page(page)
    assert parsed_page.cards() == [f"f{i}" for i in range(1000)]
    assert len(page) < 4_000_000
    assert parsed_page.tags.count("svg") == PICTURED  # the first ones; all have their table
    assert parsed_page.tags.count("tbody") >= 1000
    assert f"The first {PICTURED} features have pictures" in parsed_page.text
    keys = {key for _, attributes in parsed_page.elements for key in attributes if key.startswith("data-")}
    assert keys == {"data-place", "data-name", "data-missing", "data-distinct"}


@pytest.mark.parametrize(("features", "more"), [(LEAST + FOLDED, False), (LEAST + FOLDED + 300, True)])
def test_a_comparison_lists_a_bounded_number_of_features(features: int, more: bool) -> None:
    same = {f"c{i}": np.arange(30, dtype=np.float32) for i in range(features)}
    text = Page(data_report.page("", [compare(sample_of(same), sample_of(same)).as_json()])).text
    assert len(set(re.findall(r"\bc\d+\b", text))) == LEAST + FOLDED
    assert f"and {features - LEAST:,} more features, less different" in text
    assert ("and 300 more, which differ by 0.0000 at most" in text) == more


SOUND = manifest_of(rejected=0, read=100, counts=())
DRIFT = {"features": [{"name": f"f{i}", "verdict": "warn", "drift": 0.1} for i in range(5)], "verdict": "warn"}
QUIET = {"features": [{"name": "age", "verdict": "not_judged", "drift": 0.1}], "verdict": "not_judged"}


@pytest.mark.parametrize(
    ("manifest", "comparisons", "sentence"),
    [
        (SOUND, [QUIET], "100 rows read, all written; nothing was found that needs a look."),
        (manifest_of(), [], "110 rows read, 10 (9.1 %) rejected; look at the rejected rows."),
        (
            SOUND,
            [DRIFT],
            "100 rows read, all written; look at the drift of f0, f1, f2 and 2 more.",
        ),
        (
            manifest_of(rejected=0, read=100, counts=(), warnings=(DataWarning(feature="a", code="c", message="m"),)),
            [],
            "100 rows read, all written; look at the warnings about a.",
        ),
    ],
)
def test_the_page_begins_with_what_to_look_at(manifest, comparisons, sentence) -> None:
    assert verdict(manifest, [], comparisons, None) == (sentence, "look at" in sentence)


def test_what_leaks_stands_in_the_first_sentence() -> None:
    leaking = features_of(statistics_of(JOB), {}, leaking={"job"}, rejected={})
    sentence, bad = verdict(SOUND, leaking, [], found(rows=ROWS))
    assert sentence.endswith("look at job, which tells the label alone, and at the rows that splits share.")
    assert bad


@pytest.mark.parametrize(
    ("comparison", "sentence"),
    [
        (DRIFT, "Drifted: f0, f1, f2 and 2 more beyond the threshold."),
        (
            QUIET,
            "Not judged: 1 feature differs by more than chance explains (age), "
            "and the schema sets no `drift:` threshold to judge that by.",
        ),
        (
            {**QUIET, "verdict": "ok"},
            "Not drifted: 1 feature differs by more than chance explains (age), none beyond its threshold.",
        ),
        ({"features": [], "verdict": "ok"}, "Not drifted: no feature differs by more than chance explains."),
    ],
)
def test_a_comparison_begins_with_whether_there_is_drift(comparison, sentence) -> None:
    assert verdict_of([comparison]) == (sentence, comparison is DRIFT)


def test_rejects_are_grouped_and_no_more_than_a_bounded_number_is_read() -> None:
    def endless():
        i = 0
        while True:
            yield reject(f"c{i % 3}", offset=i)
            i += 1

    groups, looked = reject_groups(endless())
    assert looked == LOOKED_AT
    assert [(group.column, len(group.examples)) for group in groups] == [(f"c{i}", EXAMPLES) for i in range(3)]
    assert sum(group.rows for group in groups) == LOOKED_AT


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a,b", "a,b"),
        (b"a\tb\x00\xff\n", r"a\tb\x00\xff\n"),
        ("\u202e\u00fc".encode(), "\\u202e\u00fc"),
        (b"x" * 301, f"{'x' * 300} ... (301 bytes)"),
    ],
)
def test_raw_records_are_shown_as_text_that_prints(raw: bytes, text: str) -> None:
    assert shown(raw) == text


def test_histograms_of_splits_share_an_axis_and_its_ranges() -> None:
    small = numbers(40, histogram={"edges": [2.0, 3.0, 6.0], "counts": [10, 30]})
    chart = histogram({"train": numbers(), "eval": small})
    assert chart is not None
    assert (chart.x.low, chart.x.high) == (0.0, 6.0)
    # The axis has two ranges, as train has: 0 to 3 and 3 to 6. Train has 0.25 from 0 to 2 and 0.75 from 2 to 4.
    shares = {(line.tone, tuple(line.y)) for line in chart.marks if isinstance(line, Curve)}
    assert shares == {(0, (0.0, 0.625, 0.625, 0.375, 0.375, 0.0)), (1, (0.0, 0.25, 0.25, 0.75, 0.75, 0.0))}
    assert {tuple(line.x) for line in chart.marks if isinstance(line, Curve)} == {(0.0, 0.0, 3.0, 3.0, 6.0, 6.0)}


@pytest.mark.parametrize(
    "splits",
    [
        {"train": {"count": 0, "missing": 3}},
        {"train": numbers(histogram={"edges": [2.0, 2.0], "counts": [80]})},  # all equal
        {"train": numbers(histogram={"edges": [0.0, 1.0], "counts": [0]})},
    ],
)
def test_what_has_no_shape_has_no_histogram(splits) -> None:
    assert histogram(splits) is None


def test_frequent_values_are_those_of_the_first_split_and_then_those_of_others() -> None:
    train, evals = strings(("a", 9), ("b", 1)), strings(("b", 1), ("c", 3))
    values = [(value.value, value.shares) for value in frequent({"train": train, "eval": evals})]
    assert values == [("a", (0.9, 0.0)), ("b", (0.1, 0.25)), ("c", (0.0, 0.75))]
    top = frequent({"train": train | {"count": 20}, "eval": evals})  # only the most frequent values are counted
    assert [value.shares for value in top] == [(0.45, 0.0), (0.05, 0.25), (None, 0.75)]


PLACES = [{"path": "a.csv", "offset": 1_234}, {"path": "b.csv", "offset": 7}]
ROWS = {
    "records": 100,
    "share": 1.0,
    "repeated": {"split": "train", "records": 0, "of": 80},
    "equal": [{"splits": ["train", "eval"], "records": 3, "of": 20, "examples": [PLACES]}],
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


RELATED = {
    "rows": 80,
    "label": "late",
    "classes": ["yes"],
    "overall": [0.125],
    "features": [
        {
            "name": "age",
            "bins": [
                {"low": 0.0, "high": 2.0, "share": 0.25, "label": [0.5]},
                {"low": 3.0, "high": 4.0, "share": 0.7, "label": [0.0]},
                {"missing": True, "share": 0.05, "label": [0.0]},
            ],
        },
        {"name": "job", "values": [{"value": "nurse", "share": 0.75, "label": [0.1333]}]},
    ],
}
ONES = np.arange(30, dtype=np.float32)


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
}


def found(**parts: Any) -> dict[str, Any]:
    return {"format_version": 1, **parts}


def test_each_check_says_what_it_compared_and_what_it_found() -> None:
    page = Page(render_page(found(rows=ROWS, keys=KEYS, label=TELLING)))
    assert "equal rows in two splits: 3 of eval in train (all 100 rows)" in page.text
    assert "keys in two splits: none (1/4 of 100 rows, chosen by a hash of what is compared)" in page.text
    assert "features that tell the label: job" in page.text
    assert "a.csv, byte 1,234 b.csv, byte 7" in page.text
    assert "job 0.9987" in page.text
    assert "age yes against the rest: 0.7500 0.6100" in page.text


def test_the_label_is_shown_by_the_values_of_features() -> None:
    text = render_page(
        found(label=TELLING, relations=RELATED),
        comparisons=[compare(sample_of({"age": ONES}), sample_of({"age": ONES})).as_json()],
        rows=[{"age": HOSTILE}] * 3,
    )
    page = Page(text)
    assert HOSTILE not in text
    order = [attributes["id"] for tag, attributes in page.elements if tag == "section"]
    assert order[-4:] == ["features", "rows", "drift", "job"]
    assert "0 to 2 (25.0 % of the rows): 50.0 % are yes" in page.text
    assert "nurse 75.0 % 13.3 %" in page.text
    assert "80 rows of the train split" in page.text


def test_records_of_leakage_are_shown_where_they_could_be_read() -> None:
    page = Page(render_page(found(rows=ROWS, keys=KEYS), texts={("a.csv", 1_234): b"nurse,<b>4"}))
    assert "a.csv, byte 1,234 nurse,<b>4 b.csv, byte 7" in page.text
    assert places_of(found(rows=ROWS, keys=KEYS)) == [("a.csv", 1_234), ("b.csv", 7)]


def test_pairs_of_images_stand_side_by_side_with_what_they_are() -> None:
    pictures = {f"/photos/cats/{name}.jpg": f"data:image/jpeg;base64,{name}" for name in "abc"}  # d is gone
    leakage = found(images=IMAGES)
    text = render_page(leakage, pictures=pictures)
    page = Page(text)
    shown = [attributes["src"][-1] for tag, attributes in page.elements if tag == "img"]
    assert shown == ["c", "a", "b"]
    assert "Images of eval that look nearly the same as an image of train: 4" in page.text
    assert "Images with more than one label: 1" in page.text
    assert HOSTILE not in text
    assert files_of(leakage) == [f"/photos/cats/{name}.jpg" for name in "cdab"]


def render_page(leakage: dict[str, Any] | None, **changes: Any) -> str:
    values: dict[str, Any] = {"rejects": [], "statistics": statistics_of(AGE, JOB, LABEL), **changes}
    return render(manifest_of(), leakage=leakage, **values)


# Boxes that scroll sideways, and those of features.
CUT, CUT_FEATURES = (
    f"[...doc.querySelectorAll('{boxes}')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
    for boxes in (".box", ".feature .box")
)
SMALLEST = """Math.min(...[...doc.querySelectorAll("svg.chart text")].map((e) => e.getBoundingClientRect().height))"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A page with every section."""
    pictures = {f"/photos/cats/{name}.jpg": _PIXEL for name in "abcd"}
    text = render(
        manifest_of(warnings=(DataWarning(feature="age", code="constant", message="age: is the same in every row"),)),
        statistics=statistics_of(AGE, JOB, LABEL),
        rejects=[reject("age"), reject(None, b"x" * 5000)],
        phases=[("analyzing", 1.0), ("transforming", 3.0)],
        images={"cats": [_PIXEL] * 10},
        leakage=found(rows=ROWS, keys=KEYS, images=IMAGES, label=TELLING, relations=RELATED),
        pictures=pictures,
        comparisons=[compare(sample_of({"age": ONES}), sample_of({"age": ONES * 2})).as_json()],
        rows=[{f"column_{i}": "a long cell " * 3 for i in range(30)}] * 10,
        texts={("a.csv", 1_234): b"1,2," * 100},
    )
    (tmp_path / "report.html").write_text(text)
    return tmp_path / "report.html"


_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.mark.browser
def test_nothing_is_refused_or_fails(page: Path) -> None:
    assert opened(page).console == []


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window(page: Path, tmp_path: Path, width: int) -> None:
    """Only what is inside a box may be wider; the box scrolls. The text of charts stays legible."""
    assert measured(page, TOO_WIDE, width=width) == "false"
    assert measured(page, CUT_FEATURES, width=width) == "0"
    assert float(measured(page, SMALLEST, width=width)) >= 10
    screenshot(page, tmp_path / "page.png", width=1280, height=2000)
    with PIL.Image.open(tmp_path / "page.png") as image:
        assert len(image.convert("RGB").getcolors(1 << 24)) > 50  # it is not empty


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_stands_out_from_what_is_behind_it(page: Path, dark: bool) -> None:
    assert measured(page, FAINT, width=800, dark=dark) == "0"


@pytest.mark.browser
def test_a_comparison_fits_a_phone(tmp_path: Path) -> None:
    first, second = ({f"c{i}{'x' * 60}": np.arange(30, dtype=np.float32) + i * of for i in range(9)} for of in (0, 1))
    path = tmp_path / "compared.html"
    path.write_text(data_report.page("a" * 90, [compare(sample_of(first), sample_of(second)).as_json()]))
    assert measured(path, TOO_WIDE, width=400) == "false"
    assert measured(path, CUT, width=400) == "0"


@pytest.mark.browser
def test_features_are_searched_and_sorted(tmp_path: Path) -> None:
    items = [item(f"f{i}", "numeric", numbers(), numbers(40, missing=i)) for i in range(1000)]
    report = tmp_path / "report.html"
    report.write_text(render(manifest_of(), statistics=statistics_of(*items), rejects=[]))
    search = "const s = document.getElementById('search'); s.value = 'F77'; s.dispatchEvent(new Event('input'));"
    assert Page(opened(report, script=search).dom).cards() == ["f77", *(f"f77{i}" for i in range(10))]
    order = "const o = document.getElementById('order'); o.value = 'missing'; o.dispatchEvent(new Event('change'));"
    shown = opened(report, script=order)
    assert Page(shown.dom).cards()[:3] == ["f999", "f998", "f997"]
    assert shown.console == []
