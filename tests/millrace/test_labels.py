"""Labels joined to stored requests: what preprocessing takes, each row once, however often and in whatever order.

And what a server stored of files without a header: compared with the dataset, labelled, appended to it.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_jobs.compare import main as compare
from beam_jobs.core.options import AppendOptions, JobOptions
from beam_jobs.runs.append import run_append
from beam_jobs.runs.job import run_job
from millrace.label import command, joining
from millrace.label.outputs import label_columns
from millrace.store.layout import RequestLayout
from millrace.store.writer import ServedBatch
from schemas.dataset import open_dataset
from schemas.samples.tables import covertype_rows
from schemas.spec.features import CategoryLabel
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema
from tests.conftest import built_once
from tests.support.csv_datasets import LATE
from tests.support.image_files import png
from tests.support.stored_requests import late_batch, stored_images, write_store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path) -> Path:
    """200 requests."""
    batches = [late_batch([f"{i}-{k}" for k in range(10)], age=20 + i) for i in range(20)]
    write_store(tmp_path / "store", LATE.encode(), *batches)
    return tmp_path / "store"


@pytest.fixture
def join(capfd, tmp_path):
    """`join(lines, *more)`: the exit code and the counts, or the error. Each run gets a file of its own in `out/`."""

    def join(lines: Sequence[str], *more: str) -> tuple[int, dict]:
        (tmp_path / "labels.csv").write_text("".join(f"{line}\n" for line in lines))
        run = len(list((tmp_path / "out").glob("*.csv")))
        output = () if "--output" in more else ("--output", str(tmp_path / f"out/{run}.csv"))
        capfd.readouterr()
        code = command.main([str(tmp_path / "store"), str(tmp_path / "labels.csv"), *more, *output, "--json"])
        return code, json.loads(capfd.readouterr().out)

    return join


def emitted(tmp_path: Path) -> list[dict[str, str]]:
    rows = []
    for path in sorted((tmp_path / "out").glob("*.csv")):
        with open(path, newline="") as file:
            rows += list(csv.DictReader(file))
    return rows


def test_keys_that_are_whole_numbers_have_one_spelling(join, tmp_path):
    write_store(tmp_path / "store", LATE.encode(), late_batch(["7", "8.0", "9.5", "10"], age=20))
    code, counts = join(["id,late", "7.0,yes", "8,no", "9.5,yes", "10.0,yes", "10,yes"])
    assert code == 0
    assert (counts["written"], counts["unmatched_labels"]) == (4, 0)
    assert [row["late"] for row in emitted(tmp_path)] == ["yes", "no", "yes", "yes"]


@pytest.mark.usefixtures("store")
def test_rows_are_written_with_their_labels_and_only_once(join, tmp_path):
    label_lines = [f"{i}-{k},{'yes' if k % 2 else 'no'}" for i in range(10) for k in range(10)]
    code, first = join(["id,late", *label_lines, "unknown,yes"])
    assert code == 0
    assert (first["stored"], first["written"], first["unlabelled"], first["unmatched_labels"]) == (200, 100, 100, 1)
    code, again = join(["id,late", *label_lines])
    assert (code, again["written"], again["before"], again["file"]) == (0, 0, 100, None)
    rest = [f"{i}-{k},no" for i in range(20) for k in range(10)]
    code, more = join(["id,late", *rest])
    assert (more["written"], more["before"], more["contradicted"]) == (100, 50, 50)
    code, error = join(["id,late", *rest], "--output", more["file"])
    assert (code, "exists already; give another file" in error["error"]) == (2, True)
    rows = emitted(tmp_path)
    assert sorted(row["id"] for row in rows) == sorted(f"{i}-{k}" for i in range(20) for k in range(10))
    assert {row["id"]: row["late"] for row in rows if row["id"].startswith("3-")} == {
        f"3-{k}": "yes" if k % 2 else "no" for k in range(10)
    }


@pytest.mark.usefixtures("store")
def test_conflicts_are_counted_and_wait(join, tmp_path):
    code, report = join(["_id,late", "0-0,yes", "0-0,yes", "0-1,yes", "0-1,no", "0-2,no"])
    assert (code, report["written"], report["conflicting"]) == (0, 2, 1)
    assert join(["_id,late", "0-1,no"])[1]["written"] == 1
    assert [(row["id"], row["late"]) for row in emitted(tmp_path)] == [("0-0", "yes"), ("0-2", "no"), ("0-1", "no")]


@pytest.mark.usefixtures("store")
def test_a_label_that_preprocessing_would_reject_waits_for_a_right_one(join, tmp_path):
    code, report = join(["id,late", "0-0,yes", "0-1,maybe", "0-2,", "0-3,YES", "0-4,no", "0-4,perhaps", "0-5, no "])
    assert (code, report["written"], report["unlabelled"], report["conflicting"]) == (0, 3, 197, 0)
    path = tmp_path / "labels.csv"
    expected = "expected one of no, yes"
    assert (report["invalid_labels"], report["examples"]) == (
        4,
        [
            f"{path}: line 3: late: label_not_in_values (found 'maybe', {expected})",
            f"{path}: line 4: late: missing_label (found '', which means missing; expected a label)",
            f"{path}: line 5: late: label_not_in_values (found 'YES', {expected})",
            f"{path}: line 7: late: label_not_in_values (found 'perhaps', {expected})",
        ],
    )
    assert join(["id,late", "0-1,yes", "0-2,no", "0-3,yes"])[1]["written"] == 3
    labels = {row["id"]: row["late"].strip() for row in emitted(tmp_path)}
    assert labels == {"0-0": "yes", "0-4": "no", "0-5": "no", "0-1": "yes", "0-2": "no", "0-3": "yes"}


NUMBER = LATE.replace('kind: category, values: ["no", "yes"]', "kind: numeric")
WEIGHTED = LATE.replace("label:", "  - {name: w, kind: weight}\nlabel:")
SPLIT = LATE.replace("label:", "  - {name: month, kind: ignore}\nlabel:").replace("by: row", "by: [month]")
MARKED = LATE.replace("{header: present}", "{header: present, delimiter: ';', missing: ['?']}")


@pytest.mark.parametrize(
    ("schema_yaml", "header", "labels"),
    [
        (NUMBER, "id,late", {"1.5": "", " -2 ": "", "x": "not_a_number", "1e99": "out_of_range", "": "missing_label"}),
        (WEIGHTED, "id,late,w", {"yes,2": "", "no,-1": "w: negative_weight", "yes,much": "w: not_a_number"}),
        (SPLIT, "id,late,month", {"yes,": "", "no,May": "", "never,May": "late: label_not_in_values"}),
        (MARKED, "id;late", {"yes": "", "?": "missing_label", "yes,": "label_not_in_values"}),
        (MARKED, "id,late", {"yes": "", "?": "missing_label", "yes;": "label_not_in_values"}),
    ],
)
def test_which_labels_preprocessing_would_reject(tmp_path, join, schema_yaml, header, labels):
    write_store(tmp_path / "store", schema_yaml.encode(), late_batch([f"r{i}" for i in range(len(labels))]))
    (tmp_path / "first.csv").write_text("id,late,w,month\n")  # of another form than the one that follows it
    lines = [header, *(f"r{i}{header[2]}{text}" for i, text in enumerate(labels))]
    code, report = join(lines, str(tmp_path / "first.csv"))
    wrong = {i: reason for i, reason in enumerate(labels.values(), start=2) if reason}
    assert (code, report["written"], report["invalid_labels"]) == (0, len(labels) - len(wrong), len(wrong))
    for (i, reason), example in zip(wrong.items(), report["examples"], strict=True):
        assert example.startswith(f"{tmp_path / 'labels.csv'}: line {i}: ")
        assert reason in example


def test_what_it_prints(store, tmp_path, capsys):
    lines = ["id,late", "0-0,yes", "0-1,maybe", *(f"{i}-9,-" for i in range(5))]
    (tmp_path / "labels.csv").write_text("".join(f"{line}\n" for line in lines))
    assert command.main([str(store), str(tmp_path / "labels.csv"), "--output", str(tmp_path / "out.csv")]) == 0
    problem = "label_not_in_values (found"
    assert capsys.readouterr().out.splitlines() == [
        "      200 requests in the store",
        "        1 row labelled now",
        "      199 rows without a label yet",
        "        6 labels left out, of rows that preprocessing would reject:",
        f"          {tmp_path}/labels.csv: line 3: late: {problem} 'maybe', expected one of no, yes)",
        *(
            f"          {tmp_path}/labels.csv: line {i}: late: {problem} '-', expected one of no, yes)"
            for i in range(4, 8)
        ),
        "          and 1 more",
        f"labelled  {tmp_path}/out.csv",
    ]


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id,label", "has no column 'late'"),
        ("key,late", "has no column 'id'; its header is key, late"),
        ('id,late\n"a,yes', "line 2 has 1 cells, and the header 2"),
        ("id,late\na,b,c", "line 2 has 3 cells, and the header 2"),
    ],
)
def test_usage(join, header, message):
    code, error = join([header])
    assert code == 2
    assert message in error["error"]


@pytest.mark.usefixtures("store")
def test_an_output_that_cannot_be_written_leaves_nothing_behind(join, tmp_path):
    (tmp_path / "a file").touch()
    for output in (tmp_path / "a file" / "out.csv", tmp_path / "*.csv", Path("/sys/out.csv")):
        labels = (str(tmp_path / "*.csv"),) if "*" in output.name else ()
        code, error = join(["id,late", "0-0,yes"], *labels, "--output", str(output))
        assert (code in (1, 2), str(output.parent) in error["error"]) == (True, True), error
    assert join(["id,late", "0-0,yes"])[1]["written"] == 1


def test_no_store(tmp_path, capsys):
    assert command.main([str(tmp_path / "x"), "x.csv", "--output", str(tmp_path / "out.csv")]) == 2
    assert "holds no requests; give the --store of a server" in capsys.readouterr().err


# Runs `millrace label` with ever more labels, each time killed before another SQL statement, and once to its end.
KILLS = """
import os, sqlite3, sys
from millrace.label import command, joining
from millrace.store import database

