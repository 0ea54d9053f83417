"""The files that the contests read: made once per run, in a folder that is removed after it.

With MILLRACE_TEST_DATA these are the real files, repeated if they are small, so that no copy equals another (`copies`);
otherwise synthetic files of the same shape from `schemas.samples`, whose figures mean little.
"""

from __future__ import annotations

import collections
import dataclasses
import gzip
import io
import itertools
import os
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from PIL import Image

from benchmarks.measure import BenchmarkTask, measure
from benchmarks.model_sets import SETS, write_set
from benchmarks.tables import TABLES
from schemas.dataset import open_dataset
from schemas.samples.images import write_shapes
from schemas.samples.tables import sample_blocks

REAL_DATA = "MILLRACE_TEST_DATA"
SCHEMAS = Path(__file__).parents[1] / "schemas"
IMAGES = "name: photos\nformat: image_folder\nimages: {resize: {shorter: 256}, crop: [224, 224], store: %s}\n"
IMAGES += "split: {by: name, train: %s}\n"
SPLIT, ALL_TRAIN = "0.8, eval: 0.1, test: 0.1", "1.0, eval: 0, test: 0"
BY_ROW = "split: {by: row, train: 0.8, eval: 0.1, test: 0.1}"
REAL_FILES = {
    "covertype": "covertype/covertype_100k.csv.gz",
    "census": "census/adult.data",
    "mnist": "mnist/mnist_10k.csv.gz",
}


@dataclasses.dataclass(frozen=True)
class CsvInput:
    """A CSV file of a `benchmarks.tables.Table`."""

    table: str
    count: int


@dataclasses.dataclass(frozen=True)
class PhotoInput:
    """Photos in two class folders: as they are, or `sides`, a height and a width, composed of smaller ones."""

    count: int
    store: str = "jpeg"
    split: str = SPLIT
    sides: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class WrittenInput:
    """What a candidate writes of another input; `dataset`: a dataset of Millrace, whose train split is read."""

    source: str
    function: str
    dataset: bool = False


