"""Random CSV files to `trainer.predict`: each row is predicted, or rejected for the reason that the job has."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

from tools.attack import read_back
from tools.attack.children import Ask, Children
from tools.attack.fuzz_csv import Inputs, write_inputs
from tools.attack.ground import Failed, ground, job_arguments
from tools.attack.oracle_dataset import Differences, check_rejects
from tools.attack.tally import Tally

KIND = "predict"


def round_(draw: random.Random, children: Children, folder: Path, tally: Tally, *, seed: str) -> None:
    """Some files, predicted on and given to a job with the same transform."""
    base = ground(draw.choice(["linear", "dnn"]), children, folder.parent / "ground")
    if base.plan is None or base.saved_model is None:
        raise Failed("a training has exported nothing")
    inputs = write_inputs(draw, base.plan, folder / "in", big=draw.random() < 0.1)
    paths = tuple(map(str, inputs.paths))
    output, data = folder / "predictions.jsonl", folder / "data"
    argv: tuple[str, ...] = (
        "--saved_model",
        str(base.saved_model),
        "--input",
        *paths,
        "--output",
        str(output),
        "--quiet",
    )
    more: tuple[str, ...] = (
        "--max_reject_fraction",
        "1",
        "--batch_size",
        str(draw.choice([1, 7, 100, 4096]) if len(paths) < 2 else 512),
    )
    more += draw.choice([(), ("--signature", "examples")])
    job = job_arguments(inputs.schema, paths, data, "--transform_from", str(base.data))
    predicted, written = children.run(Ask("trainer.predict", argv + more), Ask("beam_jobs.preprocess", job))
    told = {"seed": seed, "command": Ask("trainer.predict", argv + more).command, "output": predicted.output}
    tally.count(KIND, "files", len(paths))
    if predicted.status or predicted.crashed:
        tally.fault(KIND, "predict failed", predicted.output[-1500:], keep=folder, **told)
        return
    differences = Differences()
    judge_lines(inputs, output, differences, tally)
    if written.status == 0:
        compare(output, data, differences)
    for title, examples in differences.examples.items():
        detail = f"{differences.counts[title]} times: " + "; ".join(examples)
        tally.fault(KIND, title, detail, keep=folder, **told)


def judge_lines(inputs: Inputs, output: Path, differences: Differences, tally: Tally) -> None:
    """Each record is a line of predictions or one of rejects, by the oracle."""
    expected = inputs.expected(prediction=True)
    rejected = list(read_back.rejects([output.with_name("predictions.rejects.jsonl")]))
    gone = check_rejects(expected, rejected, differences)
    lines = [json.loads(line) for line in output.read_text().split("\n") if line]
    wanted = {(e.source, e.offset): e for i, e in enumerate(expected) if i not in gone}
    tally.count(KIND, "rows", len(expected))
    tally.count(KIND, "rows rejected", len(gone))
    if len(lines) != len(wanted) or {(line["source"], line["offset"]) for line in lines} != set(wanted):
        differences.add("other rows are predicted than are there", f"{len(lines)} lines, and {len(wanted)} expected")
    for line in lines:
        record = wanted.get((line["source"], line["offset"]))
        numbers = [line["value"]] if "value" in line else list(line["probabilities"].values())
        if record is not None and record.may_write and not record.may_reject and None in numbers:
            differences.add("a good row is predicted as nothing", f"{record.raw[:200]!r}")
        if record is not None and "key" in line and line["key"].encode() != record.values["id"]:
            differences.add("a prediction has another key", f"{line['key']!r}: {record.raw[:100]!r}")


def compare(output: Path, data: Path, differences: Differences) -> None:
    """A row that both reject, they reject alike; a row that the job writes is predicted."""
    manifest = read_back.manifest(data)
    by_job = {
        (r.source, r.offset): r for r in read_back.rejects(list((data / manifest["run"]).glob("rejects-*.jsonl")))
    }
    here = {(r.source, r.offset): r for r in read_back.rejects([output.with_name("predictions.rejects.jsonl")])}
    for place, reject in here.items():
        if place not in by_job:
            differences.add("predict rejects what the job writes", f"{place}: {reject.reason}, {reject.column}")
    for place, reject in by_job.items():
        mine = here.get(place)
        if reject.column in ("y", "w"):
            continue
        if mine is None:
            differences.add(f"predict takes what the job rejects as {reject.reason}", f"{place}: {reject.raw[:100]!r}")
        elif dataclasses.replace(mine, stage=reject.stage) != reject:
            differences.add("predict has another reason than the job", f"{mine} and {reject}")
