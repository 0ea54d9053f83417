"""The `millrace` command: it finds the sub-command, names itself as it was typed, and speaks JSON where asked."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import cyclopts
import pytest

import millrace
from millrace import __main__, cli
from millrace.cli import COMMANDS, main
from schemas.spec import shipped
from schemas.storage import write_bytes
from tests.support.commands import run_program
from tests.support.dataset_faults import Written, flip, write_csv

TENSORFLOW = (
    "preprocess",
    "train",
    "tune",
    "verify",
    "evaluate",
    "predict",
    "batch-predict",
    "promote",
    "serve",
)
HEAVY = {"tensorflow", "apache_beam", "tensorflow_transform", "pandas"}
MODULES = {
    name: entry.module.removesuffix(".command").removesuffix(".shipped")
    for name, entry in COMMANDS.items()
    if not entry.module.startswith("millrace.") or name == "submit"
}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A dataset of 500 rows. Not to be changed."""
    return write_csv(tmp_path_factory.mktemp("csv"))


@pytest.fixture
def out(once: Written, tmp_path: Path) -> Written:
    """The same, to be changed."""
    shutil.copytree(once.path, tmp_path / "out")
    return Written(tmp_path / "out", once.manifest)


def own_modules(code: str) -> set[str]:
    """Runs code in another process; returns the top-level packages that it imported."""
    done = run_program(f"import sys\n{code}\nprint(*{{m.split('.')[0] for m in sys.modules}}, file=sys.stderr)")
    return set(done.stderr.splitlines()[-1].split())


