"""A sample is a small input in the form of the whole one, whatever the files are like."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from beam_jobs.planning.sample import FILES, LEAST_IMAGES, cut, last_end, take
from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.spec.images import ImageFolderSchema
from schemas.spec.loader import load_schema, parse_schema
from schemas.spec.table import CsvOptions, Schema
from tests.support.csv_reading import read_all, schema_of
from tests.support.image_files import write_folders

QUOTED = CsvOptions(quoted_newlines=True)
UTF_16 = CsvOptions(encoding="utf-16")


@pytest.mark.parametrize(
    ("data", "options", "kept"),
    [
        (b"a,b\nc,d\ne", CsvOptions(), b"a,b\nc,d\n"),
        (b"a,b\r\nc,d\r\ne", CsvOptions(), b"a,b\r\nc,d\r\n"),
        (b"a,b\rc,d\re", CsvOptions(), b"a,b\rc,d\r"),
        (b'a,"b\nb"\nc,"d\nd', QUOTED, b'a,"b\nb"\n'),
        (b'a,"b\nb"\nc,"d\nd', CsvOptions(), b'a,"b\nb"\nc,"d\n'),  # a record is one line
        # bytes that look like a line end, but are halves of two letters
        ("a\n\u0a0a\u0a0a".encode("utf-16-le"), UTF_16, "a\n".encode("utf-16-le")),
        ("\ufeffa\nb".encode("utf-16-be"), CsvOptions(), "\ufeffa\n".encode("utf-16-be")),
        (b"no end", CsvOptions(), b""),
        (b"", CsvOptions(), b""),
    ],
)
def test_a_cut_is_at_the_end_of_a_record(data: bytes, options: CsvOptions, kept: bytes) -> None:
    assert data[: last_end(data, options)] == kept


ROWS = "".join(f"{i},{i % 7},{'x' * (i % 50)}\n" for i in range(60_000))


@pytest.mark.parametrize("gzipped", [False, True])
def test_the_beginning_of_a_file_is_copied_as_it_is_and_says_what_it_took(tmp_path: Path, gzipped: bool) -> None:
    path, copy = tmp_path / "all.csv", tmp_path / "some.csv"
    path.write_bytes(gzip.compress(ROWS.encode()) if gzipped else ROWS.encode())
    size = path.stat().st_size // 3
    taken = cut(str(path), str(copy), size, CsvOptions())
    copied = gzip.decompress(copy.read_bytes()) if gzipped else copy.read_bytes()
    assert ROWS.encode().startswith(copied)
    assert copied.endswith(b"\n")
    assert len(copied) / len(ROWS) == pytest.approx(taken / path.stat().st_size, rel=0.02 if gzipped else 1e-9)
    assert 0.9 * size <= taken <= size


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    members = b"".join(gzip.compress(part.encode()) for part in (ROWS, ROWS, "")) + b"\0" * 8
    (tmp_path / "all.csv.gz").write_bytes(members)
    cut(str(tmp_path / "all.csv.gz"), str(tmp_path / "copy"), 10**9, CsvOptions())
    assert gzip.decompress((tmp_path / "copy").read_bytes()) == 2 * ROWS.encode()


def test_a_file_without_an_end_of_a_record_is_told(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(b"x" * 1000)
    with pytest.raises(MillraceError, match=r"one\.csv: no record ends in its first 100 bytes; give a larger"):
        cut(str(tmp_path / "one.csv"), str(tmp_path / "copy"), 100, CsvOptions())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(ROWS.encode())[:-2000], "the gzip file is truncated"),
        (gzip.compress(ROWS.encode())[:10] + b"\xff" * 5000, "corrupt gzip data: .*"),
    ],
)
def test_a_damaged_gzip_file_is_told(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "bad.csv.gz").write_bytes(data)
    with pytest.raises(MillraceError, match=rf"bad\.csv\.gz: {said}; get a new copy"):
        cut(str(tmp_path / "bad.csv.gz"), str(tmp_path / "copy"), 10**9, CsvOptions())


def listing(*patterns: Path | str) -> storage.Listing:
    return storage.list_files([str(p) for p in patterns], on_duplicate=lambda *_: None)


def test_rows_come_from_several_files(tmp_path: Path) -> None:
    for i in range(FILES + 4):
        (tmp_path / f"{i}.csv").write_text("a,b,c\n" + ROWS)
    schema = schema_of()
    sample = take(schema, listing(tmp_path / "*.csv"), classes=(), size=800_000, folder=str(tmp_path / "sample"))
    assert len(sample.input) == FILES
    read = sum(read_all(Path(path), schema).read for path in sample.input)
    assert read == pytest.approx(sample.share * 60_000 * (FILES + 4), rel=0.06)
    assert sample.share == pytest.approx(800_000 / (len(ROWS) * (FILES + 4)), rel=0.02)
    assert load_schema(sample.schema) == schema


def test_a_small_input_is_taken_whole(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,x\n")
    (tmp_path / "empty.csv").write_text("")
    sample = take(schema_of(), listing(tmp_path / "*.csv"), classes=(), size=10**6, folder=str(tmp_path / "sample"))
    assert sample.share == 1.0


def test_each_split_that_goes_by_names_is_in_the_sample(tmp_path: Path) -> None:
    for i in range(30):
        (tmp_path / f"train-{i}.csv").write_text("a,b,c\n" + ROWS)
    (tmp_path / "held-out.csv").write_text("a,b,c\n" + ROWS)
    schema = schema_of(split={"by": "file", "train": "*train-*.csv", "eval": "*held-out.csv"})
    sample = take(schema, listing(tmp_path / "*.csv"), classes=(), size=10**5, folder=str(tmp_path / "sample"))
    folders = [Path(path).parent.name for path in sample.input]
    assert (folders.count("train"), folders.count("eval")) == (FILES, 1)
    again = load_schema(sample.schema)
    assert isinstance(again, Schema)
    rows = [read_all(Path(path), again, with_split=True).column("_split") for path in sample.input]
    assert {split for column in rows for split in column} == {0, 1}


def test_images_keep_their_folders_and_all_classes(tmp_path: Path) -> None:
    write_folders(tmp_path / "raw", each=100)
    text = b"name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}}\n"
    text += b"split: {by: content, train: 0.8, eval: 0.1, test: 0.1}\n"
    schema = parse_schema(text, "shapes.yaml")
    files = listing(f"{tmp_path}/raw/*/*")
    sample = take(schema, files, classes=("disc", "square"), size=1, folder=str(tmp_path / "sample"))
    assert (len(sample.input), sample.share) == (LEAST_IMAGES, LEAST_IMAGES / len(files))
    assert set(sample.input) <= {file.path for file in files}
    again = load_schema(sample.schema)
    assert isinstance(again, ImageFolderSchema)
    assert again.label.values == ("disc", "square")
    everything = take(schema, files, classes=(), size=10**9, folder=str(tmp_path / "whole"))
    assert everything.share == 1.0


def test_listed_images_keep_their_root(tmp_path: Path) -> None:
    write_folders(tmp_path / "raw", each=3)
    lines = [f"{path.relative_to(tmp_path / 'raw')},{path.parent.name}" for path in (tmp_path / "raw").glob("*/*")]
    (tmp_path / "list.csv").write_text("path,label\n" + "\n".join(lines) + "\n")
    text = b"name: shapes\nformat: image_folder\nimages: {resize: {exact: [24, 32]}, listing: csv, root: raw}\n"
    text += b"split: {by: content, train: 0.8, eval: 0.1, test: 0.1}\n"
    schema = parse_schema(text, "shapes.yaml")
    files = listing(tmp_path / "list.csv")
    sample = take(schema, files, classes=(), size=1, folder=str(tmp_path / "sample"))
    assert sample.share == 1.0
    again = load_schema(sample.schema)
    assert isinstance(again, ImageFolderSchema)
    assert again.images.root == str(tmp_path / "raw")
    (path,) = sample.input
    assert Path(path).read_text().splitlines() == ["path,label", *lines]


def test_pairs_are_refused_in_one_line(tmp_path: Path) -> None:
    schema = load_schema("schemas/faces.yaml")
    with pytest.raises(UsageError, match=r"pairs of images cannot be planned from a sample"):
        take(schema, listing(__file__), classes=(), size=1, folder=str(tmp_path / "sample"))
