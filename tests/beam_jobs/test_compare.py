"""`compare`: a dataset against raw files, other datasets and its own splits."""

from __future__ import annotations

import csv
import gzip
import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_jobs.compare import main
from beam_jobs.raw_files import read_rows
from schemas.comparison import compare
from schemas.dataset import OpenDataset
from schemas.errors import UsageError
from schemas.spec.loader import parse_schema
from tests.support.datasets import written, written_rows
from tests.support.html_page import Page
from tests.support.people import HEADER, LEAN_SCHEMA, people_csv

Row = dict[str, str]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs the command; returns the exit code and what --json prints."""

    def run(*argv: object) -> tuple[int, dict[str, Any]]:
        code = main([*map(str, argv), "--json", "--quiet"])
        return code, json.loads(capsys.readouterr().out)

    return run


def write(path: Path, change: Callable[[Row, int], Row | None] = lambda row, _: row, *, rows: int = 500) -> Path:
    """The rows of the dataset as they were, each changed; None leaves it out."""
    originals = list(csv.DictReader(people_csv(rows).splitlines()))
    changed = [changed_row for i, row in enumerate(originals) if (changed_row := change(dict(row), i)) is not None]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, changed[0])
        writer.writeheader()
        writer.writerows(changed)
    return path


def features(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {feature["name"]: feature for feature in data["comparisons"][0]["features"]}


def test_the_same_rows_stay_within_the_noise(all_kinds: OpenDataset, tmp_path: Path, ask) -> None:
    code, data = ask(all_kinds.path, write(tmp_path / "same.csv"), "--drift", 0.001)
    assert code == 0
    assert data["comparisons"][0]["verdict"] == "ok"
    assert data["raw"] == {"files": 1, "read": 500, "rejected": {}, "complete": True, "lacks": []}
    names = features(data).keys()
    assert {"age", "point[p1]", "pet", "city", "w", "y"} <= names
    assert not {"id", "note", "city_x_grade"} & names


def test_served_requests_lack_the_label_and_have_other_columns(all_kinds: OpenDataset, tmp_path: Path, ask) -> None:
    def served(row: Row, i: int) -> Row:
        cells = {name: row[name] for name in reversed(row) if name not in ("y", "w", "id", "note")}
        return {"request_id": f"r{i}", **cells, "prediction": "yes", "model": "7", "time": "2026-01-01T00:00:00Z"}

    _, whole = ask(all_kinds.path, write(tmp_path / "whole.csv"))
    write(tmp_path / "a.csv", lambda row, i: served(row, i) if i < 200 else None)
    write(tmp_path / "b.csv", lambda row, i: served(row, i) if i >= 200 else None)
    code, data = ask(all_kinds.path, str(tmp_path / "[ab].csv"))
    assert code == 0
    assert data["raw"]["lacks"] == ["id", "w", "y"]
    feature_drifts, expected = features(data), features(whole)
    assert feature_drifts.keys() == expected.keys() - {"w", "y"}
    for name, feature in feature_drifts.items():
        assert feature["distance"] == pytest.approx(expected[name]["distance"], abs=1e-12)
        assert feature["missing"] == pytest.approx(expected[name]["missing"])


DRIFTS: dict[str, tuple[Callable[[Row], dict[str, str]], str]] = {
    "a shifted number": (lambda row: {"size": str(int(row["size"]) + 30)}, "size"),
    "ten times as many missing": (lambda row: {"pay": "?"}, "pay"),
    "one place of a one-hot group": (lambda row: {"pet0": "1", "pet1": "0", "pet2": "0"}, "pet"),
    "the label": (lambda row: {"y": "no"}, "y"),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_what_has_drifted_comes_first(all_kinds: OpenDataset, tmp_path: Path, ask, name: str) -> None:
    change, feature = DRIFTS[name]
    raw = write(tmp_path / "new.csv", lambda row, _: row | change(row))
    code, data = ask(all_kinds.path, raw, "--drift", 0.05)
    assert code == 1
    comparison = data["comparisons"][0]
    assert [f["name"] for f in comparison["features"] if f["verdict"] == "fail"] == [feature]
    assert comparison["features"][0]["name"] == feature
    assert f"{feature} drifted by" in comparison["summary"]


def test_a_bool_is_what_it_means(all_kinds: OpenDataset, tmp_path: Path, ask) -> None:
    spelt = {"yes": "1", "No": "false", "TRUE": "t", "?": "?"}
    raw = write(tmp_path / "spelt.csv", lambda row, _: row | {"member": spelt[row["member"]]})
    _, same = ask(all_kinds.path, write(tmp_path / "same.csv"))
    _, data = ask(all_kinds.path, raw)
    assert features(data)["member"]["distance"] == features(same)["member"]["distance"]
    assert features(data)["member"]["unseen"] is None


def test_rejects_are_counted_and_said(all_kinds: OpenDataset, tmp_path: Path, capsys) -> None:
    raw = tmp_path / "bad.csv.gz"
    no_class = people_csv(1).splitlines()[1].removesuffix("yes") + "maybe\n"
    raw.write_bytes(gzip.compress((people_csv(100) + "too,few\n" * 3 + no_class).encode()))
    assert main([all_kinds.path, str(raw)]) == 0
    printed = capsys.readouterr().out
    assert "read       104 rows from 1 file; 4 rejected" in printed
    assert f"too_few_columns          3, such as {raw} at {len(people_csv(100)):,}: " in printed
    assert "label_not_in_values      1" in printed


def test_two_datasets_and_the_splits_of_one(all_kinds: OpenDataset, tmp_path: Path, ask, capsys) -> None:
    code, data = ask(all_kinds.path, all_kinds.path, "--drift", 1e-6)
    assert (code, {feature["distance"] for feature in features(data).values()}) == (0, {0.0})
    code, data = ask(all_kinds.path)
    assert [comparison["second"] for comparison in data["comparisons"]] == ["eval", "test"]
    code, data = ask(all_kinds.path, "--split", "eval", "--feature", "age", "point")
    assert [comparison["second"] for comparison in data["comparisons"]] == ["train", "test"]
    assert features(data).keys() == {"age", "point[p0]", "point[p1]", "point[p2]"}
    assert main([all_kinds.path]) == 0
    printed = capsys.readouterr().out
    assert "no feature differs by more than chance explains. Not judged: no `drift:` threshold is set" in printed
    assert "ok: " not in printed
    assert [word in printed for word in ("point[p1]", "city", "y (label)")] == [True] * 3


def test_a_page_escapes_what_comes_from_data_and_loads_nothing(all_kinds: OpenDataset, tmp_path: Path, ask) -> None:
    raw = write(tmp_path / "new.csv", lambda row, _: row | {"city": "<script>alert(1)</script>"})
    code, data = ask(all_kinds.path, raw, "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert code == 0
    assert data["html"] == str(tmp_path / "page.html")
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert not {"img", "link", "iframe"} & set(page.tags)
    assert [value for name, value in page.attributes if name in ("src", "href")] == []
    assert page.tags.count("polygon") > 20  # the bars
    shown = [feature for feature in data["comparisons"][0]["features"] if feature["drift"]]
    assert shown
    for feature in shown:  # the words of the terminal, also where several values differ most
        assert html.escape(feature["most"]) in text.replace("&#39;", "&#x27;")
    assert main([all_kinds.path, str(raw), "--html", str(tmp_path / "page.html")]) == 2, "it is there already"


MISTAKES = {
    "no dataset": (["{folder}"], "no manifest.json"),
    "the dataset second": (["{raw}", "{data}"], "the dataset comes first"),
    "a dataset without statistics": (["{bare}"], "has no statistics to compare"),
    "a dataset without statistics as the other": (["{data}", "{bare}"], "has no statistics to compare"),
    "no such file": (["{data}", "{raw}/nothing"], "no such file"),
    "a folder of rows": (["{data}", "{folder}"], "*.csv"),
    "a file without a feature's column": (
        ["{data}", "{lacking}"],
        "the header lacks 'size', which the dataset's",
    ),
    "no records": (["{data}", "{empty}"], "none of 0 records can be compared"),
    "nothing but rejects": (["{data}", "{broken}"], "none of 2 records can be compared"),
    "no such split": (["{data}", "--split", "dev"], "is no split of"),
    "no such feature": (["{data}", "{raw}", "--feature", "aeg"], "--feature aeg: is no feature of"),
    "a sample of a dataset": (["{data}", "{data}", "--sample"], "--sample is for raw files"),
    "a threshold above 1": (["{data}", "--drift", "1.5"], "--drift 1.5: must be more than 0 and at most 1"),
    "--overwrite alone": (["{data}", "--overwrite"], "--overwrite is for --html FILE"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line_and_exit_with_2(all_kinds: OpenDataset, tmp_path: Path, capsys, name: str) -> None:
    argv, message = MISTAKES[name]
    raw = write(tmp_path / "raw.csv")
    lacking = write(tmp_path / "lacking.csv", lambda row, _: {k: v for k, v in row.items() if k != "size"})
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "broken.csv").write_text(f"{HEADER}\na,b\nc,d\n")
    places = {"data": all_kinds.path, "raw": raw, "folder": tmp_path, "lacking": lacking}
    places |= {word: tmp_path / f"{word}.csv" for word in ("empty", "broken")}
    if "{bare}" in argv:
        places["bare"] = written(tmp_path, LEAN_SCHEMA, str(raw), output=str(tmp_path / "bare"), statistics=False).path
    assert main([arg.format(**places) for arg in argv]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("labelled", [True, False])
def test_images(tmp_path: Path, ask, labelled: bool) -> None:
    from PIL import Image

    from tests.support.image_files import write_folders

    schema = (
        "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, store: raw}\n"
        "split: {by: content, train: 1.0, eval: 0.0, test: 0.0}\ndrift: 0.2\n"
    )
    write_folders(tmp_path / "raw", per_class=15)
    written(tmp_path, schema, str(tmp_path / "raw/*/*"))
    code, data = ask(tmp_path / "out", tmp_path / "raw")
    assert (code, {feature["distance"] for feature in features(data).values()}) == (0, {0.0})
    for i, path in enumerate(sorted((tmp_path / "raw").glob("*/*"))):
        with Image.open(path) as image:
            bright = image.convert("RGB").point(lambda value: min(255, value + 100)).resize((80, 60))
        folder = tmp_path / "new" / (path.parent.name if labelled else "served")
        folder.mkdir(parents=True, exist_ok=True)
        bright.save(folder / f"{i}.png")
    (folder / "broken.png").write_bytes(b"no image")
    code, data = ask(tmp_path / "out", tmp_path / "new/*/*")
    feature_drifts = features(data)
    assert code == 1
    assert data["raw"]["lacks"] == ([] if labelled else ["image/class/text"])
    assert sum(data["raw"]["rejected"].values()) == 1
    assert {"image/brightness", "image/file/width"} <= {
        name for name, f in feature_drifts.items() if f["verdict"] == "fail"
    }
    assert ("image/class/text" in feature_drifts) == labelled


def test_a_dataset_of_fewer_features(all_kinds: OpenDataset, people_once, tmp_path: Path, capsys) -> None:
    code = main([all_kinds.path, str(people_once.output)])
    printed = capsys.readouterr().out
    assert code == 0
    assert f"only in {all_kinds.path}" in printed


POSITIONAL = b"""\
name: parcels
format: csv
csv: {header: none, num_columns: 4}
features:
  - {name: size, columns: [0, 1], kind: numeric}
  - {name: city, column: 3, kind: category}
