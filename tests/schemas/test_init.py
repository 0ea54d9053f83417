"""`millrace init`, as it is typed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from beam_jobs.preprocess import main as preprocess
from millrace.cli import main as millrace
from schemas.dataset import open_dataset
from schemas.init.check import Differences, as_json, check_table, render
from schemas.init.command import main
from schemas.spec.loader import parse_schema
from tests.support.commands import assert_light
from tests.support.csv_reading import table_schema
from tests.support.declared_by_hand import FIXTURES

VOTERS = str(FIXTURES / "anes96.csv")


def test_the_schema_goes_to_standard_output_and_everything_else_to_standard_error(capsys):
    assert millrace(["init", VOTERS, "--label", "vote"]) == 0
    captured = capsys.readouterr()
    schema = parse_schema(captured.out.encode(), "printed")
    assert schema.name == "anes96"
    last = captured.err.splitlines()[-1].strip()
    assert last == f"millrace preprocess --schema schema.yaml --input {VOTERS} --output data/"
    assert main([VOTERS]) == 0
    assert "python -m beam_jobs.preprocess --schema schema.yaml" in capsys.readouterr().err


def test_a_file_that_is_there_is_not_replaced(tmp_path, capsys):
    output = tmp_path / "s.yaml"
    assert main([VOTERS, "--output", str(output), "--name", "voters"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"Wrote {output}" in captured.err
    assert "\nname: voters\n" in output.read_text()
    output.write_text("mine")
    assert main([VOTERS, "--output", str(output)]) == 2
    assert "already exists; give --overwrite to replace it" in capsys.readouterr().err
    assert output.read_text() == "mine"
    assert main([VOTERS, "--output", str(output), "--overwrite"]) == 0
    assert output.read_text().startswith("# Written by `millrace init`")


def test_json_holds_the_schema_and_what_is_declared(capsys):
    assert main([VOTERS, "--json", "--label", "vote"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["features"][0] == {"name": "popul", "kind": "numeric", "columns": 1}
    assert (told["label"], told["records"], told["notes"]) == ("vote", 944, [])
    assert parse_schema(told["schema"].encode(), "printed").name == "anes96"


def test_check_exits_with_1_if_records_would_be_lost(tmp_path, capsys):
    schema = tmp_path / "s.yaml"
    assert main([VOTERS, "--label", "vote", "--output", str(schema), "--quiet"]) == 0
    assert main(["--check", str(schema), VOTERS]) == 0
    assert f"{schema} fits: 944 of 944 records would be written" in capsys.readouterr().out
    worse = tmp_path / "worse.csv"
    lines = Path(VOTERS).read_text().splitlines()
    odd = [line.replace("\t36\t", "\tthirty-six\t") for line in lines]
    worse.write_text("\n".join(odd) + "\n")
    assert main(["--check", str(schema), str(worse), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["read"], told["lost"]) == (944, sum(a != b for a, b in zip(lines, odd, strict=True)))
    assert told["rejected"][0]["column"] == "age"


def test_check_counts_what_the_transform_would_reject(tmp_path, capsys):
    rows = "".join(f"{amount},{amount % 2}\n" for amount in (5, -0.5, -1, -7, 9))
    (tmp_path / "rows.csv").write_text("amount,y\n" + rows)
    (tmp_path / "s.yaml").write_text(
        "name: s\nformat: csv\ncsv: {header: present}\nfeatures: [{name: amount, kind: numeric, transform: log}]\n"
        "label: {name: y, kind: numeric}\nsplit: {train: 0.8, eval: 0.1, test: 0.1}\n"
    )
    assert main(["--check", str(tmp_path / "s.yaml"), str(tmp_path / "rows.csv")]) == 1
    told = capsys.readouterr().out
    assert "rejected: 2 records (40 %), not_finite in 'amount'; first " in told
    assert "rows.csv at byte 22; `transform: log` is for values above -1" in told
    assert "3 of 5 records would be written" in told
    (tmp_path / "bad.csv").write_text("amount,y\nmany,1\nsome,0\n")
    assert main(["--check", str(tmp_path / "s.yaml"), str(tmp_path / "bad.csv")]) == 1
    assert "0 of 2 records would be written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["nowhere.csv"], 2, "nowhere.csv: no such file"),
        ([VOTERS, "--label", "votes"], 2, "did you mean vote?"),
        ([VOTERS, "--name", "1 2"], 2, "--name 1 2: a name is a letter"),
        ([VOTERS, "--overwrite"], 2, "--overwrite is for --output FILE"),
        (["--check", VOTERS, VOTERS], 2, "anes96.csv: is a table by its name"),
        (["--check", "titanic", VOTERS, "--label", "x"], 2, "--label is for a schema that is written"),
        (["--check", "titanic", VOTERS], 1, "a job refuses it"),
        (["--check", "cats_dogs", VOTERS], 1, "not_an_image"),
        ([str(FIXTURES)], 2, "is a folder"),
    ],
)
def test_usage_errors_and_refusals_are_lines_without_a_traceback(argv, code, message, capsys):
    assert main(argv) == code
    captured = capsys.readouterr()
    assert message in captured.err + captured.out
    assert "Traceback" not in captured.err


def test_neither_tensorflow_nor_beam_is_imported():
    assert_light("millrace", ["init", VOTERS], code=0, message="name: anes96")


JSON_FILES = {
    "lines": "".join(json.dumps({"a": i, "note": "x, y", "late": "no"}) + "\n" for i in range(50)),
    "one long line": json.dumps({"a": 1, "note": "word, " * 2000, "late": "no"}) + '\n{"a": 2}\n',
    "array": json.dumps([{"a": i, "late": "no"} for i in range(50)]),
    "indented array": json.dumps([{"a": i, "late": "no"} for i in range(50)], indent=2),
    "indented object": json.dumps({"rows": [1, 2, 3], "late": "no, yes"}, indent=2),
}


@pytest.mark.parametrize("text", JSON_FILES.values(), ids=JSON_FILES)
def test_json_is_no_csv_and_the_message_says_how_it_becomes_one(tmp_path, capsys, text):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert f"{path}: is JSON; write its records as CSV, such as by pandas.read_json" in capsys.readouterr().err


@pytest.mark.parametrize("cell", ['{"a": 1}', "[1", "{", "{}"])
def test_cells_of_json_make_no_file_json(tmp_path, capsys, cell):
    path = tmp_path / "rows.csv"
    path.write_text("".join(f"{cell}|{i % 7}|{'no' if i % 3 else 'yes'}\n" for i in range(60)))
    assert main([str(path)]) == 0
    assert 'delimiter: "|"' in capsys.readouterr().out


@pytest.mark.parametrize("place", [20, 60_000])  # in the part that shows how a file is written, and behind it
def test_a_few_broken_records_do_not_make_a_utf8_file_latin1(tmp_path, capsys, place):
    words = ["café", "naïve", "plain", "Ærø", "plain too"]
    lines = [f"{i % 97},{words[i % 5]} {i % 11},{'no' if i % 3 else 'yes'}".encode() for i in range(70_000)]
    for broken in (place, place + 1):
        lines[broken] = b"1,caf\xe9,no"
    path, schema = tmp_path / "rows.csv", tmp_path / "schema.yaml"
    path.write_bytes(b"a,word,late\n" + b"\n".join(lines) + b"\n")
    assert main([str(path), "--output", str(schema)]) == 0
    told = capsys.readouterr().err
    assert "2 cells are no UTF-8, and 41,998 others are beyond ASCII and valid" in told
    assert "\ncsv: {header: present}\n" in schema.read_text()
    assert main(["--check", str(schema), str(path)]) == 1
    assert "rejected: 2 records" in capsys.readouterr().out


def test_what_is_no_utf8_is_no_class(tmp_path, capsys):
    path, schema = tmp_path / "rows.csv", tmp_path / "schema.yaml"
    rows = [f"{i % 7},{'Zürich' if i % 2 else 'Bern'},{'café' if i % 3 else 'bar'}\n".encode() for i in range(60)]
    path.write_bytes(b"x,city,place\n" + b"".join([*rows, b"3,Bern,caf\xe9\n", b"4,Z\xfcrich,bar\n"]))
    assert main([str(path), "--label", "place", "--output", str(schema)]) == 0
    assert "1 of 62 records (1.6 %) will be rejected as not_utf8 in 'city'" in capsys.readouterr().err
    told = schema.read_text()
    assert 'values: [Bern, "Zürich"]' in told
    assert 'values: [bar, "café"]' in told


def test_a_column_that_names_the_split_is_no_feature(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    splits = ["train", "Train", "train", "valid", "test"]
    path.write_text("part,x,late\n" + "".join(f"{splits[i % 5]},{i % 13},{'ny'[i % 3 == 0]}\n" for i in range(300)))
    assert main([str(path), "--json", "--label", "late"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(f["name"], f["kind"]) for f in told["features"]] == [("part", "ignore"), ("x", "numeric")]
    (note,) = (note for note in told["notes"] if "part" in note)
    assert "names the split of each record" in note
    assert "split: {by: file" in note


SCHEMA = """\
name: parcels
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: weight, kind: numeric}
  - {name: km, kind: numeric, transform: {scale: [0, 100]}, missing: mean}
  - {name: age, kind: numeric, transform: {bucketize: [10, 20, 30]}}
  - {name: depot, kind: category, values: [Cork, Oslo], missing: "<unknown>"}
  - {name: depot_x_age, kind: cross, of: [depot, age], buckets: 10}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: [depot], train: 0.8, eval: 0.1, test: 0.1}
