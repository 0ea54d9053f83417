"""Random schemas and random CSV files through the real job; what it writes is held to the oracle."""

from __future__ import annotations

import dataclasses
import random
import shutil
from pathlib import Path

from tools.attack import read_back
from tools.attack.children import Ask, Children
from tools.attack.csv_bytes import csv_file, draw_shape
from tools.attack.oracle_dataset import Differences, check_dataset
from tools.attack.oracle_rows import Expected, Judge
from tools.attack.plans import Plan, draw_plan
from tools.attack.tally import Tally

KIND = "fuzz"


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Files of one schema, and what is to become of their records."""

    plan: Plan
    schema: Path
    paths: tuple[Path, ...]
    orders: tuple[tuple[str, ...], ...]
    data: tuple[bytes, ...]

    def expected(self, *, prediction: bool = False) -> list[Expected]:
        """What the oracle says of every record."""
        judge = Judge(self.plan, prediction=prediction)
        files = zip(self.paths, self.data, self.orders, strict=True)
        return [e for path, data, order in files for e in judge.file(str(path), data, order)]


def write_inputs(draw: random.Random, plan: Plan, folder: Path, *, big: bool) -> Inputs:
    """Draws files and writes them with their schema. The first is large and so tidy that most of it is written."""
    folder.mkdir(parents=True)
    schema = folder / "schema.yaml"
    schema.write_text(plan.schema())
    paths, orders, contents = [], [], []
    first = 0
    for i in range(draw.randint(1, 6)):
        rows = draw.randint(400, 1500) if i == 0 else draw.choice([0, 1, 5, 100, 800])
        if big and i == 0:
            rows = draw.randint(12_000, 30_000)
        shape = draw_shape(draw, plan, rows=rows)
        if i == 0:
            shape = dataclasses.replace(shape, odd_cells=min(shape.odd_cells, 0.05), random_bytes=False)
        if not rows:
            data, order = b"", plan.columns
            if plan.csv["header"] == "auto":
                continue
        else:
            data, order = csv_file(draw, plan, shape, first=first)
        first += rows
        path = folder / f"part-{i}.csv"
        path.write_bytes(data)
        paths.append(path)
        orders.append(order)
        contents.append(data)
    return Inputs(plan, schema, tuple(paths), tuple(orders), tuple(contents))


def job(draw: random.Random, inputs: Inputs, output: Path, *more: str) -> Ask:
    """A job over the files, cut and written in a random way."""
    argv = ["--schema", str(inputs.schema), "--input", *map(str, inputs.paths), "--output", str(output), "--quiet"]
    argv += ["--max_reject_fraction", "1", "--range_mb", f"{draw.choice([0.02, 0.05, 0.3, 1, 8]):g}"]
    argv += ["--num_shards", str(draw.randint(1, 9)), "--seed", str(draw.randrange(100))]
    if draw.random() < 0.3:
        argv += ["--compression", "gzip"]
    return Ask("beam_jobs.preprocess", (*argv, *more))


def judge_output(inputs: Inputs, output: Path) -> Differences:
    """What differs between a committed dataset and its input."""
    told = read_back.manifest(output)
    lines = read_back.rejects(list((output / told["run"]).glob("rejects-*.jsonl")))
    return check_dataset(inputs.plan, inputs.expected(), told, read_back.stored(output, told), lines)


def round_(draw: random.Random, children: Children, folder: Path, tally: Tally, *, seed: str) -> None:
    """One schema, some files, one job, everything compared."""
    inputs = write_inputs(draw, draw_plan(draw), folder / "in", big=draw.random() < 0.5)
    output = folder / "out"
    ask = job(draw, inputs, output)
    answer = children.run(ask)[0]
    tally.count(KIND, "jobs")
    tally.count(KIND, "files", len(inputs.paths))
    tally.count(KIND, "bytes", sum(map(len, inputs.data)))
    told = {"seed": seed, "command": ask.command, "output": answer.output}
    if answer.crashed:
        tally.fault(KIND, "the job crashed", answer.output[-1500:], keep=folder, **told)
        return
    if answer.status:
        refused(inputs, answer.output, tally, folder, told)
        return
    differences = judge_output(inputs, output)
    manifest = read_back.manifest(output)
    tally.count(KIND, "records", manifest["read"])
    tally.count(KIND, "records rejected", manifest["rejected"])
    for title, examples in differences.examples.items():
        detail = f"{differences.counts[title]} times: " + "; ".join(examples)
        tally.fault(KIND, title, detail, keep=folder, **told)
    verified = children.one("schemas.dataset", "verify", str(output))
    if verified.status:
        tally.fault(KIND, "verify does not say whole", verified.output[-1500:], keep=folder, **told)


def refused(inputs: Inputs, output: str, tally: Tally, folder: Path, told: dict[str, str]) -> None:
    """A job may fail where a split is empty, or where nothing can be learnt; then it commits nothing."""
    allowed = ("split" in output and ("empty" in output or "no row" in output)) or "nothing to" in output
    if (folder / "out" / "manifest.json").exists():
        tally.fault(KIND, "a failed job has committed", output[-1500:], keep=folder, **told)
    elif not allowed:
        title = "the job failed"
        tally.fault(KIND, title, output[-1500:], keep=folder, **told)
    tally.count(KIND, "jobs that failed as they should" if allowed else "jobs that failed")
    shutil.rmtree(folder / "out", ignore_errors=True)
