"""The inputs of the contests: made once, in a folder that is removed after the run.

With MILLRACE_TEST_DATA these are the real files, repeated if they are small, so that no copy equals another (`copies`);
otherwise synthetic files of the same shape from `schemas.samples`, whose figures mean little.
"""

from __future__ import annotations

import collections
import dataclasses
import gzip
import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.measure import measure
from benchmarks.tables import TABLES
from benchmarks.task import Task
from schemas.dataset import open_dataset
from schemas.samples.images import write_shapes
from schemas.samples.tables import sample_blocks

REAL_DATA = "MILLRACE_TEST_DATA"
SCHEMAS = Path(__file__).parents[1] / "schemas"
IMAGES = "name: photos\nformat: image_folder\nimages: {resize: {shorter: 256}, crop: [224, 224], store: %s}\n"
IMAGES += "split: {by: name, train: %s}\n"
SPLIT, ALL_TRAIN = "0.8, eval: 0.1, test: 0.1", "1.0, eval: 0, test: 0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured: rows of each file, images, and the seconds that a reader is timed."""

    covertype: int
    covertype_6m: int
    census: int
    mnist: int
    rows: int
    tiny: int
    images: int
    images_2mp: int
    images_12mp: int
    images_read: int
    seconds: float


FULL = Size(
    covertype=600_000,
    covertype_6m=6_000_000,
    census=651_220,
    mnist=60_000,
    rows=100_000,
    tiny=1000,
    images=4800,
    images_2mp=1200,
    images_12mp=400,
    images_read=600,
    seconds=3.0,
)
QUICK = Size(
    covertype=20_000,
    covertype_6m=100_000,
    census=5000,
    mnist=500,
    rows=10_000,
    tiny=1000,
    images=60,
    images_2mp=20,
    images_12mp=10,
    images_read=60,
    seconds=1.0,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """An input: its path, and the number of rows or images of a pass over it, in total and by class.

    Attributes:
      real: whether it is made of the real files, not of synthetic samples.
      exact: whether a pass has exactly these numbers by class; otherwise only about these shares, as in a split.
    """

    path: str
    rows: int
    classes: dict[int, int]
    real: bool
    exact: bool = True


class Sources:
    """Makes sources when they are first asked for."""

    def __init__(self, folder: str, size: Size, *, under: Sequence[str] = ()) -> None:
        self.folder, self.size, self.under = Path(folder), size, under
        self.made: dict[str, Source] = {}
        self._makers: dict[str, Callable[[str], Source]] = {
            "covertype": lambda name: self._csv(name, "covertype", size.covertype),
            "covertype_6m": lambda name: self._csv(name, "covertype", size.covertype_6m),
            "covertype_tiny": lambda name: self._csv(name, "covertype", size.tiny),
            "census": lambda name: self._csv(name, "census", size.census),
            "census_tiny": lambda name: self._csv(name, "census", size.tiny),
            "mnist": lambda name: self._csv(name, "mnist", size.mnist),
            "photos": lambda name: self._photos(name, size.images),
            "photos_2mp": lambda name: self._mosaics(name, size.images_2mp, (1200, 1700)),
            "photos_12mp": lambda name: self._mosaics(name, size.images_12mp, (3000, 4000)),
            "photos_once": lambda name: self._photos(name, size.images_read, schema=IMAGES % ("jpeg", ALL_TRAIN)),
            "photos_raw": lambda name: self._photos(name, size.images_read, schema=IMAGES % ("raw", ALL_TRAIN)),
            "rows.csv": lambda name: self._csv("rows", "covertype", size.rows),
            "rows": lambda name: self._dataset(name, "rows.csv", "benchmarks.ours_writing:write_csv"),
            "rows_tfds": lambda name: self._written(name, "rows.csv", "benchmarks.rivals.csv_tfds:write"),
            "rows_webdataset": lambda name: self._written(name, "rows.csv", "benchmarks.rivals.rows_webdataset:write"),
            "images_jpeg": lambda name: self._dataset(name, "photos_once", "benchmarks.ours_writing:write_images"),
            "images_raw": lambda name: self._dataset(name, "photos_raw", "benchmarks.ours_writing:write_images"),
            "images_tfds": lambda name: self._written(name, "photos_once", "benchmarks.rivals.image_tfds:write"),
            "images_webdataset": lambda name: self._written(
                name, "photos_once", "benchmarks.rivals.image_webdataset:write"
            ),
        }

    def __getitem__(self, name: str) -> Source:
        if name not in self.made:
            self.made[name] = self._makers[name](name)
        return self.made[name]

    def _csv(self, name: str, table: str, rows: int) -> Source:
        """Writes a CSV file of `rows` rows, with its schema next to it."""
        path = self.folder / f"{name}.csv"
        header, rows_of = lines(table)
        column = TABLES[table].label_column
        classes: collections.Counter[bytes] = collections.Counter()
        with open(path, "wb") as file:
            file.write(header)
            for line in itertools.islice(rows_of, rows):
                file.write(line)
                classes[line.rstrip().split(b",")[column].strip()] += 1
        schema = (SCHEMAS / f"{'mnist_csv' if table == 'mnist' else table}.yaml").read_text(encoding="utf-8")
        if table == "census":  # one file, which is split by a hash
            schema = schema.replace('split: {by: file, train: "*adult.data", eval: "*adult.test"}', BY_ROW)
        path.with_suffix(".yaml").write_text(schema, encoding="utf-8")
        labels = TABLES[table].labels
        return Source(
            path=str(path),
            rows=rows,
            classes={labels.index(text.decode()): n for text, n in classes.items()},
            real=real_file(table) is not None,
        )

    def _photos(self, name: str, count: int, schema: str = IMAGES % ("jpeg", SPLIT)) -> Source:
        """Images in class folders. If there are too few, copies under other names: the job reads a linked file once."""
        folder = self.folder / name / "train"
        classes: collections.Counter[str] = collections.Counter()
        for i, path in enumerate(itertools.islice(itertools.cycle(self._images()), count)):
            label = path.parent.name
            (folder / label).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / label / f"{i}-{path.name}")
            classes[label] += 1
        Path(f"{folder}.yaml").write_text(schema, encoding="utf-8")
        numbers = {label: i for i, label in enumerate(sorted(classes))}
        of_each = {numbers[label]: n for label, n in classes.items()}
        return Source(path=str(folder), rows=count, classes=of_each, real=_real("images") is not None)

    def _mosaics(self, name: str, count: int, sides: tuple[int, int]) -> Source:
        """Large photos, composed of small ones at their own size: as hard to decode as a camera's."""
        from benchmarks.mosaics import write_mosaics

        folder = self.folder / name / "train"
        classes = write_mosaics(folder, self._images(), count=count, sides=sides)
        Path(f"{folder}.yaml").write_text(IMAGES % ("jpeg", SPLIT), encoding="utf-8")
        return Source(path=str(folder), rows=count, classes=classes, real=_real("images") is not None)

    def _images(self) -> list[Path]:
        """The available images, taking classes in turn."""
        drawn = self.folder / "drawn"
        folder = _real("images") or drawn
        if folder == drawn and not drawn.is_dir():
            write_shapes(str(drawn), each=20, seed=1)
        by_class = [sorted(child.glob("*")) for child in sorted(folder.iterdir())]
        return [path.resolve() for paths in zip(*by_class, strict=False) for path in paths]

    def _written(self, name: str, source: str, writer: str) -> Source:
        """The output of a writer for another source."""
        of, output = self[source], self.folder / name
        output.mkdir()
        table = "" if source.startswith("photos") else "covertype"
        task = Task(source=of.path, output=str(output), table=table, rows=of.rows)
        measure(writer, task, under=self.under)
        return dataclasses.replace(of, path=str(output))

    def _dataset(self, name: str, source: str, writer: str) -> Source:
        """The train split of the dataset that this project's job writes from another source."""
        made = self._written(name, source, writer)
        return dataclasses.replace(made, rows=open_dataset(made.path).rows("train"), exact=False)


