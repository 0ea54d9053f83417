"""What a job says of its data: warnings, drift between splits and datasets, and the report."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from beam_jobs.preprocess import main
from beam_jobs.runs import data_warnings
from beam_jobs.runs.data_report import EACH, ROWS
from beam_jobs.runs.job import check_inputs
from schemas.dataset import open_dataset
from schemas.dataset.command import main as dataset_command
from schemas.dataset.leakage import read_leakage
from schemas.dataset.manifest import read_manifest
from schemas.errors import MillraceError, UsageError
from tests.support.datasets import BAD, FEW, FEW_HEADER, FEW_ROWS, Folder, accounts_hold, folder_of_people, written
from tests.support.image_files import write_folders
from tests.support.people import LEAN_SCHEMA, MEASURED_SCHEMA, people_csv
from tests.support.written_records import examples

MANY = 500
FEATURES = {
    "fine": "{name: fine, kind: numeric}",
    "gone": "{name: gone, kind: numeric, missing: mean}",
    "nowhere": '{name: nowhere, kind: category, missing: "?"}',
    "silent": "{name: silent, kind: text}",
    "unsure": "{name: unsure, kind: bool, missing: true}",
    "still": "{name: still, kind: numeric, transform: none}",
    "one": "{name: one, kind: category}",
    "always": "{name: always, kind: bool}",
    "spelt": "{name: spelt, kind: category, values: [Red, Green]}",
    "part": "{name: part, columns: [p0, p3], kind: numeric, missing: 0.0, indicator: true}",
    "late": "{name: late, kind: numeric}",
    "rare": "{name: rare, kind: category, values: [x, y]}",
    "hot": "{name: hot, columns: [h0, h1], kind: one_hot}",
    "crossed": "{name: crossed, kind: cross, of: [one, hot], buckets: 9}",
    "pad": "{name: pad, kind: text, length: 4}",
    "w": "{name: w, kind: weight}",
}
COLUMNS = "fine,gone,nowhere,silent,unsure,still,one,always,spelt,p0,p1,p2,p3,late,rare,h0,h1,pad,w,y"


def row(i: int, y: str) -> str:
    """What is rare (`late`, `rare`) is in one row of all."""
    last = i == MANY - 1
    return (
        f"{i},,{'' if i % 2 else 'NA'},,NA,4.5,same,yes,{'red' if i % 2 else 'green'},{i},,7,{i % 3},"
        f"{1 if last else 0},{'x' if last else 'z'},1,0,{'a b' if i % 2 else 'b'},0,{y}"
    )


LABEL = '{name: y, kind: category, values: ["no", "yes"]}'
SPLIT_BY_FILE = "split: {by: file, train: train.csv, eval: eval.csv}\n"


def write(folder: Folder) -> list[str]:
    """Arguments of a job over 500 rows of the train split, and a few ordinary ones of the eval split."""
    listed = "".join(f"  - {feature}\n" for feature in FEATURES.values())
    csv = 'name: odd\nformat: csv\ncsv: {header: present, missing: ["", NA]}\n'
    path = folder.write("odd.yaml", [f"{csv}features:\n{listed}label: {LABEL}\n{SPLIT_BY_FILE}"])
    folder.write("train.csv", [COLUMNS, *(row(i, "yes") for i in range(MANY))])
    plain = "1,{0},{0},{0},yes,{0},{1},{2},Red,1,{0},{0},1,1,x,0,1,c d e f,2,{3}"
    evals = [plain.format(i, "same" if i % 2 else "else", "yes" if i % 2 else "no", "no") for i in range(9)]
    folder.write("eval.csv", [COLUMNS, *evals])
    inputs = str(folder.path / "*.csv")
    return ["--schema", path, "--input", inputs, "--output", str(folder.output), "--quiet", "--range_mb", "0.005"]


@pytest.mark.slow
def test_a_column_constant_in_the_train_split_is_a_warning(folder, capsys):
    assert main(write(folder)) == 0
    printed = capsys.readouterr().out
    manifest = read_manifest(str(folder.output))
    assert {(warning.feature, warning.code) for warning in manifest.warnings} == {
        ("gone", "missing"),
        ("nowhere", "missing"),
        ("silent", "missing"),
        ("unsure", "missing"),
        ("part", "missing"),
        ("part", "constant"),
        ("still", "constant"),
        ("one", "constant"),
        ("always", "constant"),
        ("hot", "constant"),
        ("w", "constant"),
        ("spelt", "values_never_occur"),
        ("spelt", "spellings"),
        ("y", "one_class"),
    }
    messages = {(warning.feature, warning.code): warning.message for warning in manifest.warnings}
    assert messages["gone", "missing"] == (
        "gone: the column is missing in every row of the train split, so a model learns nothing from it. "
        "Compare `csv: {missing: ...}` with the input, or declare it `kind: ignore`."
    )
    assert messages["part", "missing"].startswith("part: 1 of 4 columns (p1) is missing in every row")
    assert messages["w", "constant"].endswith(
        "all rows count alike, as without it. This is harmless if it is expected."
    )
    assert messages["part", "constant"].startswith("part: 1 of 4 columns (p2) is the same in every row")
    assert "the same in every row of the train split (4.5)" in messages["still", "constant"]
    assert "none of its `values` (Red, Green) occurs in the train split" in messages["spelt", "values_never_occur"]
    assert messages["spelt", "spellings"].startswith(
        "spelt: 'green' (250) and 'Green' (0); 'red' (250) and 'Red' (9) differ"
    )
    assert "the train split holds one class, 'yes'" in messages["y", "one_class"]
    for message in messages.values():
        assert f"warning    {message}" in printed
    assert dataset_command(["show", str(folder.output)]) == 0
    shown = capsys.readouterr().out
    assert all(f"warning: {message}" in shown for message in messages.values())
    assert dataset_command(["show", str(folder.output), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["warnings"] == [warning.model_dump() for warning in manifest.warnings]
    accounts_hold(folder.dataset)


@pytest.mark.slow
def test_a_constant_numeric_label_is_a_warning(folder):
    features = "features: [{name: fine, kind: numeric, transform: none}]\nlabel: {name: y, kind: numeric}\n"
    folder.write("train.csv", ["fine,y", *(f"{i},3" for i in range(100))])
    folder.write("eval.csv", ["fine,y", "1,5"])
    schema = f"name: odd\nformat: csv\ncsv: {{header: present}}\n{features}{SPLIT_BY_FILE}"
    dataset = folder.job(schema, str(folder.path / "*.csv"))
    (warning,) = dataset.manifest.warnings
    assert (warning.feature, warning.code) == ("y", "constant")
    assert warning.message.endswith("so a model has nothing to learn. Check that the input is complete.")


@pytest.mark.slow
def test_few_distinct_rows_make_uneven_splits_which_is_a_warning(folder):
    lines = [
        f"{'bell' if i % 3 else 'flat'},{'foul' if i % 7 > 2 else 'none'},{'edible' if i * i % 5 > 1 else 'poisonous'}"
        for i in range(150)
    ]
    path = folder.write("few.csv", ["cap,odor,class", *lines, *lines])
    schema = "name: few\nformat: csv\nfeatures: [{name: cap, kind: category}, {name: odor, kind: category}]\n"
    split = "label: {name: class, kind: category}\nsplit: {by: row, train: 0.8, eval: 0.2, test: 0}\n"
    (warning,) = (w for w in folder.job(schema + split, path).manifest.warnings if w.code == "uneven_splits")
    assert "since rows of equal values are in one split, and few rows are distinct" in warning.message
    equal = folder.write("equal.csv", ["cap,odor,class", *["bell,foul,edible"] * 300])
    with pytest.raises(MillraceError, match=r"is empty: it got none of 300 records; the splits are uneven \(rows"):
        folder.job(schema + split, equal, output=str(folder.path / "equal"))


@pytest.mark.slow
def test_a_split_for_evaluation_with_one_class_is_a_warning(folder):
    folder.write("train.csv", ["size,y", *(f"{i},{'no' if i % 2 else 'yes'}" for i in range(100))])
    folder.write("eval.csv", ["size,y", *(f"{i}.5,no" for i in range(20))])
    features = "features:\n  - {name: size, kind: numeric}\nlabel: {name: y, kind: category}\n"
    schema = f"name: odd\nformat: csv\ncsv: {{header: present}}\n{features}{SPLIT_BY_FILE}"
    dataset = folder.job(schema, str(folder.path / "*.csv"))
    (warning,) = dataset.manifest.warnings
    assert (warning.feature, warning.code) == ("y", "one_class")
    assert warning.message.startswith("y: the eval split holds one class, 'no', so AUC, precision and recall say")


@pytest.mark.slow
def test_words_that_differ_in_spelling_and_too_many_words_are_warnings(folder, monkeypatch):
    """And a number of most rows is a bucket of its own, apart from those above it."""
    monkeypatch.setattr(data_warnings, "LARGE_VOCABULARY", 300)
    features = (
        "{name: zeros, kind: numeric, transform: {bucketize: 10}}",
        "{name: x, kind: category}",
        "{name: limited, kind: category, top_k: 9}",
        "{name: town, kind: category, hash_buckets: 9}",
    )
    schema = "name: s\nformat: csv\nfeatures: [" + ", ".join(features) + "]\nlabel: {name: y, kind: category}\n"
    towns, answers = ("Köln", "Ko\u0308ln", "Bonn"), ("yes", "Yes\xa0", "no", "2", "2.0")
    rows = [f"{-1 if i % 99 == 50 else 0 if i % 20 else i},{i},{i},{towns[i % 3]},{answers[i % 5]}" for i in range(900)]
    dataset = folder.job(schema, folder.write("rows.csv", ["zeros,x,limited,town,y", *rows]))
    warnings: dict[str, dict[str, str]] = {}
    for warning in dataset.manifest.warnings:
        warnings.setdefault(warning.code, {})[warning.feature] = warning.message
    buckets = {example["zeros"][0] for split in dataset.splits for example in examples(dataset, split)}
    assert len(buckets) == 3  # below 0, 0, above 0
    differ = "differ in spelling only, and are different values to a model."
    assert warnings["spellings"] == {
        "town": f"town: 'Ko\\u0308ln' (300) and 'Köln' (300) {differ} Write them alike in the files.",
        "y": f"y: 'Yes\\xa0' (180) and 'yes' (180) {differ} Write them alike in the files, "
        "or map one to the other with `aliases` of the label.",
    }
    assert warnings["large_vocabulary"] == {
        "x": f"x: the train split has about {dataset.rows('train')} distinct values, and every worker, every training "
        "and the served model hold all of them in memory. Set `top_k`, `frequency_threshold` or `hash_buckets` in the "
        "schema."
    }


@pytest.mark.slow
def test_two_files_of_the_same_bytes_are_a_warning_and_their_rows_are_counted(folder, capsys):
    """Compressed or not, since their contents differ then; empty files are no copies."""
    schema = "name: s\nformat: csv\nfeatures: [{name: x, kind: numeric}]\nlabel: {name: y, kind: category}\n"
    rows = ["x,y", *(f"{i},{'ab'[i % 2]}" for i in range(200))]
    paths = [folder.write(name, rows) for name in ("a.csv", "a-copy.csv", "b.csv")]
    distinct_paths = [
        folder.write(name, lines) for name, lines in (("c.csv", ["x,y"]), ("d.csv", ["x,y"]), ("e.csv", ["x,y", "1,b"]))
    ]
    dataset = folder.job(schema, *paths, *distinct_paths)
    copy, first, second = sorted(paths)
    (warning,) = [warning for warning in dataset.manifest.warnings if warning.code == "equal_files"]
    assert warning.message == (
        f"input: 2 files with the bytes of another one: {first} those of {copy}, {second} those of {copy}. Their 400 "
        "records are in the dataset more than once; if this is not meant, leave them out."
    )
    assert dataset_command(["show", dataset.path]) == 0
    shown = capsys.readouterr().out
    assert "equal rows in two splits: none (all 601 rows)\nequal rows within train: " in shown
    assert " repeat another\n" in shown


TIMES = """\
name: log
format: csv
csv: {header: present, missing: [""]}
features:
  - {name: at, kind: numeric, missing: mean}
  - {name: size, kind: numeric, transform: none}
  - {name: both, columns: [b0, b1], kind: numeric, transform: none}
