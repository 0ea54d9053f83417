"""A file appears complete or not at all, and the next process removes what a killed one left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import storage
from schemas.storage import folders
from trainer.predicting.atomic_file import PartialFile, atomic_output

WRITER = """
import sys, time
from trainer.predicting.atomic_file import atomic_output
with atomic_output(sys.argv[1]) as file:
    file.write("x" * 2**21)
    print("writing", flush=True)
    time.sleep(600)
"""


def start_writer(path: Path) -> subprocess.Popen[str]:
    """A process in the middle of writing to a path."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    return process


def put(path: Path, text: str) -> None:
    with atomic_output(str(path)) as file:
        file.write(text)
        file.commit()


def test_leftovers_of_a_killed_process_are_removed_and_those_of_a_live_one_stay(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    dead, living = start_writer(path), start_writer(path)
    other = start_writer(tmp_path / "another.jsonl")
    try:
        for process in (dead, other):
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert len(list(tmp_path.glob(".p.jsonl.*.partial"))) == 2
        put(path, "whole\n")
        assert len(list(tmp_path.glob(".p.jsonl.*.partial"))) == 1
        assert not list(tmp_path.glob(".another.jsonl.*.partial"))  # whatever the next output is called
    finally:
        living.kill()
        living.communicate()
    assert path.read_text() == "whole\n"
    put(path, "again\n")
    assert [p.name for p in tmp_path.iterdir() if "another" not in p.name] == ["p.jsonl"]


def test_what_only_looks_alike_stays(tmp_path: Path) -> None:
    names = (".p.jsonl.deadbeef.partial.bak", ".p.jsonl.deadbee.partial", ".q.txt.deadbeef.partial", "p.partial")
    for name in names:
        (tmp_path / name).touch()
    os.mkfifo(tmp_path / ".p.jsonl.00000000.partial")  # which must not be waited on
    (tmp_path / ".p.jsonl.11111111.partial").symlink_to(tmp_path / "p.partial")
    put(tmp_path / "p.jsonl", "")
    assert {p.name for p in tmp_path.iterdir()} >= {*names, ".p.jsonl.11111111.partial", "p.jsonl"}


def test_one_that_another_process_removes_before_it_is_locked_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["aaaaaaaa", "bbbbbbbb"])

    first = tmp_path / ".p.jsonl.aaaaaaaa.partial"
    monkeypatch.setattr("trainer.predicting.atomic_file.secrets.token_hex", lambda _: next(names))

    def remove_the_first(*_: object, **__: object) -> bool:
        first.unlink(missing_ok=True)
        return True

    monkeypatch.setattr("trainer.predicting.atomic_file._lock", remove_the_first)
    put(tmp_path / "p.jsonl", "whole\n")
    assert (tmp_path / "p.jsonl").read_text() == "whole\n"
    assert next(names, None) is None


def test_it_is_on_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls in their order; each is done."""
    calls: list[str] = []
    fsync, move, sync_folder = os.fsync, folders.move, storage.sync_folder

    def told_fsync(handle: int) -> None:
        calls.append(f"fsync {os.fstat(handle).st_size}")
        fsync(handle)

    def told_move(source: str, target: str) -> None:
        calls.append("move")
        move(source, target)

    def told_sync(folder: str) -> None:
        calls.append(f"folder {folder}")
        sync_folder(folder)

    aside = PartialFile(str(tmp_path / "p.jsonl"))
    aside.write("12345")
    monkeypatch.setattr(os, "fsync", told_fsync)
    monkeypatch.setattr(folders, "move", told_move)
    monkeypatch.setattr(storage, "sync_folder", told_sync)
    aside.commit()
    aside.close()
    assert calls[:3] == ["fsync 5", "move", f"folder {tmp_path}"]


def test_without_commit_nothing_is_left(tmp_path: Path) -> None:
    with atomic_output(str(tmp_path / "made" / "p.jsonl")) as file:
        file.write("x")
    assert list((tmp_path / "made").iterdir()) == []