def help_of(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*argv, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


class TestHelp:
    def test_every_command_is_listed(self, capsys):
        shown = help_of([], capsys)
        assert all(f" {name} " in shown and entry.summary in shown for name, entry in COMMANDS.items())

    @pytest.mark.parametrize("name", COMMANDS)
    def test_usage_says_the_command_as_it_was_typed(self, name, capsys):
        shown = help_of([name], capsys)
        assert shown.startswith(f"Usage: millrace {name} ")
        assert "python -m" not in shown

    def test_usage_of_a_command_under_another_name(self, capsys):
        assert help_of(["submit", "vertex"], capsys).startswith("Usage: millrace submit vertex [flags] -- train ")

    @pytest.mark.parametrize("name", MODULES)
    def test_the_module_names_itself(self, name, capsys):
        with pytest.raises(SystemExit):
            importlib.import_module(COMMANDS[name].module).main(["--help"])
        shown = capsys.readouterr().out
        assert shown.startswith(f"Usage: python -m {MODULES[name]} ")
        assert "millrace " not in shown

    def test_python_m_millrace(self):
        done = subprocess.run(
            [sys.executable, "-m", "millrace", "dataset", "show", "--help"], check=True, capture_output=True, text=True
        )
        assert done.stdout.startswith("Usage: python -m millrace dataset show ")

    def test_ctrl_c_before_a_command_has_begun(self, monkeypatch, capsys):
        def imports(*_, **__) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(cli, "main", imports)
        assert __main__.main() == 130
        assert capsys.readouterr().err == "error: interrupted\n"

    def test_the_version(self, capsys):
        with pytest.raises(SystemExit):
            main(["--version"])
        assert capsys.readouterr().out == f"millrace {millrace.__version__}\n"

    def test_nothing_heavy_is_imported_for_help_or_a_version(self):
        code = "from millrace.cli import main\ntry: main([{!r}])\nexcept SystemExit: pass"
        for flag in ("--help", "--version"):
            modules = own_modules(code.format(flag))
            assert not modules & {*HEAVY, "numpy", "pyarrow", "pydantic", "beam_jobs", "trainer"}

    def test_no_parser_imports_anything_heavy(self):
        code = "import importlib\nfrom millrace.cli import COMMANDS\n"
        code += "for entry in COMMANDS.values(): importlib.import_module(entry.module).app()"
        assert not own_modules(code) & HEAVY


class TestUnknown:
    @pytest.mark.parametrize(("typed", "suggestion"), [("trian", "train"), ("append", "preprocess")])
    def test_the_nearest_command_is_named(self, typed: str, suggestion: str, capsys):
        assert main([typed]) == 2
        assert (
            f'Unknown command "{typed}". Did you mean "{suggestion}"? Available commands: ' in capsys.readouterr().err
        )

    def test_without_a_command_the_help_is_shown(self, capsys):
        with pytest.raises(SystemExit) as ended:
            main([])
        assert ended.value.code == 2
        assert capsys.readouterr().out.startswith("Usage: millrace COMMAND")

    def test_a_flag_before_the_command(self, capsys):
        assert main(["--json", "train"]) == 2
        assert json.loads(capsys.readouterr().out)["exit_code"] == 2

    @pytest.mark.parametrize("name", COMMANDS)
    def test_an_unknown_flag_is_a_usage_error_in_both_forms(self, name, capsys):
        argv = [*(["show"] if name == "dataset" else []), "--json", "--no_such_flag"]
        assert main([name, *argv]) == 2
        captured = capsys.readouterr()
        error = json.loads(captured.out)
        assert set(error) == {"error", "exit_code"}
        assert error["exit_code"] == 2
        assert captured.err == f"error: {error['error']}\n"


def printed(argv: list[str], capsys: pytest.CaptureFixture[str], *, code: int = 0) -> Any:
    """The one JSON object that a command prints."""
    assert main([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


class TestJson:
    def test_samples(self, tmp_path, capsys):
        result = printed(["samples", "census", str(tmp_path / "c.csv"), "--rows", "10"], capsys)
        assert result == {"name": "census", "output": str(tmp_path / "c.csv"), "rows": 10, "seed": 1}
        assert printed(["samples", "shapes", str(tmp_path / "s"), "--each", "2"], capsys)["images"] == 6
        assert len(list((tmp_path / "s").rglob("*.png"))) == 6

    def test_a_flag_of_another_sample(self, tmp_path, capsys):
        error = printed(["samples", "shapes", str(tmp_path), "--rows", "5"], capsys, code=2)
        assert error == {"error": "--rows is for tables; give --each for shapes", "exit_code": 2}
        assert "--each is for shapes" in printed(["samples", "census", "x", "--each", "5"], capsys, code=2)["error"]

    def test_schema(self, capsys):
        assert list(printed(["schema"], capsys)["schemas"]) == list(shipped.names())
        result = printed(["schema", "titanic"], capsys)
        assert result == {"name": "titanic", "text": Path(shipped.path_of("titanic")).read_text()}

    def test_dataset_show_by_either_name_of_the_directory(self, once, capsys):
        summary = printed(["dataset", "show", str(once.path)], capsys)
        assert summary["splits"]["train"]["rows"] == once.manifest.splits["train"].rows
        assert printed(["dataset", "show", "--data_dir", str(once.path)], capsys) == summary

    def test_dataset_verify(self, out, capsys):
        whole = printed(["dataset", "verify", str(out.path)], capsys)
        assert (whole["problems"], whole["rows"]) == ([], 500)
        flip(out.path / out.shards()[0].path, 20)
        (problem,) = printed(["dataset", "verify", str(out.path)], capsys, code=1)["problems"]
        assert (problem["path"], problem["kind"]) == (out.shards()[0].path, "damaged")

    def test_dataset_prune(self, out, capsys):
        killed = "20200101T000001Z-0000"
        write_bytes(str(out.path / killed / "train"), b"123")
        for dry_run in (True, False):
            result = printed(["dataset", "prune", str(out.path), *(["--dry_run"] if dry_run else [])], capsys)
            arguments = {"path": str(out.path), "dry_run": dry_run}
            assert result == {**arguments, "removed": {killed: 3}, "left_alone": [], "orphans": []}
            assert (out.path / killed).exists() == dry_run

    def test_a_failure(self, out, capsys):
        (out.path / out.shards()[0].path).unlink()
        argv = ["train", "--data_dir", str(out.path), "--model_dir", str(out.path.parent / "m")]
        error = printed(argv, capsys, code=1)
        assert "missing, but manifest.json names it" in error["error"]

    def test_predictions_and_json_do_not_share_standard_output(self, tmp_path, capsys):
        argv = ["predict", "--saved_model", str(tmp_path), "--input", "x.csv", "--output", "-"]
        assert "both print on standard output" in printed(argv, capsys, code=2)["error"]


def test_a_flag_means_the_same_in_every_command():
    flag_kinds: dict[str, set[tuple[Any, ...]]] = {}
    for name in COMMANDS:
        own = importlib.import_module(COMMANDS[name].module).app(name)
        commands = [own] if own.default_command else [own[word] for word in own if word[0] != "-"]
        flags = {flag for command in commands for flag in flags_of(command, flag_kinds)}
        assert "--json" in flags
        assert ("--verbose" in flags) == (name in TENSORFLOW)
        assert ("--trust" in flags) == (name in TENSORFLOW)
    assert {flag: kinds for flag, kinds in flag_kinds.items() if len(kinds) > 1} == {}


def flags_of(command: cyclopts.App, flag_kinds: dict[str, set[Any]]) -> set[str]:
    """The flags of a command; adds the kind of each to those that were found."""
    arguments = command.assemble_argument_collection()
    for argument in arguments:
        kind = next((kind for kind in (bool, int, float) if kind in (argument.hint, *get_args(argument.hint))), str)
        flag_kinds.setdefault(argument.name, set()).add(kind)
    return {argument.name for argument in arguments}


def test_a_flag_may_be_written_with_dashes(once, capsys):
    assert printed(["dataset", "show", "--data-dir", str(once.path)], capsys)["path"] == str(once.path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_commands_and_their_flags(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    assert all(flag in script for flag in ("model_dir", "append_to", "dry_run", "saved_model"))


def test_bash_completes_a_flag_and_a_file(tmp_path, capsys):
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "complete.sh"
    script.write_text(capsys.readouterr().out)
    (tmp_path / "data.csv").touch()
    for words, completed in (("train --max_st", "--max_steps"), ("preprocess --input da", "data.csv")):
        ask = f"COMP_WORDS=(millrace {words}); COMP_CWORD={len(words.split())}; COMP_LINE='millrace {words}'; "
        code = (
            f"source {script}; {ask} $(complete -p millrace | sed -E 's/.*-F ([^ ]+).*/\\1/'); echo ${{COMPREPLY[@]}}"
        )
        done = subprocess.run(["bash", "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
        assert done.stdout.split() == [completed]
