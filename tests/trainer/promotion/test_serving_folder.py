"""The folder that is served: versions appear whole or not at all, whoever is killed, and one of two promotions wins."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from schemas.errors import MillraceError, UsageError
from schemas.exports.notes import check_files, read_notes
from tests.support.light_exports import write_export
from trainer.promotion.options import PromoteOptions
from trainer.promotion.promote import roll_back
from trainer.promotion.serving_folder import ASIDE, LOG, ServingFolder

ROOT = Path(__file__).parents[3]


@pytest.fixture
def serving(tmp_path) -> ServingFolder:
    return ServingFolder(str(tmp_path / "serving"))


def put(serving: ServingFolder, export: str, *, keep: int = 10, first: bool = False) -> int:
    """Promotes without a gate; `first`: as if nothing were in service."""
    with serving.copied(export) as aside:
        record = {"outcome": "promoted", "export": export}
        return serving.publish(aside, record, after=None if first else serving.current(), keep=keep)


def exports(tmp_path: Path, count: int) -> list[str]:
    return [write_export(tmp_path / f"export-{i}", f"model {i}\n") for i in range(count)]


def content(serving: ServingFolder, version: int) -> str:
    return Path(serving.folder(version), "saved_model.pb").read_text().strip()


def test_versions_grow_each_with_its_record_and_its_line_in_the_log(serving, tmp_path):
    given = exports(tmp_path, 3)
    assert [put(serving, export) for export in given] == [1, 2, 3]
    assert serving.versions() == [1, 2, 3]
    assert [serving.record(n)["export"] for n in (1, 2, 3)] == given
    assert [entry["version"] for entry in serving.decisions()] == [1, 2, 3]
    for n in (1, 2, 3):
        check_files(serving.folder(n), read_notes(serving.folder(n))[1])


def test_numbers_go_on_from_exports_that_others_put_there(serving, tmp_path):
    write_export(Path(serving.path) / "1700000000", "theirs")
    assert put(serving, exports(tmp_path, 1)[0]) == 1700000001


def test_old_versions_are_removed_with_their_records(serving, tmp_path):
    for export in exports(tmp_path, 5):
        put(serving, export, keep=2)
    assert serving.versions() == [4, 5]
    assert sorted(os.listdir(serving.path)) == ["4", "4.json", "5", "5.json", LOG]
    assert len(serving.decisions()) == 5


def test_a_copy_that_differs_from_its_checksums_is_not_put_in_service(serving, tmp_path):
    (export,) = exports(tmp_path, 1)
    Path(export, "variables", "1").write_text("changed")
    with pytest.raises(MillraceError, match="was changed"):
        put(serving, export)
    assert os.listdir(serving.path) == []


def test_of_two_promotions_at_once_one_wins(serving, tmp_path):
    given = exports(tmp_path, 8)

    def promote(export: str) -> int | None:
        try:
            return put(ServingFolder(serving.path), export, first=True)
        except MillraceError:
            return None

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(promote, given))
    assert [version for version in done if version] == [1]
    assert serving.versions() == [1]
    assert sorted(os.listdir(serving.path)) == ["1", "1.json", LOG]
    assert content(serving, 1) == f"model {done.index(1)}"


def test_rolling_back_goes_back_step_by_step_as_new_versions(serving, tmp_path):
    for export in exports(tmp_path, 3):
        put(serving, export)
    first, second = (roll_back(PromoteOptions(to=serving.path, rollback=True)) for _ in range(2))
    assert (first.version, first.restores, second.version, second.restores) == (4, 2, 5, 1)
    assert [content(serving, n) for n in (4, 5)] == ["model 1", "model 0"]
    with pytest.raises(UsageError, match="no version before 1"):
        roll_back(PromoteOptions(to=serving.path, rollback=True))
    third = roll_back(PromoteOptions(to=serving.path, rollback=True, to_version=3))
    assert (third.version, content(serving, 6)) == (6, "model 2")
    with pytest.raises(UsageError, match="cannot return to version 9; there are 1, 2, 3, 4, 5"):
        roll_back(PromoteOptions(to=serving.path, rollback=True, to_version=9))
    assert [entry["outcome"] for entry in serving.decisions()] == ["promoted"] * 3 + ["rolled_back"] * 3


def test_a_line_of_the_log_that_a_kill_cut_off_is_removed(serving, tmp_path):
    one, two = exports(tmp_path, 2)
    put(serving, one)
    with open(Path(serving.path, LOG), "ab") as log:
        log.write(b'{"outcome": "pro')
    put(serving, two)
    assert [entry["version"] for entry in serving.decisions()] == [1, 2]


def test_a_version_whose_promotion_was_killed_before_its_line_is_logged_by_the_next(serving, tmp_path):
    one, two = exports(tmp_path, 2)
    put(serving, one)
    Path(serving.path, LOG).unlink()
    put(serving, two)
    assert [entry["version"] for entry in serving.decisions()] == [1, 2]


PROMOTES = """
import sys
from trainer.promotion.serving_folder import ServingFolder
serving = ServingFolder(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while True:
    for export in sys.argv[2:]:
        with serving.copied(export) as aside:
            serving.publish(aside, {"export": export}, after=serving.current(), keep=3)
"""


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_whole_versions(serving, tmp_path):
    given, chance = exports(tmp_path, 2), random.Random(1)
    highest = 0
    for _ in range(12):
        command = [sys.executable, "-c", PROMOTES, serving.path, *given]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdout.readline()
            process.stdin.write(b"\n")
            process.stdin.flush()
            time.sleep(chance.random() * 0.3)
            process.kill()
        for version in serving.versions():
            check_files(serving.folder(version), read_notes(serving.folder(version))[1])
            assert serving.record(version)["export"] in given
        assert (serving.current() or 0) >= highest
        highest = serving.current() or 0
    assert highest > 0
    put(serving, given[0])
    assert [name for name in os.listdir(serving.path) if name.startswith(ASIDE)] == []
    logged = [entry["version"] for entry in serving.decisions()]
    assert logged == sorted(set(logged))
    assert set(serving.versions()) <= set(logged)
    assert json.loads(Path(serving.path, f"{serving.current()}.json").read_text())["version"] == logged[-1]