label: {name: late, column: 2, kind: category, values: ["0", "1"]}
"""

NUMBERED = b"""\
name: numbered
format: csv
csv: {header: none, columns: ["0", "1", "2"]}
features:
  - {name: first, column: "0", kind: numeric}
  - {name: second, column: "1", kind: numeric}
label: {name: late, column: "2", kind: category, values: ["0", "2"]}
"""


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("1,2,0,a\n3,4,1,b\n", ()),
        ("1,2,a\n3,4,b\n", ("late",)),
        ("id,city,size[1],size[0],prediction\n7,a,2,1,0\n8,b,4,3,1\n", ("late",)),
        ('"size.0","size.1","city","_id","_prediction"\n1,2,"a","r1","0"\n3,4,"b","r2","1"\n', ("late",)),
    ],
)
def test_columns_by_their_places(tmp_path: Path, text: str, lacks: tuple[str, ...]) -> None:
    (tmp_path / "raw.csv").write_text(text)
    schema = parse_schema(POSITIONAL, "s.yaml")
    raw_rows = read_rows([str(tmp_path / "raw.csv")], schema, max_input_ratio=100)  # type: ignore[arg-type]
    assert (raw_rows.read, raw_rows.lacks, raw_rows.rejected) == (2, lacks, {})
    assert raw_rows.sample is not None
    assert [column.values.count for column in raw_rows.sample.columns.values()] == [2] * (4 - len(lacks))
    same = read_rows([str(tmp_path / "raw.csv")], schema, max_input_ratio=100)  # type: ignore[arg-type]
    assert same.sample is not None
    assert not compare(raw_rows.sample, same.sample).drifted


def test_numbers_are_no_header_also_if_columns_are_called_so(tmp_path: Path) -> None:
    (tmp_path / "raw.csv").write_text("1,0,2\n0,1,2\n1,1,0\n")
    raw_rows = read_rows([str(tmp_path / "raw.csv")], parse_schema(NUMBERED, "s.yaml"), max_input_ratio=100)  # type: ignore[arg-type]
    assert (raw_rows.read, raw_rows.lacks, raw_rows.rejected) == (3, (), {})


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("size.0,size.2,city,_id", r"raw\.csv: the header lacks 'size\[1\]', which the dataset's features read"),
        ("size.0,size.1,City,_id", r"lacks 'city', .*\. It has 'City', which is not 'city': rename one of them"),
    ],
)
def test_a_header_of_a_file_of_positions_that_lacks_a_column(tmp_path: Path, header: str, message: str) -> None:
    (tmp_path / "raw.csv").write_text(f"{header}\n1,2,a,7\n")
    with pytest.raises(UsageError, match=message):
        read_rows([str(tmp_path / "raw.csv")], parse_schema(POSITIONAL, "s.yaml"), max_input_ratio=100)  # type: ignore[arg-type]


def test_a_sample_is_from_all_over_the_file(tmp_path: Path) -> None:
    raw = tmp_path / "raw.csv"
    raw.write_text("".join(f"{i},{i % 7},0,a\n" for i in range(300_000)))
    raw_rows = read_rows([str(raw)], parse_schema(POSITIONAL, "s.yaml"), max_input_ratio=100, sample=50_000)  # type: ignore[arg-type]
    assert not raw_rows.complete
    assert 50_000 <= raw_rows.read < 100_000
    assert raw_rows.sample is not None
    assert raw_rows.sample.columns["size[0]"].values.moments.high > 150_000


GROUPED = """\
name: stays
format: csv
csv: {header: present}
features:
  - {name: ward, kind: category}
  - {name: age, kind: numeric}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: [ward], train: 0.6, eval: 0.2, test: 0.2}
