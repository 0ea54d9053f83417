"""`millrace init`, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.cli import main as millrace
from schemas.inference.command import main
from schemas.spec.loader import parse_schema
from tests.support.declared_by_hand import FIXTURES
from tests.support.light_commands import assert_light

VOTERS = str(FIXTURES / "anes96.csv")


def test_the_schema_goes_to_standard_output_and_everything_else_to_standard_error(capsys):
    assert millrace(["init", VOTERS, "--label", "vote"]) == 0
    captured = capsys.readouterr()
    schema = parse_schema(captured.out.encode(), "printed", for_job=True)
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
    assert parse_schema(told["schema"].encode(), "printed", for_job=True).name == "anes96"


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


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["nowhere.csv"], 2, "nowhere.csv: no such file"),
        ([VOTERS, "--label", "votes"], 2, "did you mean 'vote'?"),
        ([VOTERS, "--name", "1 2"], 2, "--name 1 2: a name is a letter"),
        ([VOTERS, "--overwrite"], 2, "--overwrite is for --output FILE"),
        (["--check", VOTERS, VOTERS], 2, "anes96.csv:1:"),
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
