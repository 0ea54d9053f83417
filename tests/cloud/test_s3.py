"""Datasets on Amazon S3: written, replayed, verified and pruned as on local disk. TensorFlow cannot read them there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_jobs import preprocess
from beam_jobs.append.run import run_append
from beam_jobs.core.options import AppendOptions, JobOptions, ReplayOptions
from beam_jobs.replay.run import run_replay
from beam_jobs.runtime.job import run_job
from schemas import storage
from schemas.dataset import Dataset, command, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders, s3
from schemas.storage.folders import Changed
from tests.support import appending, gcs_gateway, loopback_certificate, replaying, training
from tests.support.cloud import Cloud
from tests.support.drawn_datasets import COLORS_SCHEMA
from tests.support.drawn_images import write_folders
from tests.support.faults import Fault
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.s3_server import S3
from tests.support.written_records import records
from trainer import task
from trainer.export.saved_model import ServedModel

DATA = bytes(range(256)) * 1024


@pytest.fixture
def bucket(running_s3: S3) -> str:
    """The address of an empty bucket."""
    return running_s3.new_bucket()


def written(folder: Path, schema: str, raw: str, output: str, **changes) -> Dataset:
    (folder / "schema.yaml").write_text(schema)
    options = {"num_shards": 3, "quiet": True, "max_reject_fraction": 1.0, **changes}
    run_job(JobOptions(schema=str(folder / "schema.yaml"), input=(raw,), output=output, **options))
    return open_dataset(output)


def copied(dataset: Dataset, folder: Path) -> Dataset:
    """A copy on local disk, where TensorFlow can read it."""
    folders.copy(dataset.path, str(folder / "copy"))
    return open_dataset(str(folder / "copy"))


def assert_same(there: Dataset, here: Dataset, folder: Path) -> None:
    copy = copied(there, folder)
    assert there.splits == here.splits
    for split in here.splits:
        assert records(copy, split) == records(here, split)
    assert there.manifest.rejected == here.manifest.rejected
    assert verify_dataset(there.path) == verify_dataset(copy.path) == []


def test_a_job_from_bucket_to_bucket_writes_the_records_of_one_on_local_disk(tmp_path: Path, bucket: str) -> None:
    for number, text in enumerate((people_csv(500), people_csv(300) + "too,few\n" * 3)):
        (tmp_path / f"people-{number}.csv").write_text(text)
        folders.upload(str(tmp_path / f"people-{number}.csv"), f"{bucket}/raw/people-{number}.csv")
    here = written(tmp_path, LEAN_SCHEMA, str(tmp_path / "people-*.csv"), str(tmp_path / "out"))
    there = written(tmp_path, LEAN_SCHEMA, f"{bucket}/raw/people-*.csv", f"{bucket}/out")
    assert_same(there, here, tmp_path)
    assert (there.manifest.read, there.manifest.rejected) == (803, 3)
    assert {name.partition("/")[0] for name in folders.walk(there.path)} == {"manifest.json", there.run}


def test_images_in_a_bucket_make_the_records_that_they_make_on_local_disk(tmp_path: Path, bucket: str) -> None:
    write_folders(tmp_path / "raw", each=12)
    (tmp_path / "raw" / "disc" / "empty.jpg").write_bytes(b"")
    folders.copy(str(tmp_path / "raw"), f"{bucket}/raw")
    here = written(tmp_path, COLORS_SCHEMA, str(tmp_path / "raw/*/*"), str(tmp_path / "out"), num_shards=2)
    there = written(tmp_path, COLORS_SCHEMA, f"{bucket}/raw/*/*", f"{bucket}/out", num_shards=2)
    assert_same(there, here, tmp_path)


def test_show_verify_and_prune_work_on_a_dataset_in_a_bucket(tmp_path: Path, bucket: str, capsys) -> None:
    storage.write_bytes(f"{bucket}/people.csv", people_csv(200).encode())
    options = {"overwrite": True}
    runs = [written(tmp_path, LEAN_SCHEMA, f"{bucket}/people.csv", f"{bucket}/out", **options).run for _ in range(3)]
    capsys.readouterr()
    assert command.main(["show", f"{bucket}/out"]) == 0
    assert runs[-1] in capsys.readouterr().out
    assert storage.listdir(f"{bucket}/out") == [*sorted(runs[1:]), "manifest.json"]
    storage.write_bytes(f"{bucket}/out/20200101T000000Z-abcd/staging/left", b"over")
    assert command.main(["prune", f"{bucket}/out", "--all"]) == 0
    assert storage.listdir(f"{bucket}/out") == [runs[-1], "manifest.json"]
    assert command.main(["verify", f"{bucket}/out"]) == 0


def test_corrected_rejects_in_a_bucket_make_the_dataset_that_good_rows_make(tmp_path: Path, bucket: str) -> None:
    for name, rows in (("bad", replaying.BAD), ("good", replaying.ROWS)):
        storage.write_bytes(f"{bucket}/{name}.csv", "\n".join([replaying.HEADER, *rows, ""]).encode())
    bad = written(tmp_path, replaying.SCHEMA, f"{bucket}/bad.csv", f"{bucket}/out", num_shards=None)
    rejects = replaying.rejects_of(bad)
    corrected = [{**json.loads(reject.to_json()), "raw": replaying.as_good(reject)} for reject in rejects]
    lines = "".join(json.dumps({k: v for k, v in row.items() if k != "raw_base64"}) + "\n" for row in corrected)
    storage.write_bytes(f"{bucket}/corrected.jsonl", lines.encode())
    outcome = run_replay(ReplayOptions((f"{bucket}/corrected.jsonl",), f"{bucket}/out", quiet=True))
    assert outcome.added == len(rejects) == len(replaying.BROKEN)
    after = open_dataset(f"{bucket}/out")
    replaying.accounts_hold(after)
    shared = {"num_shards": None, "transform_from": f"{bucket}/out"}
    good = written(tmp_path, replaying.SCHEMA, f"{bucket}/good.csv", f"{bucket}/good", **shared)
    contents = [replaying.contents(copied(dataset, tmp_path / name)) for name, dataset in (("a", after), ("b", good))]
    assert contents[0] == contents[1]


def test_a_fence_keeps_what_the_manifest_says_and_fails_a_swap_that_has_compared(bucket: str) -> None:
    path = f"{bucket}/manifest.json"
    folders.fence(path)
    assert not storage.exists(path)
    seen = first = folders.swap(path, b'{"a": 1}\n', folders.look(path))
    for _ in range(3):
        folders.fence(path)
        fenced = folders.look(path)
        assert json.loads(fenced.data or b"") == {"a": 1}
        assert len(fenced.data or b"") < 100
        for stale in (first, seen):
            with pytest.raises(Changed):
                folders.swap(path, b"late", stale)
        seen = fenced


def test_an_object_that_changes_while_it_is_read_is_not_mixed(bucket: str) -> None:
    storage.write_bytes(f"{bucket}/x", b"a" * 3_000_000)
    with storage.open_read(f"{bucket}/x") as file:
        assert file.read(10) == b"a" * 10
        storage.write_bytes(f"{bucket}/x", b"b" * 3_000_000)
        file.seek(2_500_000)
        with pytest.raises(MillraceError, match="changed while it was being read"), storage.wrap_errors(f"{bucket}/x"):
            file.read()


@pytest.mark.parametrize("name", ["a b", "a#1?x=2", "a%41", "a[1]", "ü", "a+b&c"])
def test_odd_names_are_read_as_they_are(bucket: str, name: str) -> None:
    path = f"{bucket}/raw/{name}.csv"
    storage.write_bytes(path, b"1")
    assert storage.read_bytes(path) == b"1"
    assert storage.expand([path]) == storage.expand([f"{bucket}/raw/*"]) == [path]
    folders.move(path, f"{path}.moved")
    assert list(folders.walk(f"{bucket}/raw")) == [f"{name}.csv.moved"]


def test_a_training_reads_a_dataset_in_a_bucket_through_its_cache(tmp_path: Path, bucket: str) -> None:
    storage.write_bytes(f"{bucket}/people.csv", people_csv(300).encode())
    there = written(tmp_path, LEAN_SCHEMA, f"{bucket}/people.csv", f"{bucket}/out")
    flags = ["--quiet", "--cache_dir", str(tmp_path / "cache")]
    assert training.run(there, str(tmp_path / "model"), *flags, steps=10) == 0
    assert (tmp_path / "model" / "model.ckpt-10.index").is_file()


class TestFaults:
    """Injected by the gateway on the way to the server."""

    @pytest.fixture
    def faulty(self, running_s3: S3, monkeypatch, tmp_path: Path) -> Iterator[Cloud]:
        certificate = loopback_certificate.make(tmp_path, gcs_gateway.HOSTS)
        with gcs_gateway.running(running_s3.port, certificate) as gateway:
            monkeypatch.setenv("AWS_ENDPOINT_URL_S3", gateway)
            s3.client.cache_clear()
            yield Cloud({}, gateway)
        s3.client.cache_clear()

    @pytest.mark.parametrize("status", [429, 503])
    def test_what_a_busy_server_refuses_is_asked_again(self, faulty, bucket, tmp_path: Path, status: int) -> None:
        (tmp_path / "local").write_bytes(DATA)
        for step in (
            lambda: storage.write_bytes(f"{bucket}/in/a", DATA),
            lambda: storage.stat(f"{bucket}/in/a"),
            lambda: storage.expand([f"{bucket}/in/*"]),
            lambda: folders.upload(str(tmp_path / "local"), f"{bucket}/in/b"),
            lambda: folders.move(f"{bucket}/in/b", f"{bucket}/in/c"),
            lambda: folders.swap(f"{bucket}/in/d", DATA, folders.look(f"{bucket}/in/d")),
            lambda: storage.delete(f"{bucket}/in/a"),
        ):
            faulty.inject(Fault(".", status=status))
            step()
            assert faulty.injected == 1
        assert storage.listdir(f"{bucket}/in") == ["c", "d"]
        assert {storage.read_bytes(f"{bucket}/in/{name}") for name in "cd"} == {DATA}

    def test_a_download_that_is_cut_is_read_whole(self, faulty, bucket) -> None:
        storage.write_bytes(f"{bucket}/a", DATA)
        faulty.inject(Fault("GET", cut=1000, times=2))
        assert storage.read_bytes(f"{bucket}/a") == DATA
        assert faulty.injected == 2

    def test_what_the_server_did_though_its_answer_was_lost_is_done_once(self, faulty, bucket) -> None:
        path = f"{bucket}/a"
        for where, data in (("PUT", b"1"), ("PUT", b"2"), ("DELETE", None)):
            seen = folders.look(path)
            faulty.inject(Fault(where, cut=0))
            after = folders.swap(path, data, seen)
            assert faulty.injected == 1
            assert after == folders.look(path)
            assert after.data == data


class TestErrors:
    def test_no_bucket_no_object_and_no_right_are_one_line(self, bucket: str, monkeypatch) -> None:
        for path in (f"{bucket}/none", "s3://no-such-bucket/x"):
            for read in (storage.stat, storage.read_bytes, storage.open_read):
                with pytest.raises(MillraceError, match=r"no such object or bucket$"):
                    read(path)
        for listing in (storage.listdir, lambda path: storage.expand([path])):
            with pytest.raises(UsageError, match=r"^s3://no-such-bucket/x: no such bucket$"):
                listing("s3://no-such-bucket/x")
        for path in ("s3://", "s3:///x", "s3://buck*/x"):
            with pytest.raises(UsageError, match="expected s3://bucket/name"):
                storage.exists(path)
        for path in (bucket, f"{bucket}/nothing"):
            storage.write_bytes(f"{path}/x", b"")
            with pytest.raises(UsageError, match="is a folder; give files"):
                storage.expand([path])
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        s3.client.cache_clear()
        try:
            for act in (storage.stat, storage.read_bytes, storage.listdir, lambda path: storage.write_bytes(path, b"")):
                with pytest.raises(
                    MillraceError, match=r"(permission denied \(s3:\w+\)|credentials were refused): "
                ) as raised:
                    act(f"{bucket}/x")
                assert "\n" not in str(raised.value)
                assert "wrong" not in str(raised.value)
        finally:
            s3.client.cache_clear()

    def test_without_credentials_one_line_says_what_to_do(self, bucket: str, monkeypatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        s3.client.cache_clear()
        try:
            with pytest.raises(MillraceError, match=r"no AWS credentials were found\. Run 'aws configure'"):
                storage.stat(f"{bucket}/x")
        finally:
            s3.client.cache_clear()

    def test_what_tensorflow_cannot_reach_is_refused_before_it_starts(
        self, tmp_path: Path, bucket: str, capsys
    ) -> None:
        (tmp_path / "people.csv").write_text(people_csv(200))
        written(tmp_path, LEAN_SCHEMA, str(tmp_path / "people.csv"), f"{bucket}/out")
        here = written(tmp_path, LEAN_SCHEMA, str(tmp_path / "people.csv"), str(tmp_path / "out")).path
        schema, raw = str(tmp_path / "schema.yaml"), str(tmp_path / "people.csv")
        job = ["--schema", schema, "--input", raw, "--output", f"{bucket}/other", "--runner", "PrismRunner"]
        for main, argv in (
            (task.main, ["--data_dir", f"{bucket}/out", "--model_dir", str(tmp_path / "m"), "--max_steps", "1"]),
            (task.main, ["--data_dir", here, "--model_dir", f"{bucket}/m", "--max_steps", "1"]),
            (preprocess.main, job),
        ):
            capsys.readouterr()
            assert main(argv) == 2
            (line,) = (line for line in capsys.readouterr().err.splitlines() if bucket in line)
            assert "TensorFlow cannot read or write s3://" in line
            assert "use a local folder" in line
        with pytest.raises(UsageError, match="TensorFlow cannot read or write s3://"):
            ServedModel(f"{bucket}/export")
        assert storage.listdir(bucket) == ["out"]


def test_a_dataset_in_a_bucket_grows_by_what_it_does_not_hold(tmp_path: Path, bucket: str) -> None:
    days = appending.Days(tmp_path)
    for name, day in (("day0", 0), ("day1", 1), ("copy", 0)):
        storage.write_bytes(f"{bucket}/{name}.csv", Path(days.day(day)).read_bytes())
    written(tmp_path, appending.SCHEMA, f"{bucket}/day0.csv", f"{bucket}/out", num_shards=None)
    inputs = (f"{bucket}/copy.csv", f"{bucket}/day1.csv")
    with pytest.raises(UsageError, match=r"copy\.csv \(as .*day0\.csv\)"):
        run_append(AppendOptions(f"{bucket}/out", inputs, quiet=True))
    assert run_append(AppendOptions(f"{bucket}/out", inputs, skip_known=True, quiet=True)).added == appending.ROWS
    dataset = open_dataset(f"{bucket}/out")
    assert verify_dataset(dataset.path) == []
    held = sorted(i for some in appending.ids(copied(dataset, tmp_path)).values() for i in some)
    assert held == appending.raw_ids(days.day(0), days.day(1))
