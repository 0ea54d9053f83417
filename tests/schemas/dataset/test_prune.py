"""What a dataset directory holds beside its dataset: what is removed, and what never is."""

from __future__ import annotations

import contextlib
import functools
import os
import random
from collections.abc import Callable

import pytest

from schemas import storage
from schemas.dataset.lease import LeaseError, hold
from schemas.dataset.manifest import File, Manifest, read_manifest
from schemas.dataset.prune import foreign, leftovers, orphans, size
from schemas.dataset.prune import prune as prune_held
from schemas.errors import MillraceError
from schemas.storage import folders
from tests.support import small_jobs
from tests.support.small_jobs import Work, advance, interrupted, job, manifest, missing, pruning, run_folder

CURRENT, APPENDED_TO, PREVIOUS, OLD, CRASHED = (f"20261121T07450{i}Z-3f2a" for i in range(5))
HEX = "0123456789abcdef" * 2


def appended() -> Manifest:
    """Of a run that was appended to an older one, and took the place of a third."""
    files = (File(path=f"{CURRENT}/schema.yaml", bytes=4, sha256=""),)
    of_runs = small_jobs.manifest(CURRENT, keeps=(small_jobs.shard(APPENDED_TO),), previous=(PREVIOUS,))
    return of_runs.model_copy(update={"files": files})


def prune(root: str, *, keep_previous: bool = True) -> list[str]:
    with hold(root, run="prune") as lease:
        return prune_held(root, lease, keep_previous=keep_previous)


@pytest.fixture
def root(data_dir: str) -> str:
    """A dataset directory of five runs, on disk and in a bucket."""
    make(data_dir)
    return data_dir


def make(root: str) -> None:
    for run in (CURRENT, APPENDED_TO, PREVIOUS, OLD, CRASHED):
        put(root, f"{run}/train-00000-of-00001.tfrecord")
    put(root, f"{CRASHED}/staging/fragment-1")
    put(root, f"failed/{CRASHED}/rejects-00000.jsonl")
    storage.write_bytes(storage.join(root, "manifest.json"), appended().to_json())


def put(root: str, name: str) -> None:
    storage.write_bytes(storage.join(root, name), b"1234")


def test_runs_that_nothing_names_are_removed_and_failed_ones_are_kept(root):
    assert [size(root, name) for name in leftovers(root)] == [4, 8]
    assert prune(root) == [OLD, CRASHED]
    assert storage.listdir(root) == [CURRENT, APPENDED_TO, PREVIOUS, "failed", "manifest.json"]
    assert storage.listdir(storage.join(root, "failed")) == [CRASHED]
    assert prune(root) == leftovers(root) == []


def test_what_nobody_reads_in_an_older_run_goes_and_its_shards_and_foreign_files_stay(root):
    """Once a manifest says what the one before it named."""
    report, schema = f"{APPENDED_TO}/report.html", f"{APPENDED_TO}/schema.yaml"
    for name in (report, schema, f"{APPENDED_TO}/transform_fn/saved_model.pb", f"{APPENDED_TO}/notes.txt"):
        put(root, name)
    assert prune(root) == [OLD, CRASHED]
    named = appended().model_copy(update={"previous_files": (File(path=schema, bytes=4, sha256=""),)})
    storage.write_bytes(storage.join(root, "manifest.json"), named.to_json())
    assert prune(root) == [report, f"{APPENDED_TO}/transform_fn"]
    left = ["notes.txt", "schema.yaml", "train-00000-of-00001.tfrecord"]
    assert storage.listdir(storage.join(root, APPENDED_TO)) == left
    assert prune(root, keep_previous=False) == [PREVIOUS]


def test_temporary_files_of_unfinished_puts_are_removed(root):
    strays = [f".manifest.json.{HEX}.tmp", f"{CURRENT}/.schema.yaml.{HEX}.tmp", f"{CURRENT}/parity/.raw.{HEX}.tmp"]
    foreign_files = [f".lease.json.{HEX}.tmp", ".vimrc.tmp", f"failed/.summary.json.{HEX}.tmp"]
    with hold(root, run="prune") as lease:
        for name in strays + foreign_files:
            put(root, name)
        assert prune_held(root, lease) == sorted([OLD, CRASHED, *strays])
        assert all(storage.exists(storage.join(root, name)) for name in foreign_files)


def test_foreign_files_are_named_and_left_alone(root):
    for name in ("thesis.doc", "20261121/notes.txt"):
        put(root, name)
    assert foreign(root) == ["20261121", "thesis.doc"]
    assert prune(root) == [OLD, CRASHED]
    assert foreign(root) == ["20261121", "thesis.doc"]


