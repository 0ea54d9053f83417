"""After appends, the places of raw rows are in the files that were appended, too."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
import tensorflow as tf

from tests.support.appending import Days
from trainer.evaluation.raw_rows import find_rows

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("changes", [{}, {"reanalyze": True}], ids=["same transform", "measured anew"])
def test_after_an_append(tmp_path, changes):
    days = Days(tmp_path)
    days.write(days.day(0))
    days.append(days.day(1), **changes)
    dataset, sources, told = days.dataset, set(), 0
    for split in dataset.splits:
        shards = tf.data.TFRecordDataset(list(dataset.shards(split)), dataset.compression)
        records = list(shards.as_numpy_iterator())
        found = find_rows(dataset, split, records)
        for record, (places, _) in zip(records, found.rows, strict=True):
            (place,) = places
            (key,) = tf.train.Example.FromString(record).features.feature["id"].bytes_list.value
            text = Path(place.source).read_bytes()[place.offset :].decode()
            assert next(csv.reader(io.StringIO(text)))[0] == key.decode()
            sources.add(place.source)
            told += 1
    assert (told, len(sources)) == (dataset.manifest.written, 2)
