"""A dataset of someone who means harm, and one with odd files: every command says what is wrong, and where."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import compare, preprocess
from schemas.dataset.command import main as dataset
from schemas.exports.notes import export_of
from schemas.init.command import main as init
from trainer import predict

SECRET = "root-of-all-secrets"
STATISTICS = {"format_version": 1, "splits": {}, "features": [], "sketches": {}}
LEAKAGE = {"format_version": 1}
READING: dict[str, Callable[[list[str]], int]] = {
    "show": lambda argv: dataset(["show", *argv]),
    "show --json": lambda argv: dataset(["show", "--json", *argv]),
    "stats": lambda argv: dataset(["stats", *argv]),
    "head": lambda argv: dataset(["head", *argv]),
    "verify": lambda argv: dataset(["verify", "--quiet", *argv]),
    "compare": compare.main,
    "append": lambda argv: preprocess.main(["--append_to", *argv, "--input", __file__, "--quiet"]),
}
DEEP = "[" * 99_999


class Stranger:
    """A copy of a dataset."""

    def __init__(self, parcels: Path, folder: Path) -> None:
        self.folder = folder
        self.out = Path(shutil.copytree(parcels / "data", folder / "out"))
        self.manifest: dict[str, Any] = json.loads((self.out / "manifest.json").read_text())
        self.run = self.out / self.manifest["run"]
        self.put("statistics.json", json.dumps(STATISTICS))
        self.put("leakage.json", json.dumps(LEAKAGE))

    def put(self, name: str, text: str) -> None:
        """Writes a file of the run, of which the manifest tells the truth."""
        data, path = text.encode(), f"{self.run.name}/{name}"
        (self.run / name).write_bytes(data)
        other_files = [file for file in self.manifest["files"] if file["path"] != path]
        entry = {"path": path, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        self.save(files=[*other_files, entry])

    def save(self, **changes: Any) -> None:
        self.manifest |= changes
        (self.out / "manifest.json").write_text(json.dumps(self.manifest))

    def link(self, name: str) -> None:
        """Has a link in place of a file or folder of the output lead to one outside, which holds a secret."""
        path, elsewhere = self.out / name, self.folder / "elsewhere"
        shutil.move(path, elsewhere)
        for file in [elsewhere] if elsewhere.is_file() else elsewhere.rglob("*"):
            if file.is_file() and file.suffix in (".yaml", ".json", ".jsonl", ".pbtxt", ".csv"):
                file.write_text(f"{SECRET}: {SECRET}\n")
        path.symlink_to(elsewhere)


@pytest.fixture
def stranger(parcels: Path, tmp_path: Path) -> Stranger:
    return Stranger(parcels, tmp_path)


@pytest.fixture
def export(parcels: Path) -> Path:
    return Path(export_of(str(parcels / "model")))


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    "name",
    ["manifest.json", "RUN", "RUN/schema.yaml", "RUN/statistics.json", "RUN/leakage.json", "RUN/transformed_metadata",
     "RUN/transformed_metadata/schema.pbtxt", "RUN/transform_fn/assets", "RUN/rejects-00000.jsonl"],
)  # fmt: skip
def test_no_command_follows_a_link_in_a_dataset(stranger, command, name, capsys):
    path = name.replace("RUN", stranger.run.name)
    stranger.link(path)
    assert READING[command]([str(stranger.out)]) in (1, 2)
    out, err = capsys.readouterr()
    assert "is a link" in out + err
    assert str(stranger.out / path) in out + err or f"{path}: is a link" in out
    assert SECRET not in out + err


def test_a_lease_is_no_link(stranger, capsys):
    (stranger.folder / "lease").write_text(SECRET)
    (stranger.out / "lease.json").symlink_to(stranger.folder / "lease")
    assert dataset(["prune", str(stranger.out)]) == 1
    assert "lease.json: is a link; expected a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "commands"),
    [
        ("manifest.json", DEEP, READING),
        ("manifest.json", "{" * 99_999, READING),
        ("statistics.json", DEEP, ["stats"]),
        ("statistics.json", '{"a":' * 99_999, ["stats"]),
        ("statistics.json", "[]", ["stats"]),
        ("statistics.json", '{"format_version": 1}', ["stats"]),
        ("statistics.json", '{"format_version": 1, "splits": 3, "features": [7]}', ["stats"]),
        ("leakage.json", DEEP, ["show", "show --json"]),
        ("leakage.json", '{"format_version": 1, "rows": 5}', ["show"]),
        ("leakage.json", "null", ["show"]),
        ("rejects-00000.jsonl", DEEP, ["verify"]),
        ("schema.yaml", DEEP, ["show", "head", "verify"]),
        ("schema.yaml", "a: &a [x, x]\nb: [*a, *a]\n", ["show", "head", "verify"]),
        ("transformed_metadata/schema.pbtxt", "feature { struct_domain { " * 5_000, ["show", "verify"]),
    ],
)  # fmt: skip
def test_no_depth_and_no_odd_value_ends_a_command_with_a_traceback(stranger, name, text, commands, capsys):
    """An error line, which names the file or, of what `verify` finds, its path in the dataset."""
    if name == "manifest.json":
        (stranger.out / name).write_text(text)
    else:
        stranger.put(name, text)
    for command in commands:
        assert READING[command]([str(stranger.out)]) in (1, 2)
        out, err = capsys.readouterr()
        assert name in out + err or str(stranger.out) in err
        assert "Traceback" not in out + err


def test_a_replay_and_a_prediction_refuse_what_is_nested_too_deeply(stranger, parcels, export, capsys):
    deep = stranger.folder / "deep.jsonl"
    deep.write_text(DEEP)
    assert preprocess.main(["--replay", str(deep), "--append_to", str(stranger.out)]) == 2
    assert f"{deep}:1: is not JSON" in capsys.readouterr().err
    export = Path(shutil.copytree(export, stranger.folder / "model"))
    (export / "assets.extra" / "millrace.json").write_text(DEEP)
    output = str(stranger.folder / "predictions.jsonl")
    argv = ["--saved_model", str(export), "--input", str(parcels / "raw.csv"), "--output", output]
    assert predict.main(argv) == 1
    assert "Expected the notes of an export of format version 1; export the model again" in capsys.readouterr().err
    for name in ("schema.yaml", "millrace.json"):
        secret = stranger.folder / f"secret-{name}"
        secret.write_text(f"{SECRET}: {SECRET}\n")
        (export / "assets.extra" / name).unlink()
        (export / "assets.extra" / name).symlink_to(secret)
        assert predict.main(argv) == 1
        err = capsys.readouterr().err
        assert f"{name}: is a link" in err
        assert SECRET not in err


@pytest.mark.parametrize("command", READING)
def test_a_manifest_that_contradicts_itself_is_described_by_no_command(stranger, command, capsys):
    stranger.save(read=1)
    assert READING[command]([str(stranger.out)]) in (1, 2)
    out, err = capsys.readouterr()
    assert "manifest.json: read is 1, but those of the inputs sum to" in out + err


ODD = os.fsdecode(b"caf\xe9.csv")


@pytest.fixture
def odd(parcels: Path, tmp_path: Path) -> Path:
    """A folder of two tables, of which one has a name that is not UTF-8."""
    for name in ("plain.csv", ODD):
        shutil.copy(parcels / "raw.csv", tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    {
        "preprocess": ["-m", "beam_jobs.preprocess", "--schema", "SCHEMA", "--output", "OUT",
                       "--input"],
        "init": ["-m", "schemas.init"],
        "predict": ["-m", "trainer.predict", "--saved_model", "MODEL", "--output", "OUT", "--input"],
        "append": ["-m", "beam_jobs.preprocess", "--append_to", "DATA", "--input"],
    }.items(),
    ids=lambda command: command[0],
)  # fmt: skip
def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_done(odd, parcels, export, command):
    """By the pattern that matches it; a pattern that does not is taken."""
    _, argv = command
    shutil.copytree(parcels / "data", odd / "data")
    places = {"OUT": odd / "out", "DATA": odd / "data", "MODEL": export, "SCHEMA": parcels / "schema.yaml"}
    argv = [str(places.get(arg, arg)) for arg in argv]
    done = subprocess.run([sys.executable, *argv, str(odd / "*.csv")], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{odd}/caf\\xe9.csv: this file's name is not UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (odd / "out").exists()


def test_a_folder_with_such_a_name_is_listed_readably(stranger):
    (stranger.out / os.fsdecode(b"notes\xff")).write_text("mine")
    for words in (["show"], ["show", "--json"], ["prune", "--dry_run"]):
        command = [sys.executable, "-m", "schemas.dataset", *words, str(stranger.out)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "notes\\xff" in done.stdout.replace("\\\\", "\\")


@pytest.mark.parametrize(
    ("main", "argv", "output"),
    [
        (preprocess.main, ["--schema", "schema.yaml", "--input", "**", "--output"], "out"),
        (preprocess.main, ["--schema", "schema.yaml", "--input", "plain.csv", "*/*/*", "--output"], "out"),
        (preprocess.main, ["--input", "**/*", "--append_to"], "data"),
        (init, ["*.csv", "*.yaml", "--output"], "new.yaml"),
        (predict.main, ["--saved_model", "model", "--input", "*.jsonl", "--output", "a.txt", "--rejects"], "b.jsonl"),
        (compare.main, ["data", "*", "--html"], "page.html"),
    ],
)  # fmt: skip
def test_an_output_inside_its_own_input_is_refused(tmp_path, monkeypatch, parcels, export, main, argv, output, capsys):
    """Else the next run reads what this one has written."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(parcels / "data", tmp_path / "data")
    shutil.copytree(export, "model")
    for name in ("plain.csv", "more.jsonl"):
        shutil.copy(parcels / "raw.csv", name)
    shutil.copy(parcels / "schema.yaml", "schema.yaml")
    before = sorted(tmp_path.rglob("*"))
    for place in (output, str(tmp_path / output), f"data/../{output}"):
        assert main([*argv, place]) == 2
        assert f"{argv[-1]} {place}: lies inside its own input" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before
