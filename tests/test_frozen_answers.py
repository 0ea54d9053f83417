"""What release 0.2.0 answered to `--help` and to wrong use (`fixtures/v0_2_0`), and what is meant to differ."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from millrace import cli
from tests.support.commands import ended

FIXTURES = Path(__file__).parent / "fixtures" / "v0_2_0"
ROOT = Path(cli.__file__).parents[1]

# Each command line whose answer is meant to differ from that of 0.2.0, and why. A failed test prints the line to add.
MEANT: dict[str, str] = {
    "millrace": "commands are grouped",
    "millrace --help": "commands are grouped; exit codes after signals",
    "millrace -q": "the flag is named",
    "millrace batch-predict --help": "--model_dir",
    "millrace compare --help": "nothing is judged without a threshold",
    "millrace compare csv/data": "1 file, not 1 file(s)",
    "millrace compare csv/data csv/day2.csv --drift much": "what a value must be is said in one form",
    "millrace compare csv/data csv/day2.csv --quiet --json": "nothing is judged without a threshold",
    "millrace compare csv/data csv/store/requests-00000001.csv --quiet": "1 file, not 1 file(s)",
    "millrace compare nowhere": "a folder that is not there is said to be none",
    "millrace completion --help": "nothing is installed from an index",
    "millrace dataset prune csv/data --dry_run": "1 file, not 1 file(s)",
    "millrace dataset prune images/data --dry_run": "1 file, not 1 file(s)",
    "millrace dataset prune replayed/data --dry_run": "1 file, not 1 file(s)",
    "millrace dataset show csv/data": "1 file, not 1 file(s)",
    "millrace dataset verify cut --quiet": "1 file, not 1 file(s)",
    "millrace dataset verify flipped --quiet": "1 file, not 1 file(s)",
    "millrace doctor --data_dir nowhere": "a folder that is not there is said to be none",
    "millrace doctor --help": "squeezenext has warmup_start",
    "millrace evaluate --data_dir csv/data --model_dir nowhere": "commands are called millrace",
    "millrace evaluate --help": "--overwrite",
    "millrace init --check csv/schema.yaml bad/other.csv": "the line of an extra column is that of preprocess",
    "millrace init csv/day1.csv --label lateness": "hints have one form",
    "millrace label --help": "--quiet, since it shows progress",
    "millrace plan --help": "its samples are smaller",
    "millrace predict --help": "--model_dir",
    "millrace predict --saved_model nowhere --input csv/day1.csv": "a folder that is not there is said to be none",
    "millrace predict --saved_model unnoted --input csv/day1.csv --output new.jsonl": "commands are called millrace",
    "millrace predict --saved_model csv/serving/1 --input bad/other.csv --output new.jsonl --quiet": "it has a remedy",
    "millrace preprocess --append_to nowhere --input csv/day1.csv --quiet": (
        "a folder that is not there is said to be none"
    ),
    "millrace preprocess --help": "--workers",
    "millrace preprocess --replay bad/not.jsonl --append_to replayed/data --quiet": "another JSON parser",
    "millrace preprocess --schema bad/key.yaml --input csv/day1.csv --output new": "numbers have clip",
    "millrace preprocess --schema bad/split.yaml --input csv/day1.csv --output new": "the shares are named",
    "millrace preprocess --schema csv/schema.yaml --input csv/day1.csv --output new --compression zip": (
        "a near miss is answered"
    ),
    "millrace preprocess --schema csv/schema.yaml --input csv/day1.csv --output new --transform_from nowhere": (
        "a folder that is not there is said to be none"
    ),
    "millrace preprocess --schema csv/schema.yaml --input bad/other.csv --output new --quiet": "it has a remedy",
    "millrace promote --help": "--from takes a training's directory",
    "millrace promote --from nowhere --to new": "a folder that is not there is said to be none",
    "millrace schema titanic census": "a word that belongs to no flag is said to be none",
    "millrace schema titanik": "a near miss is answered",
    "millrace serve --help": "--check_secs, --check_mb; the queue is bounded in bytes",
    "millrace serve --model_dir nowhere": "exports have numbers",
    "millrace submit kubernetes --help": "--overwrite",
    "millrace submit local -- train --data_dir csv/data --model_dir new --steps 5": "the flag is named",
    "millrace train --data_dir csv/data --model_dir csv/model --hparams hidden_units=16 --max_steps 61": "others stay",
    "millrace train --data_dir csv/data --model_dir csv/model --hparams hiden_units=8": "dnn squashes numbers",
    "millrace train --data_dir csv/data --model_dir csv/model --model forest": "there are boosted trees",
    "millrace train --data_dir csv/data --model_dir csv/model --slice_by colour": "TensorFlow is not started",
    "millrace train --help": "squeezenext has warmup_start",
    "millrace trian": "commands are grouped",
    "millrace tune --data_dir replayed/data --study new --space speed=double:0:1": "tabular is the default model",
    "millrace tune --help": "squeezenext has warmup_start",
    "millrace verify --data_dir csv/data --saved_model nowhere": "a folder that is not there is said to be none",
    "millrace verify --help": "--saved_model takes a training's directory",
    "python -m schemas.image_samples --each many out": "what a value must be is said in one form",
    "python -m trainer.task --data_dir nowhere --model_dir new": "a folder that is not there is said to be none",
}

TABLE = json.loads((FIXTURES / "wrong_uses.json").read_text())
HELP = dict(re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", (FIXTURES / "help.txt").read_text(), flags=re.MULTILINE))
OTHER_ENTRIES = {  # modules whose help is that of a command
    "python -m trainer.replica": "millrace train",
    "python -m beam_jobs.flex_template": "millrace preprocess",
}


def run(line: str) -> Any:
    """Runs a command line, `millrace ...` or `python -m MODULE ...`, in this process. Returns its exit code."""
    first, *rest = shlex.split(line)
    try:
        if first == "millrace":
            return cli.main(rest)
        with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
            patch.setattr(sys, "argv", rest[1:])
            return runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        return ended.code


def answer(line: str) -> dict[str, Any]:
    """A command line's exit code and what it printed, with this folder as `<here>` and the project's as `<root>`."""
    done = ended(run, line)
    err, out = (text.replace(str(Path.cwd()), "<here>").replace(str(ROOT), "<root>") for text in (done.err, done.out))
    return {"exit": done.code, "err": err, "out": out}


def same(text: str) -> str:
    """A text without how long it took, and without what Python's versions do differently: where argparse breaks lines,
    and how it quotes choices."""
    text = re.sub(r"\(choose from [^)]*\)", lambda choices: choices[0].replace("'", ""), text)
    text = re.sub(r"\b[\d.,]+ (s|GB/s)\b|(\"seconds\": )[\d.e+-]+", r"\1\2", text)
    return "".join(text.split())


def check(line: str, found: dict[str, Any], frozen: dict[str, Any]) -> None:
    """Fails if the answer differs and is not listed in MEANT, or is listed and does not differ."""
    parts = [part for part in frozen if same(str(found[part])) != same(str(frozen[part]))]
    if line in MEANT:
        assert parts, f"{line}: answers as 0.2.0 did; take it out of MEANT"
        return
    told = "\n".join(f"--- {part} of 0.2.0\n{frozen[part]}\n+++ now\n{found[part]}" for part in parts)
    assert not parts, f"{told}\nIf this is meant, add to MEANT: {line!r}: 'why',"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what 0.2.0 wrote, with the damaged and wrong files of the table. No case changes it."""
    made = Path(shutil.copytree(FIXTURES, tmp_path_factory.mktemp("frozen") / "scratch"))
    for what, path, *how in TABLE["scratch"]:
        if what == "write":
            (made / path).parent.mkdir(exist_ok=True)
            (made / path).write_text(how[0])
            continue
        (found,) = made.glob(path)
        if what == "copy":
            target = made / how[0]
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(found, target) if found.is_dir() else shutil.copy(found, target)
        elif what == "remove":
            found.unlink()
        else:
            data = bytearray(found.read_bytes())
            if what == "cut":
                del data[how[0] :]
            else:  # flip
                data[how[0]] ^= 1
            found.write_bytes(data)
    return made


