"""`millrace init`, as it is typed."""

from __future__ import annotations

import json
import shlex

import pytest

from beam_jobs.preprocess import main as preprocess
from millrace.cli import main as millrace
from schemas.dataset import open_dataset
from schemas.init.command import main
from schemas.spec.loader import parse_schema
from tests.support.commands import assert_light
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
    output = json.loads(capsys.readouterr().out)
    assert output["features"][0] == {"name": "popul", "kind": "numeric", "columns": 1}
    assert (output["label"], output["records"], output["notes"]) == ("vote", 944, [])
    assert parse_schema(output["schema"].encode(), "printed").name == "anes96"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["nowhere.csv"], 2, "nowhere.csv: no such file"),
        ([VOTERS, "--label", "votes"], 2, "did you mean vote?"),
        ([VOTERS, "--name", "1 2"], 2, "--name 1 2: a name is a letter"),
        ([VOTERS, "--overwrite"], 2, "--overwrite is for --output FILE"),
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
    "indented array": json.dumps([{"a": i, "late": "no"} for i in range(50)], indent=2),
}


@pytest.mark.parametrize("text", JSON_FILES.values(), ids=JSON_FILES)
def test_json_is_no_csv_and_the_message_says_how_it_becomes_one(tmp_path, capsys, text):
    path = tmp_path / "rows.csv"
    path.write_text(text)
    assert main([str(path)]) == 2
    assert f"{path}: is JSON; write its records as CSV, such as by pandas.read_json" in capsys.readouterr().err


@pytest.mark.parametrize("cell", ['{"a": 1}', "[1"])
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
    stderr = capsys.readouterr().err
    assert "2 cells are no UTF-8, and 41,998 others are beyond ASCII and valid" in stderr
    assert "\ncsv: {header: present}\n" in schema.read_text()
    assert "2 of 70,000 records" in stderr


def test_what_is_no_utf8_is_no_class(tmp_path, capsys):
    path, schema = tmp_path / "rows.csv", tmp_path / "schema.yaml"
    rows = [f"{i % 7},{'Zürich' if i % 2 else 'Bern'},{'café' if i % 3 else 'bar'}\n".encode() for i in range(60)]
    path.write_bytes(b"x,city,place\n" + b"".join([*rows, b"3,Bern,caf\xe9\n", b"4,Z\xfcrich,bar\n"]))
    assert main([str(path), "--label", "place", "--output", str(schema)]) == 0
    assert "1 of 62 records (1.6 %) will be rejected as not_utf8 in 'city'" in capsys.readouterr().err
    schema_text = schema.read_text()
    assert 'values: [Bern, "Zürich"]' in schema_text
    assert 'values: [bar, "café"]' in schema_text


def test_a_column_that_names_the_split_is_no_feature(tmp_path, capsys):
    path = tmp_path / "rows.csv"
    splits = ["train", "Train", "train", "valid", "test"]
    path.write_text("part,x,late\n" + "".join(f"{splits[i % 5]},{i % 13},{'ny'[i % 3 == 0]}\n" for i in range(300)))
    assert main([str(path), "--json", "--label", "late"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert [(f["name"], f["kind"]) for f in output["features"]] == [("part", "ignore"), ("x", "numeric")]
    (note,) = (note for note in output["notes"] if "part" in note)
    assert "names the split of each record" in note
    assert "split: {by: file" in note


@pytest.mark.slow
def test_the_next_step_that_is_told_works(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([str(FIXTURES / "penguins-raw.csv"), "--label", "Species", "--output", "schema.yaml"]) == 0
    command = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert command[:3] == ["python", "-m", "beam_jobs.preprocess"]
    assert preprocess([*command[3:], "--quiet"]) == 0
    dataset = open_dataset("data/")
    assert (dataset.manifest.read, dataset.manifest.rejected) == (344, 0)
    assert {warning.code for warning in dataset.manifest.warnings} == {"tells_label"}  # of single species
    assert all(dataset.rows(split) for split in ("train", "eval", "test"))
