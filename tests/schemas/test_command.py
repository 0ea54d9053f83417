"""What commands share: one JSON object on standard output with --json, and errors printed alike."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pytest

from schemas.command import Interrupted, Parser, Report, duration, run, wants_json
from schemas.errors import MillraceError, UsageError


def chatty(argv: Sequence[str], prog: str) -> Report:
    """Prints while it works, as a model of a user's own may."""
    print("working")
    return Report("for people", {"loss": float("nan"), "steps": (1, 2.5), "nested": [{"best": float("-inf")}]})


def test_no_flag_is_abbreviated():
    parser = Parser()
    parser.add_argument("--overwrite", action="store_true")
    parser.add_subparsers().add_parser("show").add_argument("--json", action="store_true")
    for argv in (["--over"], ["show", "--js"]):
        with pytest.raises(UsageError, match="unrecognized arguments"):
            parser.parse_args(argv)


def test_for_people(capsys):
    assert run(chatty, [], prog="python -m a.b") == 0
    assert capsys.readouterr().out == "working\nfor people\n"


def test_with_json_standard_output_holds_nothing_else(capsys):
    assert run(chatty, ["--json"], prog="python -m a.b") == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"loss": None, "steps": [1, 2.5], "nested": [{"best": None}]}
    assert captured.err == "working\n"


def test_an_exit_code_that_is_no_error(capsys):
    assert run(lambda argv, prog: Report("", {"problems": 1}, exit_code=1), [], prog="x") == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (UsageError("asked for what is not there"), "asked for what is not there", 2),
        (MillraceError("the disk is full"), "the disk is full", 1),
        (Interrupted("terminated; nothing was done", 143), "terminated; nothing was done", 143),
        (KeyboardInterrupt(), "interrupted", 130),
    ],
)
@pytest.mark.parametrize("prog", ["python -m a.b", "millrace a"])
def test_errors(error, message, code, prog, capsys):
    def fails(argv: Sequence[str], prog: str) -> Report:
        raise error

    assert run(fails, [], prog=prog) == code
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert run(fails, ["--json"], prog=prog) == code
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": message, "exit_code": code}
    assert captured.err == f"error: {message}\n"


def test_standard_output_that_is_closed_early():
    """As by `| head`: more than fits in a pipe, and nobody reads on."""
    code = "from schemas.command import Report, run; exit(run(lambda *_: Report('x' * 1_000_000, {}), [], prog='x'))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_what_the_parser_refuses_is_a_usage_error():
    parser = Parser(prog="python -m a.b")
    parser.add_subparsers(required=True, dest="what").add_parser("c").add_argument("--n", type=int)
    with pytest.raises(UsageError, match=r"invalid int value: 'x'\nSee python -m a.b c --help."):
        parser.parse_args(["c", "--n", "x"])


@pytest.mark.parametrize(
    ("argv", "asked"),
    [
        (["--json"], True),
        (["--json", "--steps", "3"], True),
        (["--json", "-"], True),
        (["--json=-"], True),
        (["--json", "figures.json"], False),
        (["--json=figures.json"], False),
        ([], False),
    ],
)
def test_json_to_a_file_leaves_standard_output_to_the_text(argv, asked):
    assert wants_json(argv, takes_file=True) == asked


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (18_720, "5 h 12 min"),
        (90_000, "25 h 0 min"),
    ],
)
def test_durations_are_said_as_a_person_says_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text