def line_of(case: dict[str, Any]) -> str:
    argv = list(case["argv"])
    if argv and argv[0].startswith("python -m "):
        return shlex.join([*argv[0].split(), *argv[1:]])
    return shlex.join(["millrace", *argv])


def parameters() -> list[Any]:
    return [
        pytest.param(case, id=line_of(case), marks=[pytest.mark.slow] if case.get("heavy") else [])
        for case in TABLE["cases"]
    ]


@pytest.mark.parametrize("case", parameters())
def test_wrong_use_is_answered_as_before(case: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    check(line_of(case), answer(line_of(case)), {part: case[part] for part in ("exit", "err", "out")})


@pytest.mark.parametrize("line", HELP)
def test_help_says_what_it_said(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    found = answer(line)
    assert found["exit"] == 0
    check(line, {"help": found["out"]}, {"help": HELP[line]})


def modules() -> dict[str, str]:
    """Each `python -m ... --help`, and the command's help that it is but for its name."""
    found = {}
    for line in HELP:
        name, *rest = line.split()[1:-1] or [""]
        if line.startswith("millrace") and name not in ("", "completion"):
            module = cli.COMMANDS[name].module
            room = module.rpartition(".")[0]
            if module.startswith("millrace.") and room != "millrace.submit":
                continue  # it is a command of `millrace` alone
            module = room if (ROOT / room.replace(".", "/") / "__main__.py").exists() else module
            found[" ".join(["python", "-m", module, *rest, "--help"])] = line
    return found | {f"{module} --help": f"{name} --help" for module, name in OTHER_ENTRIES.items()}


@pytest.mark.parametrize("line", modules())
def test_the_module_has_the_help_of_its_command(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    as_command = modules()[line]
    command, module = as_command.split()[:2], line.split()[:3]
    found = answer(line)["out"].replace(" ".join(module), " ".join(command))
    assert same(found) == same(answer(as_command)["out"])


def test_every_meant_difference_is_of_a_frozen_answer() -> None:
    assert sorted(set(MEANT) - set(HELP) - {line_of(case) for case in TABLE["cases"]}) == []