"""
ROW = "1.5,20,15,Cork,no\n"


def checked(folder: Path, text: str | bytes, schema: str = SCHEMA) -> tuple[Differences, list[str]]:
    path = folder / "new.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    declared = table_schema(schema)
    found = check_table(declared, [str(path)])
    return found, list(render(found, declared, "s.yaml"))


def test_data_that_fits(tmp_path):
    found, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW * 5 + "2,?,15,?,yes\n")
    assert not found.loses
    assert lines == ["s.yaml fits: 6 of 6 records would be written"]


def test_records_that_would_be_lost_by_reason(tmp_path):
    rows = ["heavy,20,15,Cork,no\n", ",20,15,Cork,no\n", "1,2,15,Cork,maybe\n", "1,2\n", "x,20,15,Cork,no\n"]
    found, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW * 5 + "".join(rows))
    assert found.loses
    assert found.rejected == {
        ("not_a_number", "weight"): 2,
        ("missing_value", "weight"): 1,
        ("label_not_in_values", "late"): 1,
        ("too_few_columns", ""): 1,
    }
    assert lines[0].startswith("rejected: 2 records (20 %), not_a_number in 'weight'; first ")
    assert "found 'heavy', expected a decimal number" in lines[0]
    assert lines[-2] == "classes that do not occur: yes of 'late'"
    assert lines[-1] == "s.yaml would lose records: 5 of 10 records would be written"


def test_values_that_the_schema_did_not_foresee(tmp_path):
    rows = "1,250,15,Rome,no\n" * 3 + "1,-5,99,Bonn,yes\n"
    found, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW + rows)
    assert not found.loses
    assert lines == [
        "4 numbers of 'km' beyond the schema's 0 to 100: found -5 to 250",
        "1 number of 'age' beyond the schema's 10 to 30: found 15 to 99",
        "unseen values of 'depot' in 4 records (80 %), which become the id of unknown values: 'Rome' 3, 'Bonn' 1",
        "s.yaml fits: 5 of 5 records would be written",
    ]
    told = as_json(found)
    assert told["unseen_values"] == {"depot": {"Rome": 3, "Bonn": 1}}
    assert told["ranges"]["km"] == {"low": -5.0, "high": 250.0, "outside": 4}


def test_missing_and_extra_columns_and_the_others_all_the_same(tmp_path):
    found, lines = checked(tmp_path, "weight,kilometres,age,depot,late\n" + ROW * 3 + "heavy,1,2,Cork,no\n")
    assert found.loses
    assert found.missing == {"km": "km"}
    assert found.extra == {"kilometres": "- {name: kilometres, kind: ignore}"}
    assert found.rejected == {("not_a_number", "weight"): 1}
    assert "a job refuses it: lacks the column 'km'; has the column 'kilometres', which no feature reads" in lines[0]
    assert "missing column 'km', which 'km' reads" in lines[1]
    assert lines[-1].startswith("s.yaml does not fit: 1 file would be refused")


def test_a_file_without_the_label(tmp_path):
    found, lines = checked(tmp_path, "weight,km,age,depot\n1.5,20,15,Cork\n")
    assert found.missing == {"late": "late"}
    assert (found.read, found.lost) == (1, 0)
    assert found.loses
    assert "lacks the column 'late'" in lines[0]


def test_another_file_altogether_and_an_empty_one(tmp_path):
    found, lines = checked(tmp_path, "a;b\n1;2\n")
    assert found.loses
    assert "a job refuses it" in lines[0]
    found, lines = checked(tmp_path, "")
    assert found.loses
    assert "the file has no record" in lines[0]


def test_files_without_a_record_do_not_fit(tmp_path):
    for text in ("", "\n\n", "weight,km,age,depot,late\n"):
        found, lines = checked(tmp_path, text)
        assert found.loses
        assert lines[-1] == "s.yaml does not fit: a job finds no record to write"


def test_a_file_that_is_no_csv_is_named_for_what_it_is(tmp_path):
    found, lines = checked(tmp_path, b"\x89PNG\r\n\x1a\n" + bytes(100))
    assert found.loses
    assert lines == [
        f"{tmp_path}/new.csv: a job refuses it: is a PNG image; expected a CSV file",
        "s.yaml does not fit: 1 file would be refused",
    ]


def test_categories_whose_values_only_a_dataset_knows_are_named(tmp_path):
    learned = SCHEMA.replace("values: [Cork, Oslo], ", "")
    _, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW * 3, learned)
    assert lines[-2].startswith("not checked for unseen values: depot; the schema lists none, a dataset does: ")
    assert lines[-1] == "s.yaml fits: 3 of 3 records would be written"


@pytest.mark.slow
def test_the_next_step_that_is_told_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(FIXTURES / "penguins-raw.csv"), "--label", "Species", "--output", "schema.yaml"]) == 0
    told = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert told[:3] == ["python", "-m", "beam_jobs.preprocess"]
    assert preprocess([*told[3:], "--quiet"]) == 0
    dataset = open_dataset("data/")
    assert (dataset.manifest.read, dataset.manifest.rejected) == (344, 0)
    assert {warning.code for warning in dataset.manifest.warnings} == {"tells_label"}  # of single species
    assert all(dataset.rows(split) for split in ("train", "eval", "test"))
