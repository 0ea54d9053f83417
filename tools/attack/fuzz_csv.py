"""Random schemas and CSV files through the real job and `trainer.predict`; what they write is held to the oracle."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path

from tools.attack import oracle_dataset
from tools.attack.drawn_csv import Plan, csv_file, draw_plan, draw_shape
from tools.attack.ground import JOB, PREDICT, Ask, job_arguments, predict_arguments
from tools.attack.oracle_dataset import Found, check_dataset, check_rejects
from tools.attack.oracle_rows import Expected, Judge
from tools.attack.rounds import Round


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
    told, rejects = oracle_dataset.manifest(output), oracle_dataset.rejects(*oracle_dataset.reject_files(output))
    check_dataset(inputs.plan, inputs.expected(), told, oracle_dataset.stored(output, told), rejects, found)


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
        manifest = oracle_dataset.manifest(output)
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


def play_predictions(now: Round) -> None:
    """Some files, predicted on and given to a job with the same transform."""
    draw = now.draw
    base = now.ground("linear", "dnn")
    plan, saved_model = base.served
    inputs = write_inputs(draw, plan, now.folder / "in", big=draw.random() < 0.1)
    output, data = now.folder / "predictions.jsonl", now.folder / "data"
    size = draw.choice([1, 7, 100, 4096]) if len(inputs.paths) < 2 else 512
    more = ("--quiet", "--batch_size", str(size), *draw.choice([(), ("--signature", "examples")]))
    predicted, written = now.run(
        Ask(PREDICT, predict_arguments(saved_model, inputs.paths, output, *more)),
        Ask(JOB, job_arguments(inputs.schema, inputs.paths, data, "--transform_from", str(base.data))),
    )
    now.count("files", len(inputs.paths))
    if predicted.status:
        now.found.add("predict failed", predicted.output[-1500:])
        return
    judge_lines(inputs, output, now)
    if written.status == 0:
        compare(output, data, now.found)


def judge_lines(inputs: Inputs, output: Path, now: Round) -> None:
    """Each record is a line of predictions or one of rejects, by the oracle."""
    expected, found = inputs.expected(prediction=True), now.found
    gone = check_rejects(expected, oracle_dataset.rejects(output.with_name("predictions.rejects.jsonl")), found)
    lines = [json.loads(line) for line in output.read_text().split("\n") if line]
    wanted = {(e.source, e.offset): e for i, e in enumerate(expected) if i not in gone}
    now.count("rows", len(expected))
    now.count("rows rejected", len(gone))
    if len(lines) != len(wanted) or {(line["source"], line["offset"]) for line in lines} != set(wanted):
        found.add("other rows are predicted than are there", f"{len(lines)} lines, and {len(wanted)} expected")
    for line in lines:
        record = wanted.get((line["source"], line["offset"]))
        if record is None:
            continue
        numbers = [line["value"]] if "value" in line else list(line["probabilities"].values())
        if record.may_write and not record.may_reject and None in numbers:
            found.add("a good row is predicted as nothing", f"{record.raw[:200]!r}")
        if "key" in line and line["key"].encode() != record.values["id"]:
            found.add("a prediction has another key", f"{line['key']!r}: {record.raw[:100]!r}")


def compare(output: Path, data: Path, found: Found) -> None:
    """A row that both reject, they reject alike; a row that the job writes is predicted."""
    by_job, here = (
        {(r.source, r.offset): r for r in oracle_dataset.rejects(*paths)}
        for paths in (oracle_dataset.reject_files(data), [output.with_name("predictions.rejects.jsonl")])
    )
    for place, reject in here.items():
        if place not in by_job:
            found.add("predict rejects what the job writes", f"{place}: {reject.reason}, {reject.column}")
    for place, reject in by_job.items():
        mine = here.get(place)
        if reject.column in ("y", "w"):
            continue
        if mine is None:
            found.add(f"predict takes what the job rejects as {reject.reason}", f"{place}: {reject.raw[:100]!r}")
        elif dataclasses.replace(mine, stage=reject.stage) != reject:
            found.add("predict has another reason than the job", f"{mine} and {reject}")
