"""What commands share: one JSON object on standard output with --json, and errors printed alike."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from schemas.command import Command, Commands, Report, duration, rate, run
from schemas.display import Display, rate_limited
from schemas.errors import MillraceError, UsageError, counted
from schemas.interrupts import Interrupted
from schemas.options import Group, Options, at_least, option, positive


def chatty(argv: Sequence[str], prog: str) -> Report:
    """Prints while it works, as a model of a user's own may."""
    print("working")
    return Report("for people", {"loss": float("nan"), "steps": (1, 2.5), "nested": [{"best": float("-inf")}]})


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
def test_errors(error, message, code, capsys):
    def fails(argv: Sequence[str], prog: str) -> Report:
        raise error

    assert run(fails, [], prog="millrace a") == code
    assert capsys.readouterr() == ("", f"error: {message}\n")
    assert run(fails, ["--json"], prog="millrace a") == code
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": message, "exit_code": code}
    assert captured.err == f"error: {message}\n"


def test_a_log_says_once_what_is_done_and_figures_from_time_to_time(capsys):
    say = rate_limited(Display(quiet=False))
    for text in ("evaluating on eval", "round 1 of 9", "round 2 of 9", "evaluating on eval"):
        say(text)
    assert capsys.readouterr().err == "evaluating on eval\n"


def test_standard_output_that_is_closed_early():
    """As by `| head`: more than fits in a pipe, and nobody reads on."""
    code = "from schemas.command import Report, run; exit(run(lambda *_: Report('x' * 1_000_000, {}), [], prog='x'))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


STREAMS = """
import sys
from schemas.command import Report, run
text, code, only_printed = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "only_printed"
sys.exit(run(lambda *_: Report(text, {"text": text}, code, only_printed=only_printed), sys.argv[4:], prog="x"))
"""
LOST = "; the result was not printed in whole\n"


