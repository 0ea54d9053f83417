"""Small datasets: schemas and rows of some, the folders that tests run jobs, appends and replays in, and checks."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from beam_jobs import job, preprocess
from beam_jobs.core.options import AppendOptions, JobOptions
from beam_jobs.runs.append import AppendOutcome, run_append
from beam_jobs.runs.job import run_job
from schemas import storage
from schemas.dataset import OpenDataset, holders, layout, lease, open_dataset
from schemas.dataset.holders import RemoteHolder
from schemas.dataset.verify import verify_dataset
from schemas.rejects import Reject, read_rejects
from tests.support.commands import Ended, ended
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.processes import until
from tests.support.written_records import examples, records


def written(folder: Path, schema: str, *inputs: str, output: str | None = None, **changes: Any) -> OpenDataset:
    """Runs a job, and opens what it has written.

    Args:
      folder: where `schema.yaml` is written.
      schema: a schema file's text.
      inputs: patterns.
      output: None: `out` in the folder.
      changes: other options of the job; it is quiet by default.
    """
    (folder / "schema.yaml").write_text(schema)
    output = output or str(folder / "out")
    run_job(JobOptions(str(folder / "schema.yaml"), inputs, output, **{"quiet": True, **changes}))
    return open_dataset(output)


def written_rows(folder: Path, schema: str, header: str, rows: Iterable[str], **changes: Any) -> OpenDataset:
    """Writes rows to `rows.csv`, and runs a job on them, of two shards a split by default; else as `written`."""
    return written(folder, schema, Folder(folder).write("rows.csv", [header, *rows]), **{"num_shards": 2, **changes})


def assert_same(there: OpenDataset, here: OpenDataset) -> None:
    """Asserts that two datasets have the same records, and that the first is valid."""
    from tests.support.written_records import records

    assert there.splits == here.splits
    for split in here.splits:
        assert records(there, split) == records(here, split)
    assert there.manifest.rejected == here.manifest.rejected
    assert verify_dataset(there.path) == []


FEW = """\
name: few
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: z_score}
  - {name: city, kind: category, hash_buckets: 9}
label: {name: y, kind: category}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""
FEW_ROWS = [f'k{i},{20 + i % 7},"{"abc"[i % 3]}, Köln",{["no", "yes"][i % 2]}' for i in range(40)]
# Invalid rows by index, and the reason of their rejects.
BROKEN = {
    3: ('k3,old,"a, Köln",yes', "not_a_number"),
    8: ('k8,21,"c, Köln', "unterminated_quote"),
    15: ('k15,21,"a, Köln"', "too_few_columns"),
    22: ('k22,?,"b, Köln",no', "missing_value"),
}
BAD = [BROKEN[i][0] if i in BROKEN else row for i, row in enumerate(FEW_ROWS)]
FEW_HEADER = "id,age,city,y"


def text_of(reject: Reject) -> str:
    """The reject's raw bytes as text: the record as it is, where the file behind it was mended."""
    return reject.raw.decode()