ROWS_READ, PHOTOS_READ = 100_000, 600
DISTINCT = 24  # photos of a contest are composed; the others are copies, each with its own comment
INPUTS: dict[str, CsvInput | PhotoInput | WrittenInput] = {
    "covertype": CsvInput("covertype", 600_000),
    "census": CsvInput("census", 651_220),
    "mnist": CsvInput("mnist", 60_000),
    **{f"covertype_{rows}": CsvInput("covertype", rows) for rows in (10_000, 100_000, 1_000_000, 6_000_000)},
    "photos_small": PhotoInput(4800),
    "photos_2mp": PhotoInput(1200, sides=(1200, 1700)),
    "photos_12mp": PhotoInput(400, sides=(3000, 4000)),
    "rows.csv": CsvInput("covertype", ROWS_READ),
    "rows": WrittenInput("rows.csv", "millrace_jobs:write_csv", dataset=True),
    "original_photos": PhotoInput(PHOTOS_READ, split=ALL_TRAIN),
    "original_photos_raw": PhotoInput(PHOTOS_READ, split=ALL_TRAIN, store="raw"),
    "stored_photos": WrittenInput("original_photos", "millrace_jobs:write_photos", dataset=True),
    "stored_photos_raw": WrittenInput("original_photos_raw", "millrace_jobs:write_photos", dataset=True),
    "stored_photos_tfds": WrittenInput("original_photos", "tfds_photos:write"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MadeInput:
    """An input that is made: its path, and the number of rows or photos of a pass over it, in total and by class.

    Attributes:
      table: the name of its `benchmarks.tables.Table`; '' if it has none.
      classes: empty if they are not known, as those of a split.
    """

    path: str
    table: str
    rows: int
    classes: dict[int, int]


class MadeInputs:
    """Makes the inputs of contests, each when it is first needed, in a folder.

    Args:
      folder: where they are made.
      small: whether they are a hundredth of the size, to try the contests out.
    """

    def __init__(self, folder: Path, *, small: bool) -> None:
        self.folder, self.small = folder, small
        self._made: dict[str, MadeInput] = {}

    def __getitem__(self, name: str) -> MadeInput:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> MadeInput:
        if name in SETS:
            rows = write_set(name, self.folder / f"set_{name}", limit=1000 if self.small else None)
            return MadeInput(path=str(self.folder / f"set_{name}"), table="", rows=rows, classes={})
        match INPUTS[name]:
            case CsvInput(table, count):
                return self._csv(self.folder / name, table, self._size(count, least=1000))
            case PhotoInput(count) as photos:
                return self._photos(self.folder / name / "train", photos, self._size(count, least=24))
            case WrittenInput(source, function, dataset):
                return self._written(self.folder / name, self[source], function, dataset=dataset)

    def _size(self, count: int, *, least: int) -> int:
        return min(count, max(count // 100, least)) if self.small else count

    def _csv(self, folder: Path, table: str, rows: int) -> MadeInput:
        """Writes a CSV file of `rows` rows, with its schema next to it."""
        path = folder / "rows.csv"
        folder.mkdir(exist_ok=True)
        header, lines_of_table = lines(table)
        column = TABLES[table].label_column
        classes: collections.Counter[bytes] = collections.Counter()
        with open(path, "wb") as file:
            file.write(header)
            for line in itertools.islice(lines_of_table, rows):
                file.write(line)
                classes[line.rstrip().split(b",")[column].strip()] += 1
        schema = (SCHEMAS / f"{'mnist_csv' if table == 'mnist' else table}.yaml").read_text(encoding="utf-8")
        # adult.data is one file, which is split by a hash
        schema = schema.replace('split: {by: file, train: "*adult.data", eval: "*adult.test"}', BY_ROW)
        path.with_suffix(".yaml").write_text(schema, encoding="utf-8")
        labels = TABLES[table].labels
        numbers = {labels.index(text.decode()): count for text, count in classes.items()}
        return MadeInput(path=str(path), table=table, rows=rows, classes=numbers)

    def _photos(self, folder: Path, photos: PhotoInput, count: int) -> MadeInput:
        """Writes photos in class folders; if there are too few, copies: the job reads a linked file once."""
        originals = self._originals()
        if photos.sides is not None:
            write_mosaics(folder, originals, count=count, sides=photos.sides)
        else:
            for i, path in enumerate(itertools.islice(itertools.cycle(originals), count)):
                (folder / path.parent.name).mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, folder / path.parent.name / f"{i}-{path.name}")
        classes = {i: len(list(label.iterdir())) for i, label in enumerate(sorted(folder.iterdir()))}
        Path(f"{folder}.yaml").write_text(IMAGES % (photos.store, photos.split), encoding="utf-8")
        return MadeInput(path=str(folder), table="", rows=count, classes=classes)

    def _originals(self) -> list[Path]:
        """The available photos, taking classes in turn."""
        folder = real_path("images") or self.folder / "drawn"
        if not folder.is_dir():
            write_shapes(str(folder), per_shape=20, seed=1)
        by_class = [sorted(label.glob("*")) for label in sorted(folder.iterdir())]
        return [path.resolve() for paths in zip(*by_class, strict=False) for path in paths]

    def _written(self, folder: Path, source: MadeInput, function: str, *, dataset: bool) -> MadeInput:
        folder.mkdir(exist_ok=True)
        work = BenchmarkTask(kind="write", function=function, source=source.path, table=source.table, rows=source.rows)
        measure(dataclasses.replace(work, output=str(folder)))
        if dataset:
            return MadeInput(
                path=str(folder), table=source.table, rows=open_dataset(str(folder)).rows("train"), classes={}
            )
        return dataclasses.replace(source, path=str(folder))


def real_path(name: str) -> Path | None:
    """Returns the file or folder of this name in the real data; None if samples are used."""
    return Path(os.environ[REAL_DATA], name) if os.environ.get(REAL_DATA) else None


def lines(table: str) -> tuple[bytes, Iterable[bytes]]:
    """Returns the header line, or b'', and an iterable of rows, a thousand times as many as there are."""
    path = real_path(REAL_FILES[table])
    if path is None:
        data = b"".join(sample_blocks("mnist_csv" if table == "mnist" else table, rows=20_000, seed=1))
    else:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    first, *rows = [line for line in data.splitlines(keepends=True) if line.strip()]
    if first[:1].isdigit():
        rows.insert(0, first)
    header = first if TABLES[table].header else b""
    return header, copies(rows, column=min(numeric.first for numeric in TABLES[table].numeric.values()))


def copies(rows: Sequence[bytes], *, column: int) -> Iterator[bytes]:
    """Yields rows again and again, each time with another fraction in a column of numbers.

    A job that looks for equal records, or counts distinct values, has less to do if rows repeat. The first copy is
    unchanged; in the next ones 39 becomes 39.001, 39.002 and so on, which stays distinct as float32, leaves buckets and
    classes alone, and adds 4 bytes. What is not a number stays as it is.

    Args:
      rows: lines of CSV without quotes up to the column.
      column: its place.

    Raises:
      ValueError: while iterating, at the copy whose number has no three digits.
    """
    yield from rows
    parts = [row.split(b",", column + 1) for row in rows]
    for copy in range(1, 1000):
        digits = b"%03d" % copy
        for row, cells in zip(rows, parts, strict=True):
            number = cells[column]
            if not number.strip().replace(b".", b"", 1).isdigit():
                yield row
                continue
            fraction = digits if b"." in number else b"." + digits
            yield b",".join([*cells[:column], number + fraction, *cells[column + 1 :]])
    raise ValueError("more than 1,000 copies of a file: use a larger one.")


def write_mosaics(folder: Path, images: Sequence[Path], *, count: int, sides: tuple[int, int]) -> None:
    """Writes JPEGs of a height and width into two class folders, composed of small ones, as detailed as a camera's."""
    draw = random.Random(1)
    distinct = [_mosaic(images, sides, draw) for _ in range(min(DISTINCT, count))]
    for i in range(count):
        path = folder / "ab"[i % 2] / f"{i:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        jpeg, comment = distinct[i % len(distinct)], str(i).encode()
        # A comment after the first marker, so that no two files have the same bytes
        path.write_bytes(jpeg[:2] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + jpeg[2:])


def _mosaic(images: Sequence[Path], sides: tuple[int, int], draw: random.Random) -> bytes:
    height, width = sides
    picture = Image.new("RGB", (width, height))
    top = 0
    while top < height:
        left, row = 0, height
        while left < width:
            with Image.open(draw.choice(images)) as tile:
                picture.paste(tile.convert("RGB"), (left, top))
                left, row = left + tile.width, min(row, tile.height)
        top += row
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=92)
    return out.getvalue()
