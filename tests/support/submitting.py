"""Submits small jobs to a runner that goes on without their launcher, and runs the command that takes them up."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
from pathlib import Path
from typing import Any

from beam_jobs import job, preprocess
from schemas.dataset import Dataset, holders, lease, open_dataset
from schemas.dataset.holders import RemoteHolder
from tests.support.people import LEAN_SCHEMA, people_csv
from tests.support.written_records import records

BAD = "too,few\n" * 3


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@dataclasses.dataclass(frozen=True)
class Submitting:
    """A folder, local or in a bucket, with raw rows, and the runner's options."""

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
        given = [*flags, "--quiet"]
        own = [] if "--output" in flags else ["--output", self.output]
        return ["--schema", schema, "--input", raw, *own, "--max_reject_fraction", "0.5", *given]

    def assert_as_locally(self, dataset: Dataset) -> None:
        """Asserts that the same job in this process writes the same records, and the same accounts of them."""
        here = str(self.folder / "here")
        assert self.locally("--output", here).code == 0
        same = open_dataset(here)
        assert {s: records(dataset, s) for s in same.splits} == {s: records(same, s) for s in same.splits}
        for field in ("read", "written", "rejected", "inputs", "counts", "warnings", "classes"):
            assert getattr(dataset.manifest, field) == getattr(same.manifest, field)

    def holder(self) -> holders.AnyHolder | None:
        return lease.holder_of(self.output)

    @property
    def is_held_remotely(self) -> bool:
        return isinstance(self.holder(), RemoteHolder)


def raw_rows(folder: Path) -> bytes:
    """Writes the schema; returns the bytes of a file of 300 valid rows and 3 that are rejected."""
    (folder / "schema.yaml").write_text(LEAN_SCHEMA)
    return (people_csv(300) + BAD).encode()


def ended(main: Any, argv: list[str]) -> Ended:
    """Runs a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(argv)
    return Ended(code, out.getvalue(), err.getvalue())
