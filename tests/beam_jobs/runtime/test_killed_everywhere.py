"""What `kill -9` before each file operation of a commit or a prune leaves, and what the next command does with it.

A command runs once, and its output is copied just before each of its file operations. Such a copy is what a kill there
leaves: what the process has in its memory is lost to both. Its lease names a process that is dead by the time when the
next command finds it.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from schemas.dataset import command, layout, open_dataset
from schemas.dataset.manifest import read_manifest
from schemas.dataset.prune import leftovers
from schemas.dataset.verify import verify_dataset
from tests.beam_jobs.conftest import Run
from tests.support.replaying import BAD, BROKEN, HEADER, ROWS, SCHEMA, Folder, as_good

pytestmark = pytest.mark.long

CRASHED = "20200101T000000Z-0000"
PENDING = re.compile(r"[0-9a-f]{32}")
SEED = int(os.environ.get("MILLRACE_KILL_SEED", random.SystemRandom().randrange(10**6)))
KILLS = 3


@dataclasses.dataclass(frozen=True)
class Scene:
    """A dataset over an older one and what a killed job left, to be copied; and commands on a copy."""

    raw: Path
    prepared: Path

    def command(self, kind: str, output: Path) -> dict[str, Any]:
        match kind:
            case "replay":
                return {"argv": ["--replay", str(self.raw / "corrected.jsonl"), "--append_to", str(output), "--quiet"]}
            case "job":
                inputs = ["--schema", str(self.raw / "schema.yaml"), "--input", str(self.raw / "rows.csv")]
                return {"argv": [*inputs, "--output", str(output), "--overwrite", "--quiet"]}
            case _:
                return {"argv": ["prune", str(output), "--all"], "program": "dataset"}

    def copy(self, to: Path) -> Path:
        return shutil.copytree(self.prepared, to)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, run_jobs: Run) -> Scene:
    folder = Folder(tmp_path_factory.mktemp("scene"))
    folder.write("schema.yaml", [SCHEMA])
    folder.write("rows.csv", [HEADER, *BAD])
    made = Scene(folder.path, folder.path / "prepared")
    for _ in range(2):
        (report,) = run_jobs(made.command("job", made.prepared))
        assert report["status"] == 0, report["stderr"]
    folder.correct(open_dataset(str(made.prepared)), as_good, "corrected.jsonl")
    left = made.prepared / CRASHED
    (left / "staging").mkdir(parents=True)
    (left / "staging" / "fragment-1").write_bytes(b"x")
    (made.prepared / f".schema.yaml.{'0' * 32}.tmp").write_bytes(b"x")
    assert read_manifest(str(made.prepared)).previous
    return made


def contents(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def whole(output: Path) -> dict[str, bytes]:
    """The manifest of a valid dataset with every row of the input, and all files of the runs that it names."""
    assert verify_dataset(str(output)) == []
    manifest = read_manifest(str(output))
    assert manifest.read == len(ROWS)
    named = {layout.MANIFEST, *manifest.runs}
    return {name: data for name, data in contents(output).items() if name.partition("/")[0] in named}


def check_next(output: Path, valid: dict[str, bytes]) -> None:
    """The dataset is that one, and nothing is beside it but the one before, or what is left of it."""
    now = read_manifest(str(output))
    assert valid.items() <= contents(output).items()
    assert leftovers(str(output)) == []
    present = {path.name for path in output.iterdir()}
    assert {layout.MANIFEST} | now.runs <= present <= {layout.MANIFEST, *now.runs, *now.previous}


def prune(output: Path) -> None:
    assert command.main(["prune", str(output)]) == 0


def names(output: Path, *, depth: int) -> frozenset[str]:
    """The names down to a depth. Pending files lack what is drawn; the lease's own come and go with its heartbeats."""
    paths = (path.relative_to(output) for path in output.rglob("*"))
    found = (PENDING.sub("", str(path)) for path in paths if len(path.parts) <= depth)
    return frozenset(name for name in found if layout.LEASE not in name)


@pytest.mark.parametrize("kind", ["replay", "job", "prune"])
def test_a_kill_before_any_file_operation_leaves_a_complete_dataset_and_the_next_run_cleans_up(
    kind: str, tmp_path: Path, scene: Scene, run_jobs: Run
) -> None:
    output, copies = scene.copy(tmp_path / "out"), tmp_path / "copies"
    old = whole(output)
    (unhurt,) = run_jobs({**scene.command(kind, output), "snapshots": [str(output), str(copies)]})
    assert unhurt["status"] == 0, unhurt["stderr"]
    new, manifest = whole(output), read_manifest(str(output))
    assert (new == old) == (kind == "prune")
    assert manifest.rejected == (0 if kind == "replay" else len(BROKEN))
    assert kind == "prune" or set(manifest.previous) == read_manifest(str(scene.prepared)).runs
    check_next(output, new)

    moments = [copies / str(n) for n in range(1, len(unhurt["steps"]) + 1)]
    assert len(moments) > 5
    again: dict[tuple[bool, frozenset[str]], tuple[Path, dict[str, bytes]]] = {}  # one for each state of the folder
    for moment in moments:
        now = contents(moment)
        committed = now[layout.MANIFEST] == new[layout.MANIFEST]
        valid = new if committed else old
        assert valid.items() <= now.items()
        assert old.keys() <= now.keys()  # readers have its runs open
        state = committed, names(moment, depth=1)
        if state not in again and kind != "job":  # a job after a killed one is what `test_killed` runs
            again[state] = shutil.copytree(moment, tmp_path / f"again-{moment.name}"), valid
        prune(moment)
        check_next(moment, valid)
    for copy, valid in again.values():
        (report,) = run_jobs(scene.command(kind, copy))
        assert report["status"] == 0, report["stderr"]
        if kind == "replay" and valid is old:
            assert read_manifest(str(copy)).rejected == 0
            check_next(copy, whole(copy))
        else:  # a replay has nothing to do, and leaves cleaning up to others
            prune(copy)
            check_next(copy, valid)


def test_a_copy_is_what_a_kill_leaves(tmp_path: Path, scene: Scene, run_jobs: Run) -> None:
    output, copies = scene.copy(tmp_path / "out"), tmp_path / "copies"
    (unhurt,) = run_jobs({**scene.command("prune", output), "snapshots": [str(output), str(copies)]})
    copied = [names(copies / str(n), depth=9) for n in range(1, len(unhurt["steps"]) + 1)]
    assert len(set(copied)) > 5
    print(f"MILLRACE_KILL_SEED={SEED}")
    for n in random.Random(SEED).sample(range(1, len(copied) + 1), KILLS):
        killed = scene.copy(tmp_path / f"killed-{n}")
        (report,) = run_jobs({**scene.command("prune", killed), "kill_at": n})
        assert report["status"] == -9, report["stderr"]
        assert names(killed, depth=9) in copied
        prune(killed)
        check_next(killed, whole(killed))
