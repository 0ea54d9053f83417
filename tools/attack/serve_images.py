"""Image files, whole and hurt, to served models and to `trainer.predict`: what the job rejects they must not answer."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.attack import read_back
from tools.attack.asking import WAYS
from tools.attack.children import Ask, Children
from tools.attack.fuzz_images import File, draw_files
from tools.attack.ground import IMAGES, Failed, ground, job_arguments, must
from tools.attack.oracle_served_images import Row, judge_batch, judge_predictions, numbers
from tools.attack.read_back import Rejected
from tools.attack.tally import Tally

KIND = "serve_images"
INPUTS = {"softmax": ("image",), "pairs": ("left", "right")}  # of the grounds' models
SIZES = (0, 1, 2, 2, 3, 17, 64)  # of the batches of a round
SIGNATURES = ("serving_default", "examples:serving_default")
COMMON = (b"\xff\xd8\xff", b"\x89PNG")  # first bytes of the formats that are served on a way of their own


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows, and those of them whose files are all good."""

    rows: tuple[Row, ...]
    good: tuple[Row, ...]


def draw_batches(
    draw: random.Random, files: Sequence[File], rejected: Mapping[str, Rejected], inputs: tuple[str, ...]
) -> list[Batch]:
    """Batches of every size, good and bad files mixed or bad ones only; the good ones of any format, or common ones."""
    bad = [file for file in files if file.path in rejected]
    good = [file for file in files if file.path not in rejected]
    common = [file for file in good if file.content.startswith(COMMON)]
    batches = []
    for size in draw.sample(SIZES, len(SIZES)):
        pool, share = draw.choice([good, common or good]), draw.choice([0.1, 0.5, 0.9, 1.0])
        rows, whole = [], []
        for _ in range(size):
            files_of = {name: draw.choice(pool) for name in inputs}
            hurt = draw.sample(inputs, draw.randint(1, len(inputs))) if bad and draw.random() < share else []
            rows.append(Row({**files_of, **{name: draw.choice(bad) for name in hurt}}))
            whole += [] if hurt else [rows[-1]]
        batches.append(Batch(tuple(rows), tuple(whole)))
    return batches


def draw_list(
    draw: random.Random,
    files: Sequence[File],
    rejected: Mapping[str, Rejected],
    batches: Sequence[Batch],
    inputs: tuple[str, ...],
) -> list[Row]:
    """What `trainer.predict` is given: the pairs of the batches; of images all, or bad ones only, in its order."""
    if len(inputs) > 1:
        return list({row.paths: row for batch in batches for row in batch.rows}.values())
    bad = [file for file in files if file.path in rejected]
    chosen = bad if bad and draw.random() < 0.1 else files
    return [Row({inputs[0]: file}) for file in sorted(chosen, key=lambda file: file.path)]


def request(signature: str, rows: Sequence[Row], inputs: tuple[str, ...]) -> dict[str, Any]:
    """What `asking` is to send."""
    if signature == SIGNATURES[0]:
        return {"signature": signature, "inputs": {n: [_text(row.files[n].content) for row in rows] for n in inputs}}
    return {"signature": signature, "inputs": {"examples": [_text(_example(row)) for row in rows]}}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _example(row: Row) -> bytes:
    from tensorflow.core.example.example_pb2 import Example

    example = Example()
    for name, file in row.files.items():
        example.features.feature[name].bytes_list.value.append(file.content)
    return bytes(example.SerializeToString())


