"""The places of raw rows, read back at the place by Python's csv, are the rows that the records come from."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import os
from pathlib import Path

import pytest
import tensorflow as tf

from schemas.dataset import Dataset
from tests.support.datasets import BAD, DAYS, FEW, FEW_HEADER, FEW_ROWS, Folder, as_good
from trainer.evaluation.raw_rows import Found, find_rows

NEWLINES = FEW.replace("header: present", "header: present, quoted_newlines: true")


def stored(dataset: Dataset, split: str = "eval") -> list[bytes]:
    return list(tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression).as_numpy_iterator())


def key_of(record: bytes) -> str:
    return str(tf.train.Example.FromString(record).features.feature["id"].bytes_list.value[0].decode())


def row_at(path: str, offset: int) -> list[str]:
    """The row that begins at a byte, of the file decompressed, and of UTF-16 as UTF-8."""
    data = Path(path).read_bytes()
    data = gzip.decompress(data) if path.endswith(".gz") else data
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = ("\ufeff" + data.decode("utf-16")).encode()
    return next(csv.reader(io.StringIO(data[offset:].decode(), newline="")))


def rows_in(path: str) -> list[list[str]]:
    """All rows of a file but its header."""
    data = Path(path).read_bytes()
    data = gzip.decompress(data) if path.endswith(".gz") else data
    text = data.decode("utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig")
    return list(csv.reader(io.StringIO(text, newline="")))[1:]


def some(file: int, *, note: str = "") -> list[str]:
    """Rows whose keys are unique; but for these, rows of different files are equal."""
    return [row.replace(f"k{i},", f"f{file}-{i},", 1).replace("Köln", f"Köln{note}") for i, row in enumerate(FEW_ROWS)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Dataset:
    """Read from files of every form, with rejects between the rows."""
    folder = Folder(tmp_path_factory.mktemp("mixed"))
    broken = ["f0-x,old,a,yes", *some(0)[:9], "too,few", *some(0)[9:]]
    files = [folder.write("plain.csv", [FEW_HEADER, *broken])]
    files.append(folder.write("windows.csv", [FEW_HEADER, *some(1)], end="\r\n"))
    files.append(folder.write("packed.csv.gz", [FEW_HEADER, *some(2)]))
    files.append(folder.write("wide.csv", [FEW_HEADER, *some(3)], encoding="utf-16"))
    return folder.job(FEW, *files)


@pytest.fixture(scope="module")
def newlines(tmp_path_factory) -> Dataset:
    folder = Folder(tmp_path_factory.mktemp("newlines"))
    return folder.job(NEWLINES, folder.write("rows.csv", [FEW_HEADER, *some(0, note='\nat the ""Rhine""')]))


def assert_told(found: Found, records: list[bytes], *, all_of: int) -> None:
    assert len(found.rows) == all_of
    for record, (places, alike) in zip(records, found.rows, strict=True):
        (place,) = places
        assert alike == 1
        assert row_at(place.source, place.offset)[0] == key_of(record)
        assert [row[0] for row in rows_in(place.source)][place.row] == key_of(record)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "newlines"])
@pytest.mark.parametrize("split", ["eval", "train"])
def test_the_row_at_the_place_is_the_one_that_the_record_comes_from(name, split, request):
    dataset = request.getfixturevalue(name)
    records = stored(dataset, split)
    found = find_rows(dataset, split, records)
    assert_told(found, records, all_of=dataset.rows(split))
    assert not found.notes
    if name == "mixed":
        assert len({os.path.basename(places[0].source) for places, _ in found.rows}) == 4


@pytest.mark.slow
class TestChanged:
    """Inputs that are not as they were when the job read them: where a row is not, it is not told to be."""

    @pytest.fixture
    def rows(self, tmp_path, mixed) -> tuple[Dataset, Path]:
        """A dataset of one file, through the transform of another, so that it takes less time."""
        folder = Folder(tmp_path)
        return folder.job(FEW, folder.write("rows.csv", [FEW_HEADER, *FEW_ROWS]), transform_from=mixed.path), tmp_path

    def test_the_inputs(self, rows):
        dataset, folder = rows
        path, records = folder / "rows.csv", stored(dataset)
        first = key_of(records[0])
        lines = path.read_text().splitlines()

        path.write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")  # in another order: told where they are now
        found = find_rows(dataset, "eval", records)
        assert_told(found, records, all_of=len(records))
        assert not found.notes

        path.write_text(path.read_text().replace(f"{first},", f"{first}0,"))
        found = find_rows(dataset, "eval", records)
        assert found.rows[0] == ([], 0)
        assert found.notes == [
            f"not found in the inputs: 1 of {len(records)} rows.",
            f"{path}: changed since the job read them, or copied.",
        ]

        path.write_text("a,b\n1,2\n")  # another table
        found = find_rows(dataset, "eval", records)
        assert not any(places for places, _ in found.rows)
        assert str(path) in found.notes[0]

        path.unlink()
        found = find_rows(dataset, "eval", records)
        assert not any(places for places, _ in found.rows)
        assert found.notes[0] == f"{path}: is gone: what they held is not found."


@pytest.mark.slow
def test_after_a_replay(tmp_path, mixed):
    """The records of the job are found; those that were corrected stand in no input, and no place is told for them."""
    folder = Folder(tmp_path)
    before = folder.job(FEW, folder.write("rows.csv", [FEW_HEADER, *BAD]), transform_from=mixed.path)
    old = {split: set(map(key_of, stored(before, split))) for split in before.splits}
    folder.replay(folder.correct(before, as_good))
    dataset = folder.dataset
    added = 0
    for split in dataset.splits:
        records = stored(dataset, split)
        found = find_rows(dataset, split, records)
        for record, (places, _) in zip(records, found.rows, strict=True):
            if key_of(record) in old[split]:
                assert row_at(places[0].source, places[0].offset)[0] == key_of(record)
            else:
                added += 1
                assert not places
                assert any("replay" in note for note in found.notes)
    assert added == dataset.manifest.written - before.manifest.written > 0


@pytest.mark.slow
def test_rows_that_give_the_same_record(tmp_path, mixed):
    """They are all told: nothing that is stored says which of them it was."""
    folder = Folder(tmp_path)
    schema = FEW.replace("{name: id, kind: key}", "{name: id, kind: ignore}").replace("by: [id]", "by: [age, city]")
    dataset = folder.job(schema, folder.write("rows.csv", [FEW_HEADER, *some(0), *some(1)]))
    for split in dataset.splits:
        records = stored(dataset, split)
        for places, alike in find_rows(dataset, split, records).rows:
            rows = {tuple(row_at(place.source, place.offset)[1:]) for place in places}
            assert len(rows) == 1
            assert alike == sum(tuple(row[1:]) in rows for row in rows_in(places[0].source))


@pytest.mark.slow
def test_after_an_append(tmp_path):
    """The places are in the files that were appended, too."""
    days = Folder(tmp_path)
    days.job(DAYS, days.day(0))
    days.append(days.day(1))
    dataset, sources, told = days.dataset, set(), 0
    for split in dataset.splits:
        records = stored(dataset, split)
        for record, ((place,), _) in zip(records, find_rows(dataset, split, records).rows, strict=True):
            assert row_at(place.source, place.offset)[0] == key_of(record)
            sources.add(place.source)
            told += 1
    assert (told, len(sources)) == (dataset.manifest.written, 2)