DAYS = """\
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
DAYS_HEADER = "id,age,pay,size,city,grade,note,y"
DAY_ROWS = 60  # of a day


def day_row(day: int, i: int) -> str:
    """A valid row; later days know other cities, grades and words."""
    city = "?" if i % 9 == 0 else f"city {(i + day) % (4 + day)}"
    grade = "abc"[i % (2 + min(day, 1))]
    pay = "?" if i % 7 == 0 else str(i * (day + 1))
    return f"d{day}-{i},{20 + i % 40 + day},{pay},{i % 13},{city},{grade},word{i % 3} day{day},{['no', 'yes'][i % 2]}"


@dataclasses.dataclass(frozen=True)
class Folder:
    """A test's folder: a schema, raw files, the job on them, what is added to its dataset, and corrected rejects."""

    path: Path

    @property
    def schema(self) -> Path:
        return self.path / "schema.yaml"

    @property
    def raw(self) -> Path:
        return self.path / "people.csv"

    @property
    def output(self) -> Path:
        return self.path / "out"

    @property
    def dataset(self) -> OpenDataset:
        return open_dataset(str(self.output))

    def write(self, name: str, lines: Iterable[str], *, encoding: str = "utf-8", end: str = "\n") -> str:
        """Writes lines to a file, whose folder is made; returns its path."""
        data = (end.join(lines) + end).encode(encoding)
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    def day(self, day: int, *, name: str | None = None, rows: int = DAY_ROWS) -> str:
        """Writes the file of a day."""
        return self.write(name or f"day{day}.csv", [DAYS_HEADER, *(day_row(day, i) for i in range(rows))])

    def job(self, schema: str, *inputs: str, **changes: Any) -> OpenDataset:
        """Writes the schema, and runs a job on the inputs."""
        return written(self.path, schema, *inputs, **changes)

    def options(self, **changes: Any) -> JobOptions:
        """Those of a job on the schema and the raw file that are there."""
        defaults = {"schema": str(self.schema), "input": (str(self.raw),), "output": str(self.output), "quiet": True}
        return JobOptions(**{**defaults, **changes})

    def run(self, **changes: Any) -> OpenDataset:
        """Runs that job."""
        options = self.options(**changes)
        run_job(options)
        return open_dataset(options.output)

    def argv(self, *flags: str) -> list[str]:
        """The arguments of the command for that job."""
        return ["--schema", str(self.schema), "--input", str(self.raw), "--output", str(self.output), *flags]

    def append(
        self, *inputs: str, report: Callable[[Sequence[str]], None] = lambda lines: None, **changes: Any
    ) -> AppendOutcome:
        return run_append(AppendOptions(str(self.output), inputs, **{"quiet": True, **changes}), report=report)

    def correct(
        self, dataset: OpenDataset, fix: Callable[[Reject], str | None] = text_of, name: str = "corrected.jsonl"
    ) -> str:
        """Writes the dataset's rejects, corrected by `fix`, without those for which it returns None."""
        lines = []
        for reject in rejects_of(dataset):
            row = json.loads(reject.to_json())
            text = fix(reject)
            if text is not None:
                row.pop("raw_base64", None)
                lines.append(json.dumps(row | {"raw": text}, ensure_ascii=False))
        return self.write(name, lines)

    def replay(self, *files: str, beam_args: tuple[str, ...] = ()) -> AppendOutcome:
        return run_append(AppendOptions(str(self.output), replay=files, quiet=True, beam_args=beam_args))

    def failed_rejects(self) -> list[Reject]:
        """Those that failed jobs have kept."""
        paths = sorted((self.output / layout.FAILED).glob("*/rejects-*.jsonl"))
        return [reject for path in paths for reject in read_rejects(path.read_bytes())]


def folder_of_people(path: Path, schema: str) -> Folder:
    """A folder with a schema and 500 valid rows."""
    folder = Folder(path)
    folder.schema.write_text(schema)
    folder.raw.write_text(people_csv(500))
    return folder


def write_rejecting(path: Path) -> tuple[Folder, OpenDataset]:
    """Writes the 40 rows to a folder, and their dataset, which rejects the invalid ones."""
    folder = Folder(path)
    dataset = folder.job(FEW, folder.write("rows.csv", [FEW_HEADER, *BAD]))
    assert sorted(r.reason for r in rejects_of(dataset)) == sorted(reason for _, reason in BROKEN.values())
    return folder, dataset


def rejects_of(dataset: OpenDataset) -> list[Reject]:
    names = [name for name in storage.listdir(dataset.run_dir) if name.startswith("rejects-")]
    return [r for name in names for r in read_rejects(storage.read_bytes(storage.join(dataset.run_dir, name)))]


def as_good(reject: Reject) -> str:
    """The valid row for an invalid one."""
    return next(FEW_ROWS[i] for i, (bad, _) in BROKEN.items() if bad == reject.raw.decode())


def contents(dataset: OpenDataset) -> dict[str, collections.Counter[bytes]]:
    return {split: records(dataset, split) for split in dataset.splits}


def accounts_hold(dataset: OpenDataset) -> None:
    """Asserts that the manifest agrees with itself, with every shard's records and with the rejects files."""
    assert verify_dataset(dataset.path) == []
    manifest = dataset.manifest
    assert manifest.read == manifest.written + manifest.rejected
    for file in manifest.inputs:
        counts = [c for c in manifest.counts if c.input == file.path]
        assert file.written == sum(c.rows for c in counts if c.outcome == "written")
        assert file.rejected == sum(c.rows for c in counts if c.outcome == "rejected")
    assert len(rejects_of(dataset)) == manifest.rejected


