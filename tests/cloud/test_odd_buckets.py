"""What buckets hold besides well-named files, and addresses that name no file."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from beam_jobs.preprocess import main
from schemas import storage
from schemas.dataset.verify import verify_dataset
from schemas.errors import MillraceError, UsageError
from schemas.storage import folders, gcs
from tests.support import datasets
from tests.support.people import LEAN_SCHEMA, people_csv

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

NAMES = [
    "a b",
    "trail ",
    "a#1",
    "a?x=1",
    "a%41",
    "%2F",
    "a[1]",
    "a*b",
    "a+b&c;d",
    "quote'\"",
    "back\\slash",
    "tab\t",
    "ü☃",
    "e\u0301",  # two characters that look like one, é
    "\u00e9",
    "a//b",
    "/lead",
    "dot/../up",
]


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    (tmp_path / "schema.yaml").write_text(LEAN_SCHEMA)
    return tmp_path / "schema.yaml"


def preprocess(schema: Path, raw: str, output: str) -> tuple[int, int]:
    """(read, rejected) of a job whose dataset is valid."""
    manifest = datasets.written(schema.parent, LEAN_SCHEMA, raw, output=output, num_shards=2, range_mb=0.01).manifest
    assert verify_dataset(output) == []
    return manifest.read, manifest.rejected


def test_a_name_is_taken_as_it_is(bucket) -> None:
    paths = [f"{bucket}/raw/{name}.csv" for name in NAMES]
    for path in paths:
        storage.write_bytes(path, path.encode())
    for path in paths:
        assert storage.expand([path]) == [path]
        assert storage.read_bytes(path) == path.encode()
        with storage.open_read(path) as file:
            assert file.read() == path.encode()
        folders.move(path, f"{path}.moved")
        assert not storage.exists(path)
        folders.move(f"{path}.moved", path)
    assert sorted(folders.walk(f"{bucket}/raw")) == sorted(f"{name}.csv" for name in NAMES)
    assert storage.expand([f"{bucket}/raw/a[[]1].csv"]) == [f"{bucket}/raw/a[1].csv"]
    spaced = [f"{bucket}/raw/{name}.csv" for name in ("a b", "a*b") if name in NAMES]
    assert storage.expand([f"{bucket}/raw/a?b.csv"]) == spaced


def test_a_job_reads_and_writes_below_an_oddly_named_folder(bucket, schema) -> None:
    odd = f"{bucket}/o #1%41?x=2 ü//deep"
    storage.write_bytes(f"{odd}/in #1?[x]%2F é.csv", people_csv(100).encode())
    assert preprocess(schema, f"{odd}/in #1?[x]%2F é.csv", f"{odd}/out") == (100, 0)


def test_empty_objects_and_folders_add_no_rows(bucket, schema) -> None:
    storage.write_bytes(f"{bucket}/raw/full.csv", people_csv(100).encode())
    for name in ("empty.csv", "folder.csv/", ""):
        storage.write_bytes(f"{bucket}/raw/{name}", b"")
    assert preprocess(schema, f"{bucket}/raw/*.csv", f"{bucket}/out") == (100, 0)


@pytest.mark.parametrize("name", ["", "/", "/raw", "/raw/", "/marked", "/marked/"])
def test_a_folder_is_no_input(bucket, name: str) -> None:
    storage.write_bytes(f"{bucket}/raw/x.csv", b"1")
    storage.write_bytes(f"{bucket}/marked/", b"")
    with pytest.raises(UsageError, match=r"is a folder; give files, or a glob pattern such as ") as raised:
        storage.expand([f"{bucket}{name}"])
    assert str(raised.value).startswith(f"{bucket}{name}: ")
    assert storage.exists(f"{bucket}{name}")


@pytest.mark.parametrize(
    "path", ["gs://", "gs:///x", "gs://bucket-*/raw/*.csv", "gs://b?/x", "gs://{a,b}/x", "gs://-b/x", "gs://b ü/x"]
)
def test_what_is_no_name_of_a_bucket_is_a_usage_error(bucket, path: str) -> None:
    for act in (storage.stat, storage.read_bytes, storage.listdir, storage.exists, lambda path: storage.expand([path])):
        with pytest.raises(UsageError, match=r"expected gs://bucket/name") as raised:
            act(path)
        assert str(raised.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("raw", "output"),
    [("gs://nobodys/x.csv", "out"), ("gs://nobodys/*.csv", "out"), ("{bucket}/x.csv", "gs://nobodys/out")],
)
def test_a_bucket_that_is_not_there_is_a_usage_error(bucket, schema, tmp_path, capsys, raw: str, output: str) -> None:
    storage.write_bytes(f"{bucket}/x.csv", people_csv(10).encode())
    output = output if "://" in output else str(tmp_path / output)
    argv = ["--schema", str(schema), "--input", raw.format(bucket=bucket), "--output", output]
    assert main(argv) == 2
    assert re.fullmatch(r"error: gs://nobodys/\S*: no such bucket\n", capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


def test_a_name_has_at_most_1024_bytes(bucket) -> None:
    storage.write_bytes(f"{bucket}/{'ü' * 512}", b"1")
    with pytest.raises(UsageError, match=r"a name of 1,025 bytes; expected at most 1,024"):
        storage.write_bytes(f"{bucket}/{'ü' * 512}x", b"1")


class TestContentEncoding:
    """Google decompresses such objects on the way, unless it is asked for what is stored."""

    def upload(self, path: str, data: bytes) -> None:
        name = path.partition("://")[2]
        blob = gcs.client().bucket(name.partition("/")[0]).blob(name.partition("/")[2])
        blob.content_encoding = "gzip"
        blob.upload_from_string(data)

    @pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
    def test_rows_are_decompressed_once(self, bucket, schema, name: str) -> None:
        self.upload(f"{bucket}/{name}", gzip.compress(people_csv(100).encode()))
        assert preprocess(schema, f"{bucket}/{name}", f"{bucket}/out") == (100, 0)

    def test_rows_that_are_not_compressed_after_all_are_read(self, bucket, schema) -> None:
        self.upload(f"{bucket}/x.csv", people_csv(100).encode())
        assert preprocess(schema, f"{bucket}/x.csv", f"{bucket}/out") == (100, 0)

    @pytest.mark.parametrize("data", [b"plain", gzip.compress(b"compressed")], ids=["plain", "gzip"])
    def test_a_file_is_the_bytes_that_are_stored(self, bucket, data: bytes) -> None:
        self.upload(f"{bucket}/x", data)
        assert storage.read_bytes(f"{bucket}/x") == data
        assert storage.stat(f"{bucket}/x").size == len(data)
        with storage.open_read(f"{bucket}/x") as file:
            assert file.read() == data


@pytest.mark.parametrize("change", ["replaced", "deleted"])
@pytest.mark.parametrize("after", [0, 1, 4], ids=["at once", "before the job", "in the job"])
def test_an_object_that_changes_while_a_job_reads_it_fails_the_job(
    bucket, schema, monkeypatch, change: str, after: int
) -> None:
    raw, opened, open_object = f"{bucket}/x.csv", [], gcs.GcsStore.open
    storage.write_bytes(raw, people_csv(400).encode())

    def change_and_open(store: gcs.GcsStore, path: str, version: str | None):
        opened.append(path)
        if path == raw and opened.count(raw) == after + 1:
            if change == "replaced":
                storage.write_bytes(raw, people_csv(300).encode())
            else:
                storage.delete(raw)
        return open_object(store, path, version)

    monkeypatch.setattr(gcs.GcsStore, "open", change_and_open)
    with pytest.raises(MillraceError, match=r"changed while it was being read|no such object") as raised:
        preprocess(schema, raw, f"{bucket}/out")
    assert "\n" not in str(raised.value)
    assert opened.count(raw) > after
    assert not storage.exists(f"{bucket}/out/manifest.json")
