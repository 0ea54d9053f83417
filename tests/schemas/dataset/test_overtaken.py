"""A process that is stopped for hours before any of its file operations, while others do all of their work or a part.

Whatever the order: the manifest names nothing that is not there, and nobody ends with 0 whose work was dropped.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
from collections.abc import Callable

import pytest

from schemas import storage
from schemas.dataset.manifest import read_manifest
from tests.support.small_jobs import Work, advance, interrupted, job, manifest, missing, pruning, run_folder

pytestmark = pytest.mark.slow

CRASHED, BEFORE, FIRST, SLOW, OTHER, AFTER = (f"20261121T07450{i}Z-3f2a" for i in range(6))
SEED = int(os.environ.get("MILLRACE_STOP_SEED", random.SystemRandom().randrange(10**6)))

# What the process that is stopped does, and what the other does meanwhile.
Kind = Callable[[str, list[str]], Work]


def a_job(data_dir: str, committed: list[str], *, run: str) -> Work:
    return job(data_dir, run, appends=False, committed=committed)


def a_replay(data_dir: str, committed: list[str], *, run: str) -> Work:
    return job(data_dir, run, appends=True, committed=committed)


def a_prune(data_dir: str, _: list[str], *, run: str) -> Work:
    return pruning(data_dir, keep_previous=False)


KINDS = {"job": a_job, "replay": a_replay, "prune": a_prune}


@pytest.fixture
def fresh(data_dir: str) -> Callable[[], str]:
    """Makes dataset directories, one after another: two runs that are named, and one that a killed job left."""
    count = 0

    def make() -> str:
        nonlocal count
        count += 1
        root = storage.join(data_dir, str(count))
        for run in (CRASHED, BEFORE, FIRST):
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


@pytest.mark.parametrize("other", KINDS)
@pytest.mark.parametrize("slow", KINDS)
def test_a_process_stopped_anywhere_while_others_work_does_no_harm(fresh, slow, other, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # thousands of jobs, and the power stays on
    root = fresh()
    with interrupted(root, {}) as steps:
        advance(KINDS[slow](root, [], run=SLOW))
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
        with contextlib.closing(KINDS[other](root, committed, run=OTHER)) as meanwhile:
            calls: dict[int, list[Callable[[], None]]] = {first: [functools.partial(advance, meanwhile, part)]}
            calls.setdefault(second, []).append(functools.partial(advance, meanwhile))
            with interrupted(root, calls):
                advance(KINDS[slow](root, committed, run=SLOW))
            check(root, committed)
        after: list[str] = []
        advance(job(root, AFTER, appends=False, committed=after))
        assert after, "nobody is left holding the directory"
        assert missing(root) == []
