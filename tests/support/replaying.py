"""Rows of which some are rejected, their corrections, and a folder to run jobs and replays in."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from beam_jobs.core.options import AppendOptions, ReplayOptions
from beam_jobs.runs.append import Outcome as Appended
from beam_jobs.runs.append import run_append
from beam_jobs.runs.replay import Outcome, run_replay
from schemas import storage
from schemas.dataset import Dataset, open_dataset
from schemas.dataset.verify import verify_dataset
from schemas.rejects import Reject, read_rejects
from tests.support.jobs import written
from tests.support.written_records import records

SCHEMA = """\
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
ROWS = [f'k{i},{20 + i % 7},"{"abc"[i % 3]}, Köln",{["no", "yes"][i % 2]}' for i in range(40)]
# Invalid rows by index, and the reason of their rejects.
BROKEN = {
    3: ('k3,old,"a, Köln",yes', "not_a_number"),
    8: ('k8,21,"c, Köln', "unterminated_quote"),
    15: ('k15,21,"a, Köln"', "too_few_columns"),
    22: ('k22,?,"b, Köln",no', "missing_value"),
}
BAD = [BROKEN[i][0] if i in BROKEN else row for i, row in enumerate(ROWS)]
HEADER = "id,age,city,y"


def text_of(reject: Reject) -> str:
    """The reject's raw bytes as text: the record as it is, where the file behind it was mended."""
    return reject.raw.decode()


@dataclasses.dataclass(frozen=True)
class Folder:
    """A test's folder: raw files, the job on them, what is added to it, its corrected rejects, and the replay."""

    path: Path

    @property
    def output(self) -> str:
        return str(self.path / "out")

    def write(self, name: str, lines: Iterable[str], *, encoding: str = "utf-8", end: str = "\n") -> str:
        data = (end.join(lines) + end).encode(encoding)
        (self.path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(self.path / name)

    def job(self, schema: str, *inputs: str, **changes: Any) -> Dataset:
        return written(self.path, schema, *inputs, **changes)

    @property
    def dataset(self) -> Dataset:
        return open_dataset(self.output)

    def append(
        self, *inputs: str, report: Callable[[Sequence[str]], None] = lambda lines: None, **changes: Any
    ) -> Appended:
        return run_append(AppendOptions(self.output, inputs, **{"quiet": True, **changes}), report=report)

    def correct(
        self, dataset: Dataset, fix: Callable[[Reject], str | None] = text_of, name: str = "corrected.jsonl"
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

    def replay(self, *files: str, beam_args: tuple[str, ...] = ()) -> Outcome:
        return run_replay(ReplayOptions(files, self.output, quiet=True, beam_args=beam_args))


def write_rejecting(path: Path) -> tuple[Folder, Dataset]:
    """Writes the 40 rows to a folder, and their dataset, which rejects the invalid ones."""
    folder = Folder(path)
    dataset = folder.job(SCHEMA, folder.write("rows.csv", [HEADER, *BAD]))
    assert sorted(r.reason for r in rejects_of(dataset)) == sorted(reason for _, reason in BROKEN.values())
    return folder, dataset


def rejects_of(dataset: Dataset) -> list[Reject]:
    names = [name for name in storage.listdir(dataset.run_dir) if name.startswith("rejects-")]
    return [r for name in names for r in read_rejects(storage.read_bytes(storage.join(dataset.run_dir, name)))]


def as_good(reject: Reject) -> str:
    """The valid row for an invalid one."""
    return next(ROWS[i] for i, (bad, _) in BROKEN.items() if bad == reject.raw.decode())


def contents(dataset: Dataset) -> dict[str, collections.Counter[bytes]]:
    return {split: records(dataset, split) for split in dataset.splits}


def accounts_hold(dataset: Dataset) -> None:
    """Asserts that the manifest agrees with itself, with every shard's records and with the rejects files."""
    assert verify_dataset(dataset.path) == []
    manifest = dataset.manifest
    assert manifest.read == manifest.written + manifest.rejected
    for file in manifest.inputs:
        counts = [c for c in manifest.counts if c.input == file.path]
        assert file.written == sum(c.rows for c in counts if c.outcome == "written")
        assert file.rejected == sum(c.rows for c in counts if c.outcome == "rejected")
    assert len(rejects_of(dataset)) == manifest.rejected
