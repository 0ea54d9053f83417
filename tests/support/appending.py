"""Files of a few days, and datasets that grow by them."""

from __future__ import annotations

import collections
import shutil
from pathlib import Path
from typing import Any

import pandas as pd

from schemas.dataset import Dataset, layout
from schemas.dataset.verify import verify_dataset
from tests.support.replaying import Folder
from tests.support.written_records import examples

SCHEMA = """\
name: days
format: csv
csv: {header: present, missing: ["?"]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: z_score}
  - {name: pay, kind: numeric, transform: min_max, missing: median}
  - {name: size, kind: numeric, transform: {bucketize: 4}}
  - {name: city, kind: category, missing: nowhere}
  - {name: grade, kind: category, values: [a, b], oov_buckets: 1}
  - {name: note, kind: text, length: 3}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""
HEADER = "id,age,pay,size,city,grade,note,y"
ROWS = 60  # of a day


def row(day: int, i: int) -> str:
    """A valid row; later days know other cities, grades and words."""
    city = "?" if i % 9 == 0 else f"city {(i + day) % (4 + day)}"
    grade = "abc"[i % (2 + min(day, 1))]
    pay = "?" if i % 7 == 0 else str(i * (day + 1))
    return f"d{day}-{i},{20 + i % 40 + day},{pay},{i % 13},{city},{grade},word{i % 3} day{day},{['no', 'yes'][i % 2]}"


class Days(Folder):
    """A folder with the files of some days, and a dataset that they are added to."""

    def day(self, day: int, *, name: str | None = None, rows: int = ROWS) -> str:
        """Writes the file of a day."""
        path = self.path / (name or f"day{day}.csv")
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([HEADER, *(row(day, i) for i in range(rows))]) + "\n")
        return str(path)

    def dataset_of(self, *inputs: str, **changes: Any) -> Dataset:
        """Writes the dataset of some days."""
        return self.job(SCHEMA, *inputs, **changes)


def copied(built: Path, to: Path) -> Days:
    """A copy of a folder of days whose dataset names its own files."""
    shutil.copytree(built, to, dirs_exist_ok=True)
    manifest = to / "out" / layout.MANIFEST
    manifest.write_text(manifest.read_text().replace(str(built), str(to)))
    return Days(to)


def ids(dataset: Dataset) -> dict[str, list[str]]:
    """The ids of each split's records, sorted."""
    return {split: sorted(record["id"][0].decode() for record in examples(dataset, split)) for split in dataset.splits}


def raw_ids(*paths: str) -> list[str]:
    """The ids in raw files, by pandas, sorted."""
    return sorted(pd.concat([pd.read_csv(path, dtype=str) for path in paths])["id"])


def assert_holds(dataset: Dataset, *paths: str, rejected: int = 0) -> None:
    """Asserts that a dataset is valid, and holds each row of these files exactly once."""
    assert verify_dataset(dataset.path) == []
    held = ids(dataset)
    assert sorted(i for some in held.values() for i in some) == raw_ids(*paths)
    assert {split: len(some) for split, some in held.items()} == {s: dataset.rows(s) for s in dataset.splits}
    manifest = dataset.manifest
    assert collections.Counter(file.path for file in manifest.inputs) == collections.Counter(paths)
    assert (manifest.read, manifest.rejected) == (manifest.written + rejected, rejected)
