"""A process that stores requests, killed at any moment: what it answered is there, and each id once."""

from __future__ import annotations

import collections
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.stored_requests import stored_rows

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]

# Stores requests from four threads, and prints the ids of those that are stored. Half of them come again from before.
STORES = """
import itertools, os, random, sys, threading
if sys.argv[3] != "0":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
from tests.support.stored_requests import CLASSES, SCHEMA, late_batch
from schemas.errors import MillraceError
from millrace.store.store import RequestStore

path, round_, *_ = sys.argv[1:]
size = 100_000 if int(sys.argv[3]) else 20_000
store = RequestStore(path, SCHEMA, classes=CLASSES, segment_bytes=size)

def work(thread):
    chance = random.Random(f"{round_} {thread}")
    for i in itertools.count():
        again = chance.random() < 0.5 and int(round_)
        of, number = (chance.randrange(int(round_)), chance.randrange(i + 1)) if again else (round_, i)
        name = f"{of}-{thread}-{number}"
        rows = 1 + len(name) % 3
        names = [name] if rows == 1 else [f"{name}/{k}" for k in range(rows)]
        try:
            store.append(late_batch(names))
        except MillraceError:
            continue
        os.write(1, "".join(f"{each}\\n" for each in names).encode())

os.write(1, b"ready\\n")
for thread in range(4):
    threading.Thread(target=work, args=(thread,), daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("room", [0, 60_000], ids=["kills", "kills and files that may not grow"])
def test_every_answered_id_is_stored_exactly_once(tmp_path, room):
    chance, answered = random.Random(room), set()
    for round_ in range(5):
        command = [sys.executable, "-c", STORES, str(tmp_path / "store"), str(round_), str(room)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            try:
                assert process.stdout.readline() == "ready\n"
                time.sleep(chance.random() * 0.4)
            finally:
                process.kill()
            answered |= {line.strip() for line in process.stdout if line.endswith("\n")}
    stored = collections.Counter(row["_id"].decode() for row in stored_rows(tmp_path / "store"))
    assert answered
    assert answered - set(stored) == set()
    assert {name: count for name, count in stored.items() if count > 1} == {}