def test_without_a_manifest_only_unfinished_runs_are_removed(root):
    storage.delete(storage.join(root, "manifest.json"))
    assert orphans(root) == [CURRENT, APPENDED_TO, PREVIOUS, OLD]
    assert prune(root) == [CRASHED]
    assert storage.listdir(root) == [CURRENT, APPENDED_TO, PREVIOUS, OLD, "failed"]


def test_with_a_manifest_that_cannot_be_read_nothing_is_removed(root):
    storage.write_bytes(storage.join(root, "manifest.json"), b"{}")
    before = storage.listdir(root)
    with pytest.raises(MillraceError, match="Expected a manifest of format version"):
        prune(root)
    assert storage.listdir(root) == before


def test_a_link_of_a_runs_name_is_left_alone(tmp_path):
    root, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    make(str(root))
    elsewhere.mkdir()
    (elsewhere / "x").write_text("do not lose")
    os.symlink(elsewhere, root / "20270101T000000Z-0000")
    (root / "20270101T000001Z-0000").write_text("a file")
    assert prune(str(root)) == [OLD, CRASHED]
    assert foreign(str(root)) == ["20270101T000000Z-0000", "20270101T000001Z-0000"]
    assert (elsewhere / "x").exists()


def test_whose_lease_was_taken_removes_nothing_any_more(root, monkeypatch):
    remove = folders.remove
    with contextlib.ExitStack() as theirs, hold(root, run="mine") as mine:

        def overtaken(path):
            remove(path)
            theirs.enter_context(hold(root, run="theirs", stale_seconds=-1))

        monkeypatch.setattr(folders, "remove", overtaken)
        with pytest.raises(LeaseError, match="lease was taken over by run theirs") as error:
            prune_held(root, mine)
        assert "committed" not in str(error.value)  # it may have been
    assert OLD not in storage.listdir(root)
    assert CRASHED in storage.listdir(root)


KILLED, BEFORE, FIRST, SLOW, OTHER, AFTER = (f"20261121T07450{i}Z-3f2a" for i in range(6))
SEED = int(os.environ.get("MILLRACE_STOP_SEED", random.SystemRandom().randrange(10**6)))

# What the process that is stopped does, and what the other does meanwhile.
Kind = Callable[[str, str, list[str]], Work]


KINDS: dict[str, Kind] = {
    "job": lambda root, run, committed: job(root, run, appends=False, committed=committed),
    "replay": lambda root, run, committed: job(root, run, appends=True, committed=committed),
    "prune": lambda root, run, committed: pruning(root, keep_previous=False),
}


@pytest.fixture
def fresh(data_dir: str) -> Callable[[], str]:
    """Makes dataset directories, one after another: two runs that are named, and one that a killed job left."""
    count = 0

    def make() -> str:
        nonlocal count
        count += 1
        root = storage.join(data_dir, str(count))
        for run in (KILLED, BEFORE, FIRST):
            run_folder(root, run)
        storage.write_bytes(storage.join(root, "manifest.json"), manifest(FIRST, previous=(BEFORE,)).to_json())
        return root

    return make


def check(root: str, committed: list[str]) -> None:
    """The dataset is complete, and each process that exited with 0 saw the commit before its own."""
    assert missing(root) == []
    now = read_manifest(root)
    assert now.run in (committed or [FIRST])
    assert {*committed} <= {now.run, *now.previous}


@pytest.mark.slow
@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("slow", KINDS)
def test_a_process_stopped_anywhere_while_others_work_does_no_harm(fresh, slow, other, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # thousands of jobs, and the power stays on
    root = fresh()
    with interrupted(root, {}) as steps:
        advance(KINDS[slow](root, SLOW, []))
    assert steps.count > 10
    draw = random.Random(SEED)
    print(f"MILLRACE_STOP_SEED={SEED}")
    local = storage.is_local(root)  # there each step is a request, and as many cost minutes
    every = range(steps.count)
    whole = [(first, None, first) for first in (every if local else draw.sample(every, 2))]
    parts = [(*sorted(draw.choices(every, k=2)), draw.choice((1, 2, 3))) for _ in range(24 if local else 2)]
    for first, part, second in whole + [(first, part, second) for first, second, part in parts]:
        root = fresh()
        committed: list[str] = []
        with contextlib.closing(KINDS[other](root, OTHER, committed)) as meanwhile:
            calls: dict[int, list[Callable[[], None]]] = {first: [functools.partial(advance, meanwhile, part)]}
            calls.setdefault(second, []).append(functools.partial(advance, meanwhile))
            with interrupted(root, calls):
                advance(KINDS[slow](root, SLOW, committed))
            check(root, committed)
        after: list[str] = []
        advance(job(root, AFTER, appends=False, committed=after))
        assert after, "nobody is left holding the directory"
        assert missing(root) == []
