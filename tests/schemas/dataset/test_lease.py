"""Who may write to a dataset directory, shown with real processes that live, die, and fall silent."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.checks import verify_account
from schemas.dataset.holders import Holder, JobReference, RemoteHolder, this_process
from schemas.dataset.lease import LeaseError, hold, holder_of, lease_of_job
from schemas.dataset.manifest import Manifest, Shard, SplitShards
from schemas.dataset.prune import is_left_over
from schemas.errors import MillraceError
from schemas.storage import folders
from tests.support.small_jobs import manifest

HOLD = """
import sys, time
from schemas.dataset.lease import hold
with hold(sys.argv[1], run="theirs"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextlib.contextmanager
def other_process(data_dir: str, script: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the lease; killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", script, data_dir], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def put_holder(data_dir: str, **changes: object) -> None:
    """A lease that somebody left."""
    holder = this_process("theirs").model_copy(update=changes)
    storage.write_bytes(layout.join(data_dir, layout.LEASE), holder.model_dump_json().encode())


def names(data_dir: str) -> list[str]:
    return storage.listdir(data_dir)


def test_a_lease_is_held_while_the_block_runs_and_is_gone_with_it(data_dir):
    with hold(data_dir, run="mine"):
        assert names(data_dir) == [layout.LEASE]
    assert names(data_dir) == []
    with pytest.raises(ZeroDivisionError), hold(data_dir, run="mine"):
        _ = 1 / 0
    assert names(data_dir) == []


def test_the_second_process_learns_who_holds_the_lease(data_dir):
    with other_process(data_dir) as process:
        with pytest.raises(LeaseError) as refused, hold(data_dir, run="mine"):
            pass
        for detail in (
            "another job is writing to it: run theirs",
            f"host {socket.gethostname()}",
            f"pid {process.pid}",
        ):
            assert detail in str(refused.value)
        assert "since 20" in str(refused.value)
        assert names(data_dir) == [layout.LEASE]


def test_a_killed_process_loses_its_lease_at_once(data_dir):
    with other_process(data_dir) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and its number not yet given back
        with hold(data_dir, run="mine"):
            assert b'"mine"' in storage.read_bytes(layout.join(data_dir, layout.LEASE))


def test_a_process_number_that_is_in_use_again_holds_nothing(data_dir):
    put_holder(data_dir, started="12345")
    with hold(data_dir, run="mine"):
        pass


@pytest.mark.parametrize("elsewhere", [{"host": "elsewhere"}, {"system": "another boot, or another container"}])
def test_a_process_on_another_host_is_dead_after_a_long_silence(tmp_path, elsewhere):
    nobody = {"pid": 2**22 + 1, **elsewhere}  # of a number that no process has
    put_holder(str(tmp_path), **nobody, beat=time.time())  # 120 s from being stale
    with pytest.raises(LeaseError, match="120 s after its last heartbeat"), hold(str(tmp_path), run="mine"):
        pass
    put_holder(str(tmp_path), **nobody, beat=time.time() - 130)
    with hold(str(tmp_path), run="mine"):
        pass


def ahead(seconds: float = 3600) -> dict[str, object]:
    """A holder elsewhere whose last heartbeat is in the future."""
    return {"host": "elsewhere", "beat": time.time() + seconds}


def test_a_lease_whose_last_sign_of_life_lies_in_the_future_ends_when_none_follows(data_dir, capsys):
    put_holder(data_dir, **ahead())
    with hold(data_dir, run="mine", stale_seconds=0.2):
        assert b'"mine"' in storage.read_bytes(layout.join(data_dir, layout.LEASE))
    assert "s in the future: its clock or this one is wrong. Watching for 0.2 s" in capsys.readouterr().err


def test_a_living_job_whose_clock_is_ahead_keeps_its_lease(data_dir, monkeypatch):
    put_holder(data_dir, **ahead())

    def beat(_: float) -> None:
        put_holder(data_dir, **ahead(3610))

    monkeypatch.setattr(time, "sleep", beat)
    with pytest.raises(LeaseError, match="another job is writing to it: run theirs"), hold(data_dir, run="mine"):
        pass


def test_an_unreadable_lease_has_no_holder(data_dir):
    storage.write_bytes(layout.join(data_dir, layout.LEASE), b"{")
    with hold(data_dir, run="mine"):
        pass


def test_a_living_holder_keeps_its_lease_by_its_signs_of_life(data_dir):
    path = layout.join(data_dir, layout.LEASE)
    with hold(data_dir, run="mine", beat_seconds=0.01):
        beats = {Holder.model_validate_json(folders.look(path).data or b"").beat}
        deadline = time.monotonic() + 300  # reached only if the thread writes no heartbeat
        while len(beats) < 5 and time.monotonic() < deadline:
            beats.add(Holder.model_validate_json(folders.look(path).data or b"").beat)
        assert len(beats) == 5
        with pytest.raises(LeaseError), hold(data_dir, run="other"):
            pass


def test_who_was_silent_for_too_long_writes_nothing_any_more(data_dir):
    path = layout.join(data_dir, layout.MANIFEST)
    with hold(data_dir, run="mine", beat_seconds=1000) as mine:
        snapshot = folders.look(path)
        with hold(data_dir, run="theirs", stale_seconds=-1) as theirs:
            with pytest.raises(LeaseError, match=r"run mine\) did not renew its lease .* by run theirs"):
                mine.put(layout.MANIFEST, b"mine", snapshot)
            with pytest.raises(LeaseError):
                mine.check()
            assert not storage.exists(path)
            theirs.put(layout.MANIFEST, b"theirs", snapshot)
        with pytest.raises(LeaseError, match="by a job that has finished"):
            mine.put(layout.MANIFEST, b"mine", snapshot)
    assert storage.read_bytes(path) == b"theirs"
    assert names(data_dir) == [layout.MANIFEST]


def test_who_wakes_up_does_not_remove_the_lease_of_another(data_dir):
    with hold(data_dir, run="theirs", beat_seconds=1000):
        path = layout.join(data_dir, layout.LEASE)
        with hold(data_dir, run="mine", stale_seconds=-1):
            taken = storage.read_bytes(path)
            storage.write_bytes(path, taken.replace(b"mine", b"late"))
        assert b"late" in storage.read_bytes(path)


def test_a_manifest_that_changed_without_a_lease_is_not_replaced(data_dir):
    with hold(data_dir, run="mine") as mine:
        snapshot = folders.look(layout.join(data_dir, layout.MANIFEST))
        storage.write_bytes(layout.join(data_dir, layout.MANIFEST), b"by hand")
        with pytest.raises(LeaseError, match="was changed while this job ran, by something that took no lease"):
            mine.put(layout.MANIFEST, b"mine", snapshot)
    assert storage.read_bytes(layout.join(data_dir, layout.MANIFEST)) == b"by hand"


def test_a_stopped_process_loses_its_lease_and_fails_when_it_continues(tmp_path: Path):
    script = HOLD.replace('run="theirs")', 'run="theirs", beat_seconds=0.1) as lease').replace(
        "sys.stdin.readline()",
        "sys.stdin.readline()\n"
        "    from schemas.errors import MillraceError\n"
        "    from schemas.storage.folders import Snapshot\n"
        "    try:\n        lease.put('manifest.json', b'late', Snapshot(None))\n"
        "    except MillraceError as error:\n        print(error, flush=True)",
    )
    with other_process(str(tmp_path), script) as process:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(LeaseError), hold(str(tmp_path), run="mine", stale_seconds=30):
            pass
        with hold(str(tmp_path), run="mine", stale_seconds=-1):
            os.kill(process.pid, signal.SIGCONT)
            printed, _ = process.communicate("go on\n", timeout=300)
    assert "did not renew its lease in time, and the lease was taken over by run mine" in printed
    assert names(str(tmp_path)) == []


STOPS = """
import os, signal, sys
from schemas.dataset import lease
from schemas.storage import folders
from schemas.errors import MillraceError
replace = os.replace

def stop_before(name):
    def stop_first(source, target):
        if os.path.basename(target) == name:
            os.kill(os.getpid(), signal.SIGSTOP)
        replace(source, target)
    os.replace = stop_first

with lease.hold(sys.argv[1], run="theirs", beat_seconds=1000) as held:
    seen = folders.look(sys.argv[1] + "/manifest.json")
    stop_before(sys.argv[2])
    try:
        held.put("manifest.json", b"theirs", seen)
        print("committed")
    except MillraceError as error:
        print(error)
"""


@pytest.mark.parametrize("inside", [layout.LEASE, layout.MANIFEST])
def test_a_process_stopped_during_a_swap_blocks_no_other_and_commits_nothing(tmp_path, inside):
    """Between its last comparison and its rename, of its heartbeat or of the manifest."""
    root = str(tmp_path)
    with subprocess.Popen([sys.executable, "-c", STOPS, root, inside], stdout=subprocess.PIPE, text=True) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            with hold(root, run="mine", stale_seconds=-1) as mine:
                snapshot = folders.look(layout.join(root, layout.MANIFEST))
                os.kill(process.pid, signal.SIGCONT)
                printed, _ = process.communicate(timeout=300)
                assert "did not renew its lease in time, and the lease was taken over by run mine" in printed
                assert "Nothing of this job was committed" in printed
                mine.put(layout.MANIFEST, b"mine", snapshot)
        finally:
            process.kill()
    assert storage.read_bytes(layout.join(root, layout.MANIFEST)) == b"mine"
    assert names(root) == [layout.MANIFEST]


RUN, OTHER = "20260131T120000Z-0001", "20260131T120000Z-0002"
JOB = JobReference(runner="DataflowRunner", id="", name="people-1", project="p", region="r")
REMOTE = RemoteHolder(run=RUN, job=JOB, since="2026-01-31T12:00:00+00:00")


def hand_over(data_dir: str) -> None:
    with hold(data_dir, run=RUN) as lease:
        lease.hand_over(REMOTE)


def test_it_outlives_the_process_that_handed_it_over(data_dir):
    hand_over(data_dir)
    assert holder_of(data_dir) == REMOTE
    with pytest.raises(LeaseError, match=f"a job on a cluster is writing to it: run {RUN}, job people-1") as raised:
        hold(data_dir, run="prune").__enter__()
    assert "millrace job status" in str(raised.value)


@pytest.mark.parametrize("ended", [True, False])
def test_another_job_gets_it_when_the_runner_says_that_the_job_has_ended(data_dir, ended):
    hand_over(data_dir)
    if not ended:
        with pytest.raises(LeaseError):
            hold(data_dir, run=OTHER, has_ended=lambda _: False).__enter__()
        return
    with hold(data_dir, run=OTHER, has_ended=lambda holder: holder == REMOTE):
        assert holder_of(data_dir) != REMOTE
    assert holder_of(data_dir) is None


def test_where_the_runner_cannot_be_asked_it_stays(data_dir):
    hand_over(data_dir)

    def unknown(_: RemoteHolder) -> bool:
        raise MillraceError("no network")

    with pytest.raises(LeaseError, match=r"could not be found out: no network.* give --break_lease"):
        hold(data_dir, run=OTHER, has_ended=unknown).__enter__()
    assert holder_of(data_dir) == REMOTE
    with hold(data_dir, run=OTHER, has_ended=unknown, break_lease=True):
        assert holder_of(data_dir) != REMOTE


def test_a_job_that_still_runs_keeps_it_even_from_break_lease(data_dir):
    hand_over(data_dir)
    with pytest.raises(LeaseError, match="`millrace job cancel` ends it"):
        hold(data_dir, run=OTHER, has_ended=lambda _: False, break_lease=True).__enter__()


def test_any_number_of_attempts_at_the_last_step_hold_it_and_one_put_succeeds(data_dir):
    hand_over(data_dir)
    leases = [lease_of_job(data_dir, RUN) for _ in range(3)]
    snapshot = folders.look(storage.join(data_dir, layout.MANIFEST))
    leases[0].put(layout.MANIFEST, b"one", snapshot)
    for late in leases[1:]:
        with pytest.raises(LeaseError):
            late.put(layout.MANIFEST, b"other", snapshot)
    assert storage.read_bytes(storage.join(data_dir, layout.MANIFEST)) == b"one"
    leases[0].release()
    for lease in leases:
        with pytest.raises(LeaseError):
            lease.check()
    leases[1].release()  # which another attempt has done


def test_the_launcher_may_add_the_jobs_id_while_the_last_step_commits(data_dir, monkeypatch):
    with hold(data_dir, run=RUN) as lease:
        lease.hand_over(REMOTE)
        committing = lease_of_job(data_dir, RUN)
        manifest_before = folders.look(storage.join(data_dir, layout.MANIFEST))
        swap = folders.swap

        def after_the_id(*arguments, **more):
            monkeypatch.undo()
            lease.hand_over(REMOTE.model_copy(update={"job": JOB.model_copy(update={"id": "1"})}))
            return swap(*arguments, **more)

        monkeypatch.setattr(folders, "swap", after_the_id)
        committing.put(layout.MANIFEST, b"one", manifest_before)
    assert storage.read_bytes(storage.join(data_dir, layout.MANIFEST)) == b"one"
    committing.release()
    assert holder_of(data_dir) is None


def test_a_job_whose_lease_was_taken_commits_nothing(data_dir):
    hand_over(data_dir)
    snapshot = folders.look(storage.join(data_dir, layout.MANIFEST))
    late = lease_of_job(data_dir, RUN)
    with hold(data_dir, run=OTHER, has_ended=lambda _: True):
        with pytest.raises(LeaseError, match="taken over by run"):
            late.put(layout.MANIFEST, b"late", snapshot)
        with pytest.raises(LeaseError, match=f"the lease of this job .run {RUN}. is held by run {OTHER}"):
            lease_of_job(data_dir, RUN)
    assert not storage.exists(storage.join(data_dir, layout.MANIFEST))


@pytest.mark.parametrize(
    ("names", "compression", "fault"),
    [
        (["train-00000-000-{a}.tfrecord", "train-00002-000-{b}.tfrecord"], "none", None),
        (["train-00000-000-{a}.tfrecord", "train-00000-001-{b}.tfrecord"], "none", None),
        (["train-00000-000-{a}.tfrecord.gz"], "gzip", None),
        (["train-00002-000-{a}.tfrecord", "train-00000-000-{b}.tfrecord"], "none", "train-00000"),
        (["train-00000-000-{a}.tfrecord", "train-00000-000-{b}.tfrecord"], "none", "once and in order"),
        (["train-00000-000-{a}.tfrecord", "eval-00001-000-{b}.tfrecord"], "none", "eval-00001"),
        (["train-00000-000-{a}.tfrecord"], "gzip", ".gz"),
    ],
)
def test_shards_that_keep_their_attempts_names_are_named_once_and_in_order(names, compression, fault):
    paths = [f"{RUN}/{name.format(a='a' * 32, b='b' * 32)}" for name in names]
    shards = tuple(Shard(path=path, rows=1, bytes=4, crc32c="00000000") for path in paths)
    split = SplitShards(rows=len(shards), shards=shards)
    manifest_of_shards: Manifest = manifest(RUN).model_copy(
        update={"compression": compression, "splits": {"train": split}}
    )
    wrong = [issue.message for issue in verify_account(manifest_of_shards) if "is expected" in issue.message]
    assert (wrong == []) if fault is None else any(fault in message for message in wrong)
    assert all(is_left_over(path.partition("/")[2]) for path in paths if "-of-" not in path)
