"""Random CSV files to `trainer.predict`: each row is predicted, or rejected for the reason that the job has."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from tools.attack import read_back
from tools.attack.children import JOB, PREDICT, Ask
from tools.attack.fuzz_csv import Inputs, write_inputs
from tools.attack.ground import job_arguments, predict_arguments
from tools.attack.oracle_dataset import check_rejects
from tools.attack.rounds import Found, Round


def play(now: Round) -> None:
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
    gone = check_rejects(expected, read_back.rejects(output.with_name("predictions.rejects.jsonl")), found)
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
        {(r.source, r.offset): r for r in read_back.rejects(*paths)}
        for paths in (read_back.reject_files(data), [output.with_name("predictions.rejects.jsonl")])
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