BY_ROW = "split: {by: row, train: 0.8, eval: 0.1, test: 0.1}"
_REAL_FILES = {
    "covertype": "covertype/covertype_100k.csv.gz",
    "census": "census/adult.data",
    "mnist": "mnist/mnist_10k.csv.gz",
}


def _real(name: str) -> Path | None:
    """The file or folder of this name in the real data; None if there is none."""
    path = Path(os.environ.get(REAL_DATA, "/nowhere")) / name
    return path if path.exists() else None


def real_file(table: str) -> Path | None:
    """The file with the real rows of a table; None if there is none, and samples are used."""
    return _real(_REAL_FILES[table])


def lines(table: str) -> tuple[bytes, Iterable[bytes]]:
    """The header line, or b'', and an iterable of rows, a thousand times as many as there are."""
    real = real_file(table)
    if real is None:
        blocks = sample_blocks("mnist_csv" if table == "mnist" else table, rows=20_000, seed=1)
        found = b"".join(blocks).splitlines(keepends=True)
        has_header = table != "covertype"
    elif real.suffix == ".gz":
        with gzip.open(real) as file:
            found = file.readlines()
        has_header = TABLES[table].header
    else:
        found = [line for line in real.read_bytes().splitlines(keepends=True) if line.strip()]
        has_header = not found[0][:1].isdigit()
    header = found[0] if TABLES[table].header else b""
    return header, copies(found[has_header:], column=min(numeric.first for numeric in TABLES[table].numeric.values()))


def copies(rows: Sequence[bytes], *, column: int) -> Iterator[bytes]:
    """Rows again and again, each time with another fraction in a column of numbers.

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
