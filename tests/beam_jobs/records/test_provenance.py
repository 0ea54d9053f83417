"""What is read at the place that a record names, also by Python's csv, is the row that the record was made of."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from schemas.dataset import OpenDataset
from schemas.dataset.provenance import RawRow, read_places, read_rows
from tests.support.datasets import BAD, DAYS, FEW, FEW_HEADER, FEW_ROWS, Folder, as_good

NEWLINES = FEW.replace("header: present", "header: present, quoted_newlines: true")


def stored(dataset: OpenDataset) -> tuple[list[str], np.ndarray]:
    """The keys and the places of all records."""
    keys = []
    for split in dataset.splits:
        for record in tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            keys.append(features["id"].bytes_list.value[0].decode())
    return keys, np.concatenate([read_places(dataset, split) for split in dataset.splits])


def row_at(path: str, offset: int) -> list[str]:
    """The row that begins at a byte, of the file decompressed, and of UTF-16 as UTF-8."""
    data = Path(path).read_bytes()
    data = gzip.decompress(data) if path.endswith(".gz") else data
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = ("\ufeff" + data.decode("utf-16")).encode()
    return next(csv.reader(io.StringIO(data[offset:].decode(), newline="")))


def some(file: int, *, note: str = "") -> list[str]:
    """Rows whose keys are unique; but for these, rows of different files are equal."""
    return [row.replace(f"k{i},", f"f{file}-{i},", 1).replace("Köln", f"Köln{note}") for i, row in enumerate(FEW_ROWS)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> OpenDataset:
    """Read from files of every form, with rejects between the rows."""
    folder = Folder(tmp_path_factory.mktemp("mixed"))
    broken = ["f0-x,old,a,yes", *some(0)[:9], "too,few", *some(0)[9:]]
    files = [folder.write("plain.csv", [FEW_HEADER, *broken])]
    files.append(folder.write("windows.csv", [FEW_HEADER, *some(1)], end="\r\n"))
    files.append(folder.write("packed.csv.gz", [FEW_HEADER, *some(2)]))
    files.append(folder.write("wide.csv", [FEW_HEADER, *some(3)], encoding="utf-16"))
    return folder.job(FEW, *files)


@pytest.fixture(scope="module")
def newlines(tmp_path_factory) -> OpenDataset:
    folder = Folder(tmp_path_factory.mktemp("newlines"))
    return folder.job(NEWLINES, folder.write("rows.csv", [FEW_HEADER, *some(0, note='\nat the ""Rhine""')]))


def assert_made_of_their_rows(dataset: OpenDataset) -> list[RawRow]:
    keys, places = stored(dataset)
    rows, notes = read_rows(dataset, places)
    assert not notes
    assert len(rows) == dataset.manifest.written
    for key, row in zip(keys, rows, strict=True):
        assert row_at(row.source, row.offset)[0] == row.values["id"] == key
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("name", "files"), [("mixed", 4), ("newlines", 1)])
def test_each_record_names_the_row_that_it_was_made_of(name, files, request):
    rows = assert_made_of_their_rows(request.getfixturevalue(name))
    assert len({row.source for row in rows}) == files


@pytest.mark.slow
def test_after_an_append(tmp_path):
    days = Folder(tmp_path)
    days.job(DAYS, days.day(0))
    days.append(days.day(1))
    assert len({row.source for row in assert_made_of_their_rows(days.dataset)}) == 2


@pytest.mark.slow
def test_a_file_that_is_not_as_the_job_read_it_is_named(tmp_path, mixed):
    folder = Folder(tmp_path)
    path = Path(folder.write("rows.csv", [FEW_HEADER, *FEW_ROWS]))
    dataset = folder.job(FEW, str(path), transform_from=mixed.path)
    _, places = stored(dataset)
    text = path.read_text()

    path.write_text(text.replace("Oslo", "Rome"))  # as large as before
    rows, notes = read_rows(dataset, places)
    assert all(row.values for row in rows)
    assert notes == [f"{path}: changed since the job read it, or copied."]

    (header, first), rest = text.split("\n")[:2], text.split("\n")[2:]
    path.write_text("\n".join([header, f"{first[:-1]}", f"{rest[0]} ", *rest[1:]]))  # each row is elsewhere
    rows, notes = read_rows(dataset, places)
    assert not any(row.values for row in rows)
    assert notes[0].startswith(f"{path}: no record begins at byte ")

    path.unlink()
    rows, notes = read_rows(dataset, places)
    assert {row.source for row in rows} == {str(path)}
    assert not any(row.values for row in rows)
    assert notes == [
        f"{path}: is gone, or has another size than when the job read it. Rows of this file are named without their "
        "values."
    ]


@pytest.mark.slow
def test_a_record_that_a_replay_corrected_is_read_as_it_was_rejected(tmp_path, mixed):
    folder = Folder(tmp_path)
    before = folder.job(FEW, folder.write("rows.csv", [FEW_HEADER, *BAD]), transform_from=mixed.path)
    old = set(stored(before)[0])
    folder.replay(folder.correct(before, as_good))
    keys, places = stored(folder.dataset)
    rows, notes = read_rows(folder.dataset, places)
    assert [bool(row.values) for row in rows] == [key in old for key in keys]
    assert notes == ["A record that a replay corrected stands in its file as it was rejected."]