def copied(built: Path, to: Path) -> Folder:
    """A copy of a folder of days whose dataset names its own files."""
    shutil.copytree(built, to, dirs_exist_ok=True)
    manifest = to / "out" / layout.MANIFEST
    manifest.write_text(manifest.read_text().replace(str(built), str(to)))
    return Folder(to)


def ids(dataset: OpenDataset, key: str = "id") -> dict[str, list[str]]:
    """The ids of each split's records, sorted."""
    return {split: sorted(record[key][0].decode() for record in examples(dataset, split)) for split in dataset.splits}


def raw_ids(*paths: str) -> list[str]:
    """The ids in raw files, by pandas, sorted."""
    return sorted(pd.concat([pd.read_csv(path, dtype=str) for path in paths])["id"])


def assert_holds(dataset: OpenDataset, *paths: str) -> None:
    """Asserts that a dataset is valid, and holds each row of these files exactly once."""
    assert verify_dataset(dataset.path) == []
    ids_by_split = ids(dataset)
    assert sorted(i for split_ids in ids_by_split.values() for i in split_ids) == raw_ids(*paths)
    assert {split: len(split_ids) for split, split_ids in ids_by_split.items()} == {
        s: dataset.rows(s) for s in dataset.splits
    }
    manifest = dataset.manifest
    assert collections.Counter(file.path for file in manifest.inputs) == collections.Counter(paths)
    assert (manifest.read, manifest.rejected) == (manifest.written, 0)


@dataclasses.dataclass(frozen=True)
class Submitting:
    """A folder, local or in a bucket, with raw rows, jobs on them that outlive their launcher, and `millrace job`."""

    folder: Path
    place: str
    runner: str
    beam_args: tuple[str, ...]

    @property
    def output(self) -> str:
        return f"{self.place}/out"

    def preprocess(self, *flags: str) -> Ended:
        """A job on the runner, to its commit or with --no_wait to its submission."""
        return ended(preprocess.main, [*self.argv(*flags), "--runner", self.runner, *self.beam_args])

    def locally(self, *flags: str) -> Ended:
        """The same in this process."""
        return ended(preprocess.main, self.argv(*flags))

    def job(self, what: str, *flags: str) -> Ended:
        """`millrace job`."""
        return ended(job.main, [what, "--output", self.output, *flags])

    def argv(self, *flags: str) -> list[str]:
        schema, raw = str(self.folder / "schema.yaml"), f"{self.place}/people.csv"
        job_flags = [*flags, "--quiet"]
        own = [] if "--output" in flags else ["--output", self.output]
        return ["--schema", schema, "--input", raw, *own, "--max_reject_fraction", "0.5", *job_flags]

    def assert_as_locally(self, dataset: OpenDataset) -> None:
        """Asserts that the same job in this process writes the same records, and the same accounts of them."""
        here = str(self.folder / "here")
        assert self.locally("--output", here).code == 0
        same = open_dataset(here)
        assert {s: records(dataset, s) for s in same.splits} == {s: records(same, s) for s in same.splits}
        for field in ("read", "written", "rejected", "inputs", "counts", "warnings", "classes"):
            assert getattr(dataset.manifest, field) == getattr(same.manifest, field)

    def wait(self) -> Ended:
        """Waits until the job on the cluster has given its lease back; returns what `millrace job status` says."""
        until(lambda: self.holder() is None, "the job commits, or refuses to")
        return self.job("status", "--json")

    def holder(self) -> holders.AnyHolder | None:
        return lease.holder_of(self.output)

    @property
    def is_held_remotely(self) -> bool:
        return isinstance(self.holder(), RemoteHolder)

    @property
    def is_submitted(self) -> bool:
        """Whether the runner has accepted the job, which has an id since then."""
        holder = self.holder()
        return isinstance(holder, RemoteHolder) and bool(holder.job.id)


def raw_rows(folder: Path) -> bytes:
    """Writes the schema; returns the bytes of a file of 300 valid rows and 3 that are rejected."""
    (folder / "schema.yaml").write_text(LEAN_SCHEMA)
    return (people_csv(300) + "too,few\n" * 3).encode()
