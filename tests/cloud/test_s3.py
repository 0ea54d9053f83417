"""What is Amazon S3's own: fences by ETags, its names and errors, and that TensorFlow cannot read there.

That datasets are there as on local disk is tested with the other stores, in `test_rows` and `test_images`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_jobs import preprocess
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.exports.model import ServedModel
from schemas.storage import folders, s3
from schemas.storage.folders import Changed
from tests.support import datasets, training
from tests.support.cloud import S3
from tests.support.loopback_service import forget
from tests.support.people import LEAN_SCHEMA, people_csv
from trainer import task

DATA = bytes(range(256)) * 1024


@pytest.fixture
def bucket(running_s3: S3) -> str:
    """The address of an empty bucket."""
    return running_s3.new_bucket()


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


def test_a_training_reads_a_dataset_in_a_bucket_through_its_cache(tmp_path: Path, bucket: str) -> None:
    storage.write_bytes(f"{bucket}/people.csv", people_csv(300).encode())
    there = datasets.written(tmp_path, LEAN_SCHEMA, f"{bucket}/people.csv", output=f"{bucket}/out")
    flags = ["--quiet", "--cache_dir", str(tmp_path / "cache")]
    assert training.run(there, str(tmp_path / "model"), *flags, steps=10) == 0
    assert (tmp_path / "model" / "model.ckpt-10.index").is_file()


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
        forget(s3.client)
        try:
            for act in (storage.stat, storage.read_bytes, storage.listdir, lambda path: storage.write_bytes(path, b"")):
                with pytest.raises(
                    MillraceError, match=r"(permission denied \(s3:\w+\)|credentials were refused): "
                ) as raised:
                    act(f"{bucket}/x")
                assert "\n" not in str(raised.value)
                assert "wrong" not in str(raised.value)
        finally:
            forget(s3.client)

    def test_without_credentials_one_line_says_what_to_do(self, bucket: str, monkeypatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        forget(s3.client)
        try:
            with pytest.raises(MillraceError, match=r"no AWS credentials were found\. Run 'aws configure'"):
                storage.stat(f"{bucket}/x")
        finally:
            forget(s3.client)

    def test_what_tensorflow_cannot_reach_is_refused_before_it_starts(
        self, tmp_path: Path, bucket: str, capsys
    ) -> None:
        (tmp_path / "people.csv").write_text(people_csv(200))
        schema, raw = str(tmp_path / "schema.yaml"), str(tmp_path / "people.csv")
        datasets.written(tmp_path, LEAN_SCHEMA, raw, output=f"{bucket}/out")
        here = datasets.written(tmp_path, LEAN_SCHEMA, raw).path
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
