"""The lease of a job on a cluster: it ends by the runner's word, or when somebody ends it, and by nothing else."""

from __future__ import annotations

import pytest

from schemas import storage
from schemas.dataset import layout
from schemas.dataset.checks import verify_account
from schemas.dataset.holders import RemoteHolder
from schemas.dataset.lease import LeaseError, act_for, hold, holder_of
from schemas.dataset.manifest import Manifest, Shard, Split
from schemas.dataset.prune import is_left_over, leftovers
from schemas.dataset.submitted import JobReference, Replaced, Submitted, may_be_committed
from schemas.errors import MillraceError
from schemas.storage import folders
from tests.support.small_jobs import manifest, run_folder

RUN, OTHER = "20260131T120000Z-0001", "20260131T120000Z-0002"
REMOTE = RemoteHolder(run=RUN, job="job 1 of DataflowRunner", since="2026-01-31T12:00:00+00:00")


def hand_over(data_dir: str) -> None:
    with hold(data_dir, run=RUN) as held:
        held.hand_over(REMOTE)


def test_it_outlives_the_process_that_handed_it_over(data_dir):
    hand_over(data_dir)
    assert holder_of(data_dir) == REMOTE
    with pytest.raises(LeaseError, match=f"a job on a cluster is writing to it: run {RUN}, job 1") as raised:
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

    with pytest.raises(LeaseError, match="cannot be asked whether it has ended: no network"):
        hold(data_dir, run=OTHER, has_ended=unknown).__enter__()
    assert holder_of(data_dir) == REMOTE


def test_any_number_of_processes_act_for_it_and_one_put_succeeds(data_dir):
    hand_over(data_dir)
    leases = [act_for(data_dir, REMOTE, lambda _: False) for _ in range(3)]
    seen = folders.look(storage.join(data_dir, layout.MANIFEST))
    leases[0].put(layout.MANIFEST, b"one", seen)
    for late in leases[1:]:
        with pytest.raises(LeaseError):
            late.put(layout.MANIFEST, b"other", seen)
    assert storage.read_bytes(storage.join(data_dir, layout.MANIFEST)) == b"one"
    leases[0].release()
    assert [lease.is_lost() for lease in leases] == [True] * 3
    leases[1].release()  # which somebody else has done


def test_who_acts_for_a_job_whose_lease_was_taken_commits_nothing(data_dir):
    hand_over(data_dir)
    seen = folders.look(storage.join(data_dir, layout.MANIFEST))
    late = act_for(data_dir, REMOTE, lambda _: True)
    with hold(data_dir, run=OTHER, has_ended=lambda _: True), pytest.raises(LeaseError, match="taken over by run"):
        late.put(layout.MANIFEST, b"late", seen)
    assert not storage.exists(storage.join(data_dir, layout.MANIFEST))


def test_a_free_lease_is_taken_again_for_the_job_and_that_of_another_process_is_not(data_dir):
    act_for(data_dir, REMOTE, lambda _: False)
    assert holder_of(data_dir) == REMOTE
    with hold(data_dir, run=OTHER, has_ended=lambda _: True), pytest.raises(LeaseError, match=f"run {OTHER}"):
        act_for(data_dir, REMOTE, lambda _: True)


def submitted(replaces: bytes | None) -> Submitted:
    seen = folders.Seen(replaces)
    job = JobReference(runner="DataflowRunner", id="1", project="p", region="r")
    return Submitted(
        run=RUN, job=job, submitted=1.8e9, options={}, replaces=Replaced.of(seen), input_files=1, input_parts=1
    )


def test_clean_up_spares_a_run_as_long_as_the_manifest_is_the_one_that_it_replaces(data_dir):
    data = manifest(OTHER).to_json()
    storage.write_bytes(storage.join(data_dir, layout.MANIFEST), data)
    run_folder(data_dir, OTHER)
    run_folder(data_dir, RUN)
    assert leftovers(data_dir) == [RUN]
    path = storage.join(data_dir, RUN, layout.JOB)
    storage.write_bytes(path, submitted(data).to_json())
    assert leftovers(data_dir) == []
    storage.write_bytes(storage.join(data_dir, layout.MANIFEST), data + b"\n")
    assert leftovers(data_dir) == [RUN]
    storage.write_bytes(path, b"{}")  # of a later release, say
    assert leftovers(data_dir) == []
    assert may_be_committed(data_dir, RUN, None)


@pytest.mark.parametrize(
    ("names", "compression", "fault"),
    [
        (["train-00000-000-{a}.tfrecord", "train-00002-000-{b}.tfrecord"], "none", None),
        (["train-00000-000-{a}.tfrecord", "train-00000-001-{b}.tfrecord"], "none", None),
        (["train-00000-000-{a}.tfrecord.gz"], "gzip", None),
        (["train-00002-000-{a}.tfrecord", "train-00000-000-{b}.tfrecord"], "none", "train-00000"),
        (["train-00000-000-{a}.tfrecord", "train-00000-000-{b}.tfrecord"], "none", "numbers over (0, 0)"),
        (["train-00000-000-{a}.tfrecord", "eval-00001-000-{b}.tfrecord"], "none", "eval-00001"),
        (["train-00000-000-{a}.tfrecord", "train-00001-of-00002.tfrecord"], "none", "train-00001-of-00002"),
        (["train-00000-000-{a}.tfrecord"], "gzip", ".gz"),
    ],
)
def test_shards_that_keep_their_attempts_names_are_named_once_and_in_order(names, compression, fault):
    paths = [f"{RUN}/{name.format(a='a' * 32, b='b' * 32)}" for name in names]
    shards = tuple(Shard(path=path, rows=1, bytes=4, crc32c="00000000") for path in paths)
    split = Split(rows=len(shards), shards=shards)
    found: Manifest = manifest(RUN).model_copy(update={"compression": compression, "splits": {"train": split}})
    wrong = [issue.message for issue in verify_account(found) if "is expected" in issue.message]
    assert (wrong == []) if fault is None else any(fault in message for message in wrong)
    assert all(is_left_over(path.partition("/")[2]) for path in paths if "-of-" not in path)