def in_shell(
    redirected: str, *argv: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs `STREAMS`, whose streams the shell redirects."""
    script = f'exec "$0" -c "$PROGRAM" "$@" {redirected}'
    settings = {**os.environ, "PROGRAM": STREAMS, **(environment or {})}
    command = ["sh", "-c", script, sys.executable, *argv]
    return subprocess.run(command, capture_output=True, text=True, env=settings, check=False)


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(
    ("redirected", "why"),
    [(">/dev/full", "No space left on device"), (">&-", "it is closed"), ("<&- >&-", "it is closed")],
)
def test_a_standard_output_that_takes_nothing(redirected: str, why: str, more: list[str]) -> None:
    """What has written files ends as it would have; what only prints has failed."""
    for code in (0, 1):
        done = in_shell(redirected, "done", str(code), "", *more)
        note = "note: the command has done its work, but standard output: "
        assert (done.returncode, done.stderr) == (code, f"{note}{why}{LOST}")
        done = in_shell(redirected, "shown", str(code), "only_printed", *more)
        assert (done.returncode, done.stderr) == (1, f"error: standard output: {why}{LOST}")


def test_standard_error_that_takes_nothing_either() -> None:
    done = in_shell(">/dev/full 2>&1", "done", "0", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = in_shell("2>&-", "done", "0", "")
    assert (done.returncode, done.stdout) == (0, "done\n")


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2> >(exec true)", "2>&-"])
def test_what_standard_error_does_not_take_is_lost_and_nothing_else(redirected: str, tmp_path: Path) -> None:
    """Notes on the way, the line of a status and an error: each ends the command as it would have ended."""
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["x,y", *(f"{i % 7},{'ab'[i % 2]}" for i in range(40))]))
    for label, code in (("y", 0), ("z", 2)):
        script = f'"$0" -m schemas.init "$1" --label {label} --output "$2" {redirected}'
        argv = ["bash", "-c", script, sys.executable, str(table), str(tmp_path / "schema.yaml")]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, "")
    assert "kind: numeric" in (tmp_path / "schema.yaml").read_text()


def test_a_standard_output_of_another_encoding() -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = in_shell("", "größe", "0", "", environment=ascii_only)
    assert (done.returncode, done.stdout, done.stderr) == (0, "gr\\xf6\\xdfe\n", "")
    done = in_shell("", "größe", "0", "", "--json", environment=ascii_only)
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, {"text": "größe"}, "")


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


def test_a_rate_leaves_out_the_start() -> None:
    assert rate(100, "rows", 0.4, startup=3.14) == "100 rows in 0.4 s (250 rows/s), after 3.1 s of start-up"
    assert rate(0, "images", 0.0) == "0 images in 0.0 s"


@pytest.mark.parametrize(
    ("count", "form", "text"),
    [(1, ",", "1 row"), (0, ",", "0 rows"), (2000, ",", "2,000 rows"), (1, "4,", "   1 row"), (1.002, ".3g", "1 row")],
)
def test_a_noun_follows_its_number_as_shown(count: float, form: str, text: str) -> None:
    assert counted(count, "row", form) == counted(count, "rows", form) == text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawing(Options):
    """Options of each kind."""

    place: str = option("where to", positional=True)
    number: int | None = option("how many (default: %(default)s)", None, check=at_least(1))
    size: float = option("how large (default: %(default)g)", 2.5, metavar="MB", check=positive)
    names: tuple[str, ...] = option("their names", (), metavar="NAME")
    form: Literal["disc", "square"] = option("their form", "disc", group=Group("form", "How they look."))
    colour: str = option("their colour", "red", choices=("red", "blue"))
    shaded: bool = option("with a shade", False)
    framed: bool = option("with a frame, as is the default", True)
    user: str = option("whose they are", "me", variable="DRAWN_BY")


def draw(options: Drawing, prog: str) -> Report:
    return Report(f"{prog} {options.place}", dataclasses.asdict(options))


DRAW = Command(prog="draw", options=Drawing, work=draw, description="Draws.\n\nExit codes: 0 done")
HELP = """\
Usage: draw [OPTIONS] PLACE
Draws.
form
How they look.
--form CHOICE their form [choices: disc, square]
options
* PLACE where to [required]
--number N how many (default: None)
--size MB how large (default: 2.5)
--names NAME... their names
--colour CHOICE their colour [choices: red, blue]
--shaded with a shade
--framed --no_framed with a frame, as is the default
--user STR whose they are
--json print the result, or the error, as one JSON object on standard output, and nothing else there
Exit codes: 0 done
"""


def test_a_field_is_a_flag_with_its_type_default_help_and_group(capsys):
    with pytest.raises(SystemExit):
        DRAW.main(["--help"])
    shown = "".join(c for c in capsys.readouterr().out if not 0x2500 <= ord(c) < 0x2580)  # without the frames
    assert shown.split() == HELP.split()


@pytest.mark.parametrize(
    ("argv", "options"),
    [
        (["here"], {}),
        (["here", "--number", "3", "--shaded", "--no-framed"], {"number": 3, "shaded": True, "framed": False}),
        (["here", "--names", "a", "b", "--names=c"], {"names": ("a", "b", "c")}),
        (["--form", "square", "--size=1", "here"], {"form": "square", "size": 1.0}),
        (["--size=1", "--shaded", "--size", "2", "here", "--shaded", "--size=3"], {"shaded": True, "size": 3.0}),
    ],
)
def test_a_command_line_gives_what_python_gives(argv: list[str], options: dict[str, Any], monkeypatch) -> None:
    assert DRAW.parse(argv) == Drawing(place="here", **options)
    monkeypatch.setenv("DRAWN_BY", "them")
    assert DRAW.parse(argv) == Drawing(place="here", user="them", **options)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--shaded"], "required: PLACE"),
        (["here", "--number", "0"], "--number 0: must be 1 or more"),
        (["here", "--size", "nan"], "--size nan: must be more than 0"),
        (["here", "--number", "1.5"], "Invalid value for --number: 1.5 is not a whole number"),
        (["here", "--size", "big"], "Invalid value for --size: big is not a number"),
        (
            ["here", "--form", "disk"],
            'Invalid value "disk" for --form. Choose from: "disc", "square". Did you',
        ),
        (["here", "--colour", "green"], 'Invalid value "green" for --colour. Choose from: "red", "blue".'),
        (["here", "--user"], "Parameter --user requires an argument."),
        (["here", "--names"], "Parameter --names requires at least 1 element."),
        (["here", "--shade"], "--shade: unknown option; did you mean --shaded?"),
        (["here", "there"], "there: unexpected argument; quote a name with spaces"),
    ],
)
def test_what_a_command_line_lacks_is_one_line(argv: list[str], message: str, capsys) -> None:
    assert DRAW.main(argv) == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")


def test_commands_under_one_name(capsys):
    both = Commands(prog="x", description="", epilog="", commands=(DRAW, dataclasses.replace(DRAW, prog="paint")))
    assert both.main(["paint", "here", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["place"] == "here"
    for argv, message in (
        (["pain"], 'Unknown command "pain". Did you mean "paint"?'),
        (["draw", "a", "b"], "b: unexpected argument"),
    ):
        assert both.main(argv) == 2
        assert message in capsys.readouterr().err