"""


def test_splits_of_whole_groups_are_no_sign_of_drift(tmp_path: Path, capsys) -> None:
    rows = [f"w{i % 12},{50 + i % 12 + i % 5},{'yes' if i % 3 else 'no'}" for i in range(600)]
    dataset = written_rows(tmp_path, GROUPED, "ward,age,late", rows)
    assert main([dataset.path]) == 0
    printed = capsys.readouterr().out
    assert "Each split holds whole groups of rows, those with the same ward." in printed
    assert printed.splitlines()[-1].startswith("distance   0 where values are alike")
    assert main([dataset.path, str(tmp_path / "rows.csv")]) == 0
    assert "whole groups" not in capsys.readouterr().out


def test_between_splits_of_whole_groups_a_threshold_to_fail_above_only_warns(tmp_path: Path, capsys) -> None:
    rows = [f"w{i % 12},{50 + i % 12 + i % 5},{'yes' if i % 3 else 'no'}" for i in range(600)]
    dataset = written_rows(tmp_path, f"{GROUPED}drift: {{warn: 0.05, fail: 0.1}}\n", "ward,age,late", rows)
    warnings = [warning.message for warning in dataset.manifest.warnings if warning.code == "drift"]
    assert any("ward drifted by 0." in message and "eval against train. Each split" in message for message in warnings)
    capsys.readouterr()
    assert main([dataset.path]) == 0
    assert "warning: late drifted by " in capsys.readouterr().out
    assert main([dataset.path, "--drift", "0.1"]) == 0  # of features without a threshold
    (tmp_path / "other.csv").write_text("ward,age,late\n" + "w0,50,no\n" * 600)
    assert main([dataset.path, str(tmp_path / "other.csv")]) == 1
    assert "FAIL: " in capsys.readouterr().out