def round_(draw: random.Random, children: Children, folder: Path, tally: Tally, *, seed: str) -> None:
    """Some files to the job, which says which of them are good; then to an exported model, in both ways."""
    kind = draw.choice(list(INPUTS))
    base = ground(kind, children, folder.parent / "ground")
    if base.saved_model is None:
        raise Failed("a training has exported nothing")
    files = draw_files(draw, folder / "in")
    rejected = rejected_by_the_job(children, folder, files)
    tally.count(KIND, "files", len(files))
    tally.count(KIND, "files that the job rejects", len(rejected))
    batches = draw_batches(draw, files, rejected, INPUTS[kind])
    listed = draw_list(draw, files, rejected, batches, INPUTS[kind])
    way = draw.choice(WAYS)
    asked, answered = folder / "asked.json", folder / "answered.json"
    asked.write_text(json.dumps(requests(draw, batches, INPUTS[kind])))
    asks = (
        Ask("tools.attack.asking", (str(base.saved_model), way, str(asked), str(answered))),
        Ask("trainer.predict", predicting(draw, folder, base.saved_model, listed)),
    )
    answer, predicted = children.run(*asks)
    found: dict[str, list[str]] = {}
    served: dict[tuple[str, ...], list[float]] = {}
    if answer.status:
        found["a request fails as a whole"] = [f"{way}: {answer.output[-1500:]}"]
    else:
        served = judge_answers(batches, json.loads(answered.read_text()), rejected, found, tally)
    if predicted.status:
        found["predict failed"] = [predicted.output[-1500:]]
    else:
        judge_predictions(listed, folder, classes(base.saved_model), rejected, served, found=found)
        tally.count(KIND, "images or pairs to predict", len(listed))
    told = {"seed": seed, "model": kind, "way": way, "command": asks[1].command, "output": predicted.output}
    for title, details in found.items():
        detail = f"{kind}: {len(details)} times: {'; '.join(details[:3])}"
        tally.fault(KIND, title, detail, keep=folder, **told)


def rejected_by_the_job(children: Children, folder: Path, files: Sequence[File]) -> dict[str, Rejected]:
    """What a job over the files rejects, by path."""
    schema, output = folder / "schema.yaml", folder / "data"
    schema.write_text(json.dumps(IMAGES))
    must(children.one("beam_jobs.preprocess", *job_arguments(schema, (f"{folder}/in/*/*",), output)), "a job")
    run = output / read_back.manifest(output)["run"]
    return {reject.source: reject for reject in read_back.rejects(list(run.glob("rejects-*.jsonl")))}


def requests(draw: random.Random, batches: Sequence[Batch], inputs: tuple[str, ...]) -> list[dict[str, Any]]:
    """Three of each batch: its rows by both signatures, and the good ones by either."""
    ways = [(way, batch.rows) for batch in batches for way in SIGNATURES]
    asked = [request(signature, rows, inputs) for signature, rows in ways]
    good = [request(draw.choice(SIGNATURES), batch.good, inputs) for batch in batches]
    return [one for three in zip(asked[::2], asked[1::2], good, strict=True) for one in three]


def judge_answers(
    batches: Sequence[Batch],
    answers: Sequence[dict[str, Any]],
    rejected: Mapping[str, Rejected],
    found: dict[str, list[str]],
    tally: Tally,
) -> dict[tuple[str, ...], list[float]]:
    """Holds the answers to what the job says, and gives the probabilities of what was answered, by paths."""
    served = {}
    for batch, answer, other, good in zip(batches, answers[::3], answers[1::3], answers[2::3], strict=True):
        judge_batch(batch.rows, rejected, answer, other, good, found=found)
        bad = sum(bool(row.wrong(rejected)) for row in batch.rows)
        tally.count(KIND, "requests", 3)
        tally.count(KIND, "requests of bad images only", 2 * (0 < len(batch.rows) == bad))
        tally.count(KIND, "images or pairs in requests", 2 * len(batch.rows) + len(batch.good))
        tally.count(KIND, "images or pairs in requests, bad", 2 * bad)
        for place, row in enumerate(batch.rows):
            served[row.paths] = numbers(answer, "probabilities", place)
    return served


def predicting(draw: random.Random, folder: Path, saved_model: Path, listed: Sequence[Row]) -> tuple[str, ...]:
    """The arguments of `trainer.predict` on images, or on a list of pairs that is written for it."""
    if len(listed[0].files) == 1:
        inputs = tuple(row.paths[0] for row in draw.sample(listed, len(listed)))  # it sorts them, as the job does
    else:
        lines = [",".join(str(Path(path).relative_to(folder)) for path in row.paths) for row in listed]
        (folder / "pairs.csv").write_text("\n".join(["left,right", *lines]) + "\n")
        inputs = (f"{folder}/pairs.csv",)
    argv = ("--saved_model", str(saved_model), "--input", *inputs, "--output", f"{folder}/predictions.jsonl")
    more = ("--batch_size", str(draw.choice([1, 2, 7, 64, 64])), "--signature", draw.choice(["predict", "examples"]))
    return (*argv, *more, "--max_reject_fraction", "1", *draw.choice([(), ("--quiet",)]))


def classes(saved_model: Path) -> list[str]:
    """The names of an export's classes, in the order of their ids."""
    return list(json.loads((saved_model / "assets.extra" / "millrace.json").read_text())["classes"])
