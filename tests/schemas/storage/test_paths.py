"""Patterns, paths and credentials that TensorFlow takes, and messages of stores: without secrets, in one line."""

from __future__ import annotations

import errno
import glob
import json
import os
import random
from collections.abc import Hashable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import tensorflow as tf

from beam_jobs import preprocess
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.storage import FileStat, Listing, file_key, globs, list_files
from schemas.storage.gcs_access import check_characters, check_tensorflow
from schemas.storage.local import refused_by_disk
from schemas.storage.store import redacted
from trainer import task

NAMES = ["a.csv", "b.csv", ".hidden.csv", "x/a.csv", "x/y/a.csv", "x/.y/a.csv", "x/{a,b}.csv", "x/[a].csv", "x/a.txt"]
PATTERNS = ["*.csv", "*/*", "**/*.csv", "x/**", "x/**/a.csv", "**", "?.csv", "[!a].csv", "[ab].csv", ".*", "a.csv"]
PATTERNS += ["*/{a,b}.csv", "x/[[]a].csv", "*/.y/*", "**/y/*", "x*", "x/*.c[rs]v", "[a-z].csv", "*.CSV", "**/**/a.*"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_matches_the_names_that_it_matches_on_local_disk(tmp_path: Path, monkeypatch, pattern: str) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    on_disk = {path for path in glob.glob(pattern, recursive=True) if not os.path.isdir(path)}
    assert {name for name in NAMES if globs.matches(name, pattern)} == on_disk
    assert all(name.startswith(globs.literal_prefix(pattern)) for name in on_disk)


GOOD = ["plain", "a[b", "a]b", "*", "?", "{a,b}", "a b#%41 ü"]
BAD = ["a[1]", "[!a]", "back\\slash"]


@pytest.mark.parametrize("name", [*GOOD, *BAD])
def test_what_is_refused_is_what_tensorflow_does_not_find(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    saved = tf.train.Checkpoint(x=tf.Variable(1)).write(str(folder / "saved"))
    exists = tf.compat.v1.train.checkpoint_exists(saved)
    assert exists == (name in GOOD)
    if exists:
        check_characters(str(folder))
    else:
        with pytest.raises(UsageError, match="for a pattern"):
            check_characters(str(folder))


def test_neither_a_job_nor_a_training_starts_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.csv").write_text("")
    for main, flag, argv in (
        (preprocess.main, "--output", ["--schema", "covertype", "--input", str(tmp_path / "x.csv")]),
        (task.main, "--model_dir", ["--data_dir", str(tmp_path), "--max_steps", "1"]),
    ):
        assert main([*argv, flag, f"{tmp_path}/a[1]"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {flag} {tmp_path}/a[1]: TensorFlow takes [1] for a pattern")
    assert os.listdir(tmp_path) == ["x.csv"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "403 GET https://storage.googleapis.com/b/o?X-Goog-Signature=deadbeef&x=1: denied",
            "403 GET https://storage.googleapis.com/b/o?<hidden> denied",
        ),
        ("POST https://h/upload/b/x/o?uploadType=resumable&upload_id=AbC", "POST https://h/upload/b/x/o?<hidden>"),
        ("ftp://user:pass@host/x", "ftp://<hidden>@host/x"),
        ("Authorization: Bearer abc.DEF-123_456", "Authorization: Bearer <hidden>"),
        ("token ya29.a0AfH6SMB_x-y was refused", "token <hidden> was refused"),
        ("key -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- end", "key <hidden> end"),
        ("gs://bucket/a?b.csv: no such object", "gs://bucket/a?b.csv: no such object"),
        ("/data/a@b.csv: 3 columns, found 4", "/data/a@b.csv: 3 columns, found 4"),
    ],
)
def test_secrets_are_left_out_and_the_rest_stays(text, expected):
    assert redacted(text) == expected


@pytest.mark.parametrize("path", ["gs://b/x", "/data/x"])  # of a copy, either side may be named
def test_the_clouds_errors_are_shown_without_the_queries_of_their_addresses(path):
    from google.api_core.exceptions import Forbidden

    def refused() -> None:
        with storage.wrap_errors(path):
            raise Forbidden("GET https://storage.googleapis.com/b/o/x?access_token=SECRET: no")

    with pytest.raises(MillraceError) as caught:
        refused()
    assert f"{path}: permission denied: GET https://storage.googleapis.com/b/o/x?<hidden>" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where gcloud writes the credentials that programs find by themselves."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.delenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    return tmp_path / "application_default_credentials.json"


@pytest.mark.parametrize("kind", ["external_account", "impersonated_service_account"])
def test_credentials_that_tensorflow_does_not_know_are_a_usage_error(file, monkeypatch, kind: str) -> None:
    file.write_text(json.dumps({"type": kind}))
    with pytest.raises(UsageError, match=rf"^gs://b/data: .*{file}.*type '{kind}'; use authorized_user"):
        check_tensorflow("gs://b/data")
    check_tensorflow("/local/data")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file.with_name("other.json")))
    file.with_name("other.json").write_text('{"type": "service_account"}')
    check_tensorflow("gs://b/data")


FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (f"out/shard-1: {FULL}", f"out/shard-1: {FULL}"),
        (f"out/saved_model.pb; {FULL} [while running 'Write/Copy']", f"out/saved_model.pb; {FULL}"),
        (f"tensorflow.errors_impl.ResourceExhaustedError: out/x.pb; {FULL}", f"out/x.pb; {FULL}"),
        (f"a frame\n  another\nout/shard-1: {FULL}\nbehind it", f"out/shard-1: {FULL}"),
        (f"{os.strerror(errno.EFBIG)}", "File too large"),
        ("out/shard-1: Permission denied", None),
        ("", None),
    ],
)
def test_the_line_that_names_the_cause_is_shown(message, line):
    assert refused_by_disk(message) == line


LISTED = ["a.csv", "b.csv", ".hidden.csv", "x/a.csv", "x/y/a.csv", "x/.y/a.csv", "x/[a].csv", "x/a.txt"]


def listed(*patterns: str) -> tuple[Listing, list[tuple[str, str]]]:
    return list_files(patterns)


class TestListFiles:
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        for name in LISTED:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(name)

    def test_the_order_is_that_of_the_keys_and_no_other_file_changes_it(self):
        few = [file.key for file in listed("x/*")[0]]
        many = [file.key for file in listed("**/*")[0]]
        assert many == sorted(many)
        assert [key for key in many if key in few] == few
        assert few == sorted(map(file_key, ("x/a.csv", "x/[a].csv", "x/a.txt")))

    def test_links_to_one_file_are_read_once_under_the_path_given_first(self):
        os.symlink("a.csv", "link.csv")
        os.link("a.csv", "hard.csv")
        listing, duplicates = listed("hard.csv", "*.csv")
        assert sorted(file.path for file in listing) == ["b.csv", "hard.csv"]
        assert sorted(duplicates) == [("hard.csv", "a.csv"), ("hard.csv", "hard.csv"), ("hard.csv", "link.csv")]

    def test_a_dangling_link_is_listed_and_reported_when_it_is_read(self):
        os.symlink("nowhere", "x/dangling.csv")
        (dangling,) = (file for file in listed("x/*.csv")[0] if "dangling" in file.path)
        with pytest.raises(MillraceError, match=r"x/dangling.csv: No such file"):
            dangling.checked()

    @pytest.mark.parametrize(
        ("patterns", "message"),
        [
            ((), "no input"),
            (("nowhere.csv",), "nowhere.csv: no such file"),
            (("*.parquet",), r"\*.parquet: no file matches this pattern"),
            (("x",), "x: is a folder"),
            (("hdfs://bucket/x",), "unsupported address"),
            (("a\0*",), "no file matches"),
        ],
    )
    def test_patterns_that_name_nothing_are_refused(self, patterns, message):
        with pytest.raises(UsageError, match=message):
            listed(*patterns)

    def test_two_names_of_one_hash_are_refused(self):
        with (
            mock.patch("schemas.storage.listing.file_key", return_value=7),
            pytest.raises(UsageError, match="same hash"),
        ):
            list(listed("*.csv")[0])


class Names:
    """A store that lists names, one by one."""

    def __init__(self, count: int) -> None:
        self.count, self.given = count, 0

    def explain(self, error: Exception) -> str | None:
        return None

    def scan(self, pattern: str) -> Iterator[tuple[str, FileStat, Hashable]]:
        places = list(range(self.count))
        random.Random(1).shuffle(places)
        for i in places:
            self.given += 1
            yield f"names://{i:06d}\udcff", FileStat(10, "1"), i // 2  # each file has two names


def test_many_names_come_out_once_and_in_order(monkeypatch):
    monkeypatch.setattr("schemas.storage.listing.CACHE_KB", 100)
    store = Names(4000)
    with mock.patch.dict("schemas.storage.paths._STORES", {"names://": store}):
        listing, twice = list_files(["names://*"])
    assert store.given == 4000
    assert sorted(file.path for file in listing) == [f"names://{i:06d}\udcff" for i in range(0, 4000, 2)]
    assert [file.key for file in listing] == sorted(file_key(file.path) for file in listing)
    assert sorted(twice) == [(f"names://{i:06d}\udcff", f"names://{i + 1:06d}\udcff") for i in range(0, 4000, 2)]
    assert (listing.files, listing.bytes) == (2000, 20_000)
