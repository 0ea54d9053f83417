"""Random schemas and random CSV files through the real job; what it writes is held to the oracle."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path

from tools.attack import read_back
from tools.attack.children import JOB, Ask
from tools.attack.csv_bytes import csv_file, draw_shape
from tools.attack.ground import job_arguments
from tools.attack.oracle_dataset import check_dataset
from tools.attack.oracle_rows import Expected, Judge
from tools.attack.plans import Plan, draw_plan
from tools.attack.rounds import Found, Round


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Files of one schema with their columns, and what is to become of their records."""

    plan: Plan
    schema: Path
    files: tuple[tuple[Path, tuple[str, ...]], ...]

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(str(path) for path, _ in self.files)

    def expected(self, *, prediction: bool = False) -> list[Expected]:
        """What the oracle says of every record."""
        judge = Judge(self.plan, prediction=prediction)
        return [e for path, order in self.files for e in judge.file(str(path), path.read_bytes(), order)]


def write_inputs(draw: random.Random, plan: Plan, folder: Path, *, big: bool) -> Inputs:
    """Draws files and writes them with their schema. The first is large and so tidy that most of it is written."""
    folder.mkdir(parents=True)
    schema = folder / "schema.yaml"
    schema.write_text(plan.schema())
    files = []
    first = 0
    for i in range(draw.randint(1, 6)):
        rows = draw.randint(400, 1500) if i == 0 else draw.choice([0, 1, 5, 100, 800])
        if big and i == 0:
            rows = draw.randint(12_000, 30_000)
        shape = draw_shape(draw, plan, rows=rows)
        if i == 0:
            shape = dataclasses.replace(shape, odd_cells=min(shape.odd_cells, 0.05), random_bytes=False)
        if not rows and plan.csv["header"] == "auto":
            continue
        data, order = csv_file(draw, plan, shape, first=first) if rows else (b"", plan.columns)
        first += rows
        path = folder / f"part-{i}.csv"
        path.write_bytes(data)
        files.append((path, order))
    return Inputs(plan, schema, tuple(files))


def job(draw: random.Random, inputs: Inputs, output: Path) -> Ask:
    """A job over the files, cut and written in a random way."""
    more = ["--range_mb", f"{draw.choice([0.02, 0.05, 0.3, 1, 8]):g}"]
    more += ["--num_shards", str(draw.randint(1, 9)), "--seed", str(draw.randrange(100))]
    if draw.random() < 0.3:
        more += ["--compression", "gzip"]
    return Ask(JOB, job_arguments(inputs.schema, inputs.paths, output, *more))


def judge_output(inputs: Inputs, output: Path, found: Found) -> None:
    """Holds a committed dataset to its input."""
    told, rejects = read_back.manifest(output), read_back.rejects(*read_back.reject_files(output))
    check_dataset(inputs.plan, inputs.expected(), told, read_back.stored(output, told), rejects, found)


def play(now: Round) -> None:
    """One schema, some files, one job, everything compared."""
    draw, output = now.draw, now.folder / "out"
    inputs = write_inputs(draw, draw_plan(draw), now.folder / "in", big=draw.random() < 0.5)
    (answer,) = now.run(job(draw, inputs, output))
    now.count("jobs")
    now.count("files", len(inputs.files))
    now.count("bytes", sum(path.stat().st_size for path, _ in inputs.files))
    if answer.crashed:
        now.found.add("the job crashed", answer.output[-1500:])
    elif answer.status:
        refused(now, answer.output)
    else:
        judge_output(inputs, output, now.found)
        manifest = read_back.manifest(output)
        now.count("records", manifest["read"])
        now.count("records rejected", manifest["rejected"])
        now.verify(output)


def refused(now: Round, output: str) -> None:
    """A job may fail where a split is empty, or where nothing can be learnt; then it commits nothing."""
    allowed = ("split" in output and ("empty" in output or "no row" in output)) or "nothing to" in output
    if (now.folder / "out" / "manifest.json").exists():
        now.found.add("a failed job has committed", output[-1500:])
    elif not allowed:
        now.found.add("the job failed", output[-1500:])
    now.count("jobs that failed as they should" if allowed else "jobs that failed")
    shutil.rmtree(now.folder / "out", ignore_errors=True)