folder = sys.argv[1]
argv = [f"{folder}/store", f"{folder}/labels.csv", "--output", ""]
connect = database.connect

def connect_and_count(*args, **settings):
    opened, left = connect(*args, **settings), [step]

    def count(statement):
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)

    opened.set_trace_callback(count)
    return opened

joining.connect = connect_and_count
joining._ROWS_AT_ONCE = 16
names = [f"{i}-{k}" for i in range(20) for k in range(10)]
output = 1000
for step in [*range(1, 40), 0, 0]:
    argv[-1] = f"{folder}/out/{output}.csv"
    count = 5 * step if step else 200
    with open(f"{folder}/labels.csv", "w") as file:
        file.write("id,late\\n" + "".join(f"{name},yes\\n" for name in names[:count]))
    child = os.fork()
    if child == 0:
        os._exit(command.main(argv))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
    output += code != 9  # a run that was killed is run again
"""


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_a_kill_at_any_moment_leaves_each_row_in_one_file(tmp_path):
    program = [sys.executable, "-c", KILLS, str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    codes = [int(line) for line in done.stdout.splitlines() if line.isdigit()]
    assert set(codes) == {9, 0}
    assert codes.count(9) >= 8
    assert codes[-1] == 0
    assert sorted(row["id"] for row in emitted(tmp_path)) == sorted(f"{i}-{k}" for i in range(20) for k in range(10))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize("function", ["write_table", "_finish"])
def test_an_interrupted_run_is_completed_with_the_same_bytes(join, tmp_path, monkeypatch, function):
    """Also if the server has stored more rows of these labels since."""
    labels = ["id,late", *(f"{i}-0,yes" for i in range(20)), "new,no"]
    path = tmp_path / "labelled.csv"
    with monkeypatch.context() as patch:
        patch.setattr(joining, function, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert join(labels, "--output", str(path))[0] == 130
    before = path.read_bytes() if path.exists() else None
    assert (before is None) == (function == "write_table")
    write_store(tmp_path / "store", LATE.encode(), late_batch(["new"]))
    code, error = join(labels, "--output", str(tmp_path / "other.csv"))
    assert (code, f"handed rows to {path}" in error["error"]) == (2, True)
    code, counts = join(labels, "--output", str(path))
    assert (code, counts["written"], counts["stored"], counts["file"]) == (0, 20, 200, str(path))
    assert before in (None, path.read_bytes())
    with open(path, newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [f"{i}-0" for i in range(20)]
    assert join(labels)[1]["written"] == 1


def answered(schema: Schema, rows: int) -> ServedBatch:
    """Requests of a schema, of zeros and empty strings, with an error in the last row."""
    from schemas.spec.table import serving_columns

    columns = {
        c.name: np.array([b"x"] * rows, object)
        if c.dtype == "string"
        else np.arange(rows * (c.width or 1), dtype=np.float32).reshape((rows, c.width) if c.width else (rows,))
        for c in serving_columns(schema)
    }
    errors = np.array([b""] * (rows - 1) + [b"x: missing_value"], object)
    outputs = {"class": np.array([b"1"] * rows, object), "error": errors}
    return ServedBatch([f"r{i}" for i in range(rows)], [True] * rows, columns, outputs, "1", [1.0] * rows, 2.0)


@pytest.mark.parametrize("name", ["covertype", "census", "titanic"])
def test_files_have_the_columns_where_the_schema_finds_them(name, tmp_path, join):
    """By position without a header, by names that the schema gives, and by a header."""
    path = ROOT / "schemas" / f"{name}.yaml"
    schema = load_schema(str(path))
    assert isinstance(schema, Schema)
    assert isinstance(schema.label, CategoryLabel)
    write_store(tmp_path / "store", path.read_bytes(), answered(schema, 4))
    more = label_columns(schema, RequestLayout.of(schema))[1:]  # which the split is by
    (label_value, *_) = schema.label.values or ()
    rows = [[f"r{i}", label_value, *("x" for _ in more)] for i in range(4)]
    code, report = join([",".join(row) for row in (["_id", schema.label.name, *more], *rows)])
    assert (code, report["written"], report["not_predicted"]) == (0, 3, 1)
    from schemas.formats import row_format

    form = row_format(schema)
    file = form.open_file(report["file"], schema, label="required", max_input_ratio=10)
    (part,) = form.plan_ranges(file, range_bytes=1 << 20)
    read = list(form.read_range(part, schema, with_split=False))
    assert sum(d.read for d in read) == 3
    assert {r.reason for d in read for r in d.rejects} <= {"not_one_hot", "label_not_in_values", "not_a_bool"}


def test_images_go_into_the_folder_of_their_class(tmp_path, join):
    schema_yaml = b"name: s\nformat: image_folder\nimages: {resize: {exact: [8, 8]}}\n"
    images = [png(np.full((8, 8, 3), i, np.uint8)) for i in range(3)]
    outputs = {"class": np.array([b"cat"] * 3, object), "error": np.array([b""] * 3, object)}
    batch = ServedBatch(["a", "b", "c"], [True] * 3, {"image": np.array(images, object)}, outputs, "1", [1.0] * 3, 2.0)
    write_store(tmp_path / "store", schema_yaml, batch, batch)  # again: it is stored already
    for count in (2, 0):
        labels = ["_id,label", "a,cat", "b,dog", "c,dog/cat", "c,.."]
        code, report = join(labels, "--output", str(tmp_path / "out"))
        counts = [report[name] for name in ("written", "invalid_labels", "unlabelled")]
        assert (code, counts) == (0, [count, 2, 1])
        assert "line 4: label: 'dog/cat' cannot be the name of a folder" in report["examples"][0]
    placed = {path.parent.name: path.read_bytes() for path in (tmp_path / "out").glob("*/*.png")}
    assert placed == {"cat": images[0], "dog": images[1]}
    assert sorted(stored_images(tmp_path / "store").values()) == sorted(images)


SCHEMA = Path(__file__).parents[2] / "schemas" / "covertype.yaml"
ROWS, BATCH = 400, 100
Change = Callable[[np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return covertype_rows(ROWS, np.random.default_rng(1))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, rows: np.ndarray) -> Path:
    """A dataset of these rows. Not to be changed."""

    def build(folder: Path) -> None:
        preprocess(folder, "rows.csv", rows, "out")

    return built_once(tmp_path_factory, "covertype_served", build) / "out"


def preprocess(folder: Path, name: str, rows: np.ndarray, output: str) -> None:
    np.savetxt(folder / name, rows, fmt="%d", delimiter=",")
    run_job(JobOptions(schema=str(SCHEMA), input=(str(folder / name),), output=str(folder / output), quiet=True))


def store_requests(folder: Path, rows: np.ndarray) -> Path:
    """Stores requests with these rows, whose ids are their places."""
    batches = []
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH].astype(np.float32)
        ids = [f"r{start + i}" for i in range(len(batch))]
        columns = {"terrain": batch[:, :10], "wilderness_area": batch[:, 10:14], "soil_type": batch[:, 14:54]}
        outputs = {"class": np.full(len(batch), b"1", object), "error": np.full(len(batch), b"", object)}
        batches.append(ServedBatch(ids, [True] * len(batch), columns, outputs, "7", [1.8e9] * len(batch), 1.8e9))
    write_store(folder, SCHEMA.read_bytes(), *batches)
    return folder


def written_requests(store: Path) -> str:
    """The file of the requests of a store, without labels."""
    path = str(store.parent / "requests.csv")
    assert command.main([str(store), "--output", path]) == 0
    return path


def higher(rows: np.ndarray) -> np.ndarray:
    return rows + 300 * (np.arange(rows.shape[1]) == 0)


@pytest.mark.parametrize(
    ("change", "drifted"),
    [(np.copy, []), (higher, ["terrain[0]"])],
    ids=["the same rows", "a shifted number"],
)
def test_compared_with_the_dataset(
    dataset: Path,
    rows: np.ndarray,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Change,
    drifted: list[str],
) -> None:
    folder = store_requests(tmp_path / "store", change(rows))
    requests = written_requests(folder)
    assert capsys.readouterr().out == f"{ROWS:>9,} requests in {requests}\n"
    code = compare([str(dataset), requests, "--drift", "0.1", "--json", "--quiet"])
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["raw"] == {"files": 1, "read": ROWS, "rejected": {}, "complete": True, "lacks": ["cover_type"]}
    (comparison,) = data["comparisons"]
    assert len(comparison["features"]) == 12
    assert [feature["name"] for feature in comparison["features"] if feature["verdict"] == "fail"] == drifted
    assert code == (1 if drifted else 0)


def test_labelled_and_appended(rows: np.ndarray, tmp_path: Path) -> None:
    new = covertype_rows(BATCH, np.random.default_rng(2))
    preprocess(tmp_path, "rows.csv", rows, "out")
    store_requests(tmp_path / "store", new)
    (tmp_path / "labels.csv").write_text("_id,cover_type\n" + "".join(f"r{i},{row[54]}\n" for i, row in enumerate(new)))
    labelled = tmp_path / "labelled.csv"
    assert command.main([str(tmp_path / "store"), str(tmp_path / "labels.csv"), "--output", str(labelled)]) == 0
    assert (np.loadtxt(labelled, delimiter=",", quotechar='"') == new).all()
    run_append(AppendOptions(append_to=str(tmp_path / "out"), input=(str(labelled),), quiet=True))
    grown = open_dataset(str(tmp_path / "out")).manifest
    assert (sum(split.rows for split in grown.splits.values()), grown.rejected) == (ROWS + BATCH, 0)
