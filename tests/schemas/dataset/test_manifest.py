"""The properties of a manifest."""

from __future__ import annotations

import json

import pytest

from schemas import storage
from schemas.dataset.manifest import File, Manifest, Shard, Split, read_manifest
from schemas.errors import MillraceError


def manifest(**changes) -> Manifest:
    """A small manifest of the run 'new', with `changes`."""
    shard = Shard(path="new/train-00000-of-00001.tfrecord", rows=1, bytes=3, crc32c="00000000")
    values = {
        "run": "new",
        "created": "2026-01-01T00:00:00+00:00",
        "name": "n",
        "schema_fingerprint": "f",
        "compression": "none",
        "seed": 0,
        "split_hash_version": 1,
        "versions": {},
        "inputs": (),
        "splits": {"train": Split(rows=1, shards=(shard,))},
        "files": (File(path="new/schema.yaml", bytes=1, sha256="0"),),
        "counts": (),
        "read": 1,
        "written": 1,
        "rejected": 0,
        "seconds": 1.0,
    }
    return Manifest(**{**values, **changes})


def test_the_runs_are_those_in_whose_folders_files_lie():
    assert manifest().runs == {"new"}
    older = Shard(path="old/train-00000-of-00001.tfrecord", rows=1, bytes=3, crc32c="00000000")
    appended = manifest(splits={"train": Split(rows=1, shards=(older,))}, previous=("old", "older"))
    assert appended.runs == {"new", "old"}


def test_a_manifest_is_read_as_it_was_written(tmp_path):
    written = manifest(previous=("a", "b"))
    (tmp_path / "manifest.json").write_bytes(written.to_json())
    assert read_manifest(str(tmp_path)) == written


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"run": "../other"}, "run"),
        ({"run": ".."}, "run"),
        ({"previous": ["/etc"]}, "previous.0"),
        ({"files": [{"path": "new/../../secret", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
        ({"files": [{"path": "/etc/passwd", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
        ({"files": [{"path": "new/a\nb", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
        ({"files": [{"path": "new\\..\\b", "bytes": 1, "sha256": "0"}]}, "files.0.path"),
    ],
)
def test_a_manifest_that_leads_out_of_its_folder_is_refused(tmp_path, change, place):
    values = json.loads(manifest().to_json()) | change
    (tmp_path / "manifest.json").write_text(json.dumps(values))
    with pytest.raises(MillraceError, match=f"{place}: .* leads outside the dataset directory"):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize(("said", "meant"), [(None, ()), ("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_what_earlier_releases_wrote_as_previous_is_read(tmp_path, said, meant):
    text = json.loads(manifest().to_json())
    storage.write_bytes(str(tmp_path / "manifest.json"), json.dumps({**text, "previous": said}).encode())
    assert read_manifest(str(tmp_path)).previous == meant