label: {name: late, kind: category}
"""


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"workers": 2}], ids=["one process", "with children"])
def test_numbers_that_float32_makes_the_same_are_a_warning(folder, changes):
    """A thousand epoch seconds become 56; many digits alone are no reason to warn."""
    header = "at,size,b0,b1,late"
    rows = [f"{1764288000 + 7 * i},{i}.12345678,{i % 9},{1e9 + i % 30},{'ny'[i // 4 % 2]}" for i in range(1000)]
    dataset = folder.job(TIMES, folder.write("log.csv", [header, *rows, ",1.5,0,1,n"]), **changes)
    merged = [warning for warning in dataset.manifest.warnings if warning.code == "merged_numbers"]
    assert [warning.message for warning in merged] == [
        "at: in a sample of its rows, 1,000 distinct numbers become 56, since numbers are stored as float32, with 7 "
        "digits: those that differ less are the same to a model. Subtract a number near them from all of them before "
        "the job, such as the smallest, or declare it `kind: category`.",
        merged[1].message,
    ]
    assert merged[1].message.startswith("both: column 'b1': in a sample of its rows, 31 distinct numbers become 2, ")
    assert "1,000 distinct numbers become 56" in (Path(dataset.run_dir) / "report.html").read_text()


@pytest.mark.slow
def test_ordinary_data_has_no_warnings(all_kinds, capsys):
    """But that some of its features tell the label, as they were made to."""
    other_warnings = [warning for warning in all_kinds.manifest.warnings if warning.code != "tells_label"]
    assert other_warnings == []
    assert dataset_command(["show", all_kinds.path]) == 0
    assert "same in every row" not in capsys.readouterr().out


@pytest.mark.slow
def test_images_of_one_class_are_a_warning(tmp_path):
    schema = (
        "name: shapes\nformat: image_folder\nimages: {resize: {exact: [16, 16]}, channels: {means: [123, 117, 104]}}\n"
        "label: {values: [bar, disc]}\nsplit: {train: 0.5, eval: 0.5, test: 0}\n"
    )
    write_folders(tmp_path / "raw", per_class=20)
    (warning,) = written(tmp_path, schema, str(tmp_path / "raw/disc/*")).manifest.warnings
    assert (warning.feature, warning.code) == ("image/class/text", "one_class")
    assert "one class, 'disc'" in warning.message


BY_FILE = LEAN_SCHEMA.replace(
    "split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}", 'split: {by: file, train: "*train.csv", eval: "*eval.csv"}'
)


def shifted(text: str, by: int) -> str:
    """The same rows with another `size`."""
    first, *rows = text.splitlines()
    cells = [row.split(",") for row in rows]
    for row in cells:
        row[4] = str(int(row[4]) + by)
    return "\n".join([first, *(",".join(row) for row in cells)]) + "\n"


def limited(job: Folder, drift: str) -> None:
    job.schema.write_text(f"{LEAN_SCHEMA}drift: {drift}\n")


def drift_of(output: Path) -> list[dict]:
    return json.loads((output / read_manifest(str(output)).run / "drift.json").read_text())["comparisons"]


def test_a_job_that_replaces_a_dataset_fails_above_the_threshold_and_keeps_it(written: Folder, capsys) -> None:
    before = (written.output / "manifest.json").read_bytes()
    limited(written, "{fail: 0.1}")
    written.raw.write_text(shifted(people_csv(500), 60))
    assert main(written.argv("--quiet", "--overwrite")) == 1
    error = capsys.readouterr().err
    assert f"the new train against train of {written.output}, run {json.loads(before)['run']}: size drifted by" in error
    assert ", above its threshold of 0.1 (" in error
    assert (written.output / "manifest.json").read_bytes() == before
    assert set(os.listdir(written.output)) == {"manifest.json", json.loads(before)["run"], "failed"}
    (summary,) = written.output.glob("failed/*/summary.json")
    assert "size drifted by" in json.loads(summary.read_text())["error"]
    assert dataset_command(["verify", str(written.output)]) == 0


def test_a_job_warns_above_the_threshold_and_its_report_and_summary_say_so(written: Folder, capsys) -> None:
    limited(written, "{warn: 0.1}")
    written.raw.write_text(shifted(people_csv(500), 60))
    assert main(written.argv("--quiet", "--overwrite")) == 0
    printed = capsys.readouterr().out
    manifest = read_manifest(str(written.output))
    (warning,) = [warning for warning in manifest.warnings if warning.code == "drift"]
    assert warning.feature == "size"
    assert f"warning    {warning.message}" in printed
    assert "drift      eval against train: ok: " in printed
    assert f"drift      the new train against train of {written.output}" in printed
    assert [comparison["verdict"] for comparison in drift_of(written.output)] == ["ok", "ok", "warn"]
    assert f"{manifest.run}/drift.json" in {file.path for file in manifest.files}
    page = (written.output / manifest.run / "report.html").read_text()
    assert '<section id="drift">' in page
    assert page.count("against <b>train</b>") == 2
    assert warning.message.split(",")[0].replace(">", "&gt;") in page
    assert dataset_command(["verify", str(written.output)]) == 0


def test_train_against_eval_is_always_there_and_is_what_a_threshold_of_a_feature_looks_at(people: Folder) -> None:
    people.schema.write_text(BY_FILE)
    parts = [people.path / name for name in ("train.csv", "eval.csv")]
    parts[0].write_text(people_csv(300))
    parts[1].write_text(shifted(people_csv(200), 40))
    inputs = tuple(map(str, parts))
    people.run(input=inputs)
    (comparison,) = drift_of(people.output)
    assert (comparison["first"], comparison["second"], comparison["rows"]) == ("train", "eval", [300, 200])
    assert comparison["verdict"] == "not_judged"
    assert comparison["features"][0]["name"] == "size"
    assert comparison["summary"].endswith("Not judged: no `drift:` threshold is set")
    own = BY_FILE.replace("{name: size, kind: numeric,", "{name: size, kind: numeric, drift: %s,")
    people.schema.write_text(own % "0.05" + "drift: none\n")
    with pytest.raises(MillraceError, match=r"eval against train: size drifted by .*, above its threshold of 0\.05"):
        people.run(input=inputs, overwrite=True)
    people.schema.write_text(own % "none" + "drift: 0.05\n")
    people.run(input=inputs, overwrite=True)
    assert [comparison["second"] for comparison in drift_of(people.output)] == ["eval", "the new train"]


def test_compare_to_another_dataset(people: Folder, people_once: Folder) -> None:
    limited(people, "0.1")
    people.raw.write_text(shifted(people_csv(500), 60))
    with pytest.raises(MillraceError, match=r"has drifted: the new train against train of .*: size drifted"):
        people.run(compare_to=str(people_once.output))
    assert not (people.output / "manifest.json").exists()
    people.raw.write_text(people_csv(500))
    people.run(compare_to=str(people_once.output))
    assert drift_of(people.output)[-1]["verdict"] == "ok"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"statistics": False}, "--no_statistics: .* sets thresholds of drift"),
        ({"compare_to": "{folder}"}, "--compare_to .*no manifest.json"),
        ({"compare_to": "{bare}"}, "--compare_to .* has no statistics to compare"),
    ],
)
def test_what_cannot_be_compared_is_said_before_anything_is_read(people: Folder, changes: dict, message: str) -> None:
    bare = people.path / "bare"
    if changes == {"compare_to": "{bare}"}:
        people.run(output=str(bare), statistics=False)
    limited(people, "0.1")
    changed_options = {
        k: v.format(folder=people.path, bare=bare) if isinstance(v, str) else v for k, v in changes.items()
    }
    with pytest.raises(UsageError, match=message):
        check_inputs(people.options(**changed_options))
    people.schema.write_text(LEAN_SCHEMA)
    with pytest.raises(UsageError, match="compare_to compares statistics"):
        check_inputs(people.options(statistics=False, compare_to=str(people.path)))


def test_a_replaced_dataset_without_statistics_is_passed_over_and_thresholds_say_so(people: Folder) -> None:
    people.run(statistics=False)
    assert not list(people.output.glob("*/drift.json"))
    limited(people, "0.5")
    people.run(overwrite=True)
    assert [comparison["second"] for comparison in drift_of(people.output)] == ["eval", "test"]
    (warning,) = [
        warning for warning in read_manifest(str(people.output)).warnings if warning.code == "drift_not_compared"
    ]
    assert warning.message.startswith("the schema's thresholds of drift were not checked against the dataset that is ")
    assert f"{people.output}: has no statistics to compare" in warning.message


def test_a_replay_compares_the_splits_anew(folder: Folder) -> None:
    base = folder.job(f"{FEW}drift: 0.9\n", folder.write("rows.csv", [FEW_HEADER, *BAD]), max_rejects=10)
    before = [comparison["rows"] for comparison in drift_of(folder.output)]
    report = (folder.output / base.run / "report.html").read_text()
    folder.replay(folder.correct(base, lambda reject: FEW_ROWS[int(reject.raw.split(b",")[0][1:])]))
    after = [comparison["rows"] for comparison in drift_of(folder.output)]
    assert sum(before[0]) + before[1][1] == 36
    assert sum(after[0]) + after[1][1] == 40
    run = read_manifest(str(folder.output)).run
    page = (folder.output / run / "report.html").read_text()
    assert page != report
    assert run in page


def report_of(output: Path) -> str:
    dataset = open_dataset(str(output))
    assert f"{dataset.run}/report.html" in {file.path for file in dataset.manifest.files}  # verified and kept with it
    return (output / dataset.run / "report.html").read_text()


def test_a_job_on_rows_reports_its_features_rejects_and_phases(tmp_path: Path, capsys) -> None:
    job = folder_of_people(tmp_path, MEASURED_SCHEMA)
    job.raw.write_text(people_csv(300) + "too,few\n" * 6)
    job.run()
    page = report_of(job.output)
    assert "too_few_columns" in page
    assert page.count("too,few") == 5
    assert f"{job.raw}, byte {len(people_csv(300)):,}" in page
    assert set(re.findall(r'data-name="([^"]+)"', page)) >= {"age"}
    rows = page.partition('<section id="rows">')[2].partition("</section>")[0]
    assert 2 <= rows.count("<tr>") <= ROWS + 1  # with the one of names
    dataset = open_dataset(str(job.output))
    relations = (read_leakage(dataset.path, dataset.manifest) or {})["relations"]
    assert {feature["name"] for feature in relations["features"]} >= {"age"}
    assert all(part["value"] is not None for feature in relations["features"] for part in feature.get("values", ()))
    assert [name for name in ("analyzing", "transforming", "writing") if f">{name}<" not in page] == []
    assert dataset_command(["verify", str(job.output)]) == 0


def test_a_job_on_images_shows_some_of_each_class(tmp_path: Path) -> None:
    schema = (
        "name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, store: raw}\n"
        "split: {by: content, train: 1.0, eval: 0.0, test: 0.0}\n"
    )
    write_folders(tmp_path / "raw", per_class=EACH + 2)
    classes = written(tmp_path, schema, str(tmp_path / "raw/*/*"), compression="gzip").manifest.classes
    page = report_of(tmp_path / "out")
    assert {name: page.count(f'<img alt="{name}"') for name in classes} == dict.fromkeys(classes, EACH)
    assert page.count("data:image/jpeg;base64,") == EACH * len(classes)
