"""Image files, whole and hurt, to served models and to `trainer.predict`: what the job rejects they must not answer."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.attack import oracle_dataset
from tools.attack.answers import WAYS, Outputs, answered, asked, judge_batch, numbers, text
from tools.attack.fuzz_images import File, draw_files, job
from tools.attack.ground import PREDICT, Ask, Failed, must, predict_arguments
from tools.attack.oracle_dataset import Found, Rejected
from tools.attack.rounds import Round

INPUTS = {"softmax": ("image",), "pairs": ("left", "right")}  # of the grounds' models
SIZES = (0, 1, 2, 2, 3, 17, 64)  # of the batches of a round
SIGNATURES = ("serving_default", "examples:serving_default")
COMMON = (b"\xff\xd8\xff", b"\x89PNG")  # first bytes of the formats that are served on a way of their own
NEAR = 1e-4  # relative and, a tenth of it, absolute: what probabilities may differ in batches of other sizes


@dataclasses.dataclass(frozen=True)
class Row:
    """What one answer is about: a file for each input; and of those that the job rejects, its rejects."""

    files: Mapping[str, File]
    wrong: Mapping[str, Rejected]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files' paths, in the order of the inputs."""
        return tuple(file.path for file in self.files.values())

    def __str__(self) -> str:
        return " and ".join(f"{name} {file.path} ({file.done})" for name, file in self.files.items())


def row(files: Mapping[str, File], rejected: Mapping[str, Rejected]) -> Row:
    """A row, given what the job rejects by path."""
    return Row(files, {name: rejected[file.path] for name, file in files.items() if file.path in rejected})


def good(rows: Sequence[Row]) -> list[Row]:
    """Those whose files are all good."""
    return [each for each in rows if not each.wrong]


def draw_batches(
    draw: random.Random, files: Sequence[File], rejected: Mapping[str, Rejected], inputs: tuple[str, ...]
) -> list[list[Row]]:
    """Batches of every size, good and bad files mixed or bad ones only; the good ones of any format, or common ones."""
    bad = [file for file in files if file.path in rejected]
    whole = [file for file in files if file.path not in rejected]
    common = [file for file in whole if file.content.startswith(COMMON)]
    batches = []
    for size in draw.sample(SIZES, len(SIZES)):
        pool, share = draw.choice([whole, common or whole]), draw.choice([0.1, 0.5, 0.9, 1.0])
        rows = []
        for _ in range(size):
            files_of = {name: draw.choice(pool) for name in inputs}
            hurt = draw.sample(inputs, draw.randint(1, len(inputs))) if bad and draw.random() < share else []
            rows.append(row({**files_of, **{name: draw.choice(bad) for name in hurt}}, rejected))
        batches.append(rows)
    return batches


def draw_list(
    draw: random.Random,
    files: Sequence[File],
    rejected: Mapping[str, Rejected],
    batches: Sequence[Sequence[Row]],
    inputs: tuple[str, ...],
) -> list[Row]:
    """What `trainer.predict` is given: the pairs of the batches; of images all, or bad ones only, in its order."""
    if len(inputs) > 1:
        return list({each.paths: each for batch in batches for each in batch}.values())
    bad = [file for file in files if file.path in rejected]
    chosen = bad if bad and draw.random() < 0.1 else files
    return [row({inputs[0]: file}, rejected) for file in sorted(chosen, key=lambda file: file.path)]


def request(signature: str, rows: Sequence[Row], inputs: tuple[str, ...]) -> dict[str, Any]:
    """A request, as `answers.main` takes it."""
    if signature == SIGNATURES[0]:
        sent = {n: [text(each.files[n].content) for each in rows] for n in inputs}
    else:
        sent = {"examples": [text(_example(each)) for each in rows]}
    return {"signature": signature, "inputs": sent}


def _example(row: Row) -> bytes:
    from tensorflow.core.example.example_pb2 import Example

    example = Example()
    for name, file in row.files.items():
        example.features.feature[name].bytes_list.value.append(file.content)
    return bytes(example.SerializeToString())


def play(now: Round) -> None:
    """Some files to the job, which says which of them are good; then to an exported model, in both ways."""
    draw, folder = now.draw, now.folder
    kind = draw.choice(list(INPUTS))
    saved_model = now.ground(kind).saved_model
    if saved_model is None:
        raise Failed("a training has exported nothing")
    files = draw_files(draw, folder / "in")
    must(now.run(job(folder, folder / "data"))[0], "a job")
    rejected = {
        reject.source: reject for reject in oracle_dataset.rejects(*oracle_dataset.reject_files(folder / "data"))
    }
    now.count("files", len(files))
    now.count("files that the job rejects", len(rejected))
    batches = draw_batches(draw, files, rejected, INPUTS[kind])
    listed = draw_list(draw, files, rejected, batches, INPUTS[kind])
    asking = asked(folder, saved_model, draw.choice(WAYS), requests(draw, batches, INPUTS[kind]))
    predicted, answer = now.run(Ask(PREDICT, predicting(draw, folder, saved_model, listed)), asking)
    served: dict[tuple[str, ...], list[float]] = {}
    if answer.status:
        now.found.add("a request fails as a whole", answer.output[-1500:])
    else:
        served = judge_answers(batches, answered(folder), now)
    if predicted.status:
        now.found.add("predict failed", predicted.output[-1500:])
    else:
        notes = json.loads((saved_model / "assets.extra" / "millrace.json").read_text())
        judge_predictions(listed, folder, notes["classes"], served, now.found)
        now.count("images or pairs to predict", len(listed))


def requests(draw: random.Random, batches: Sequence[Sequence[Row]], inputs: tuple[str, ...]) -> list[dict[str, Any]]:
    """Three of each batch: its rows by both signatures, and the good ones by either."""
    return [
        request(signature, rows, inputs)
        for batch in batches
        for signature, rows in (*((each, batch) for each in SIGNATURES), (draw.choice(SIGNATURES), good(batch)))
    ]


def judge_answers(
    batches: Sequence[Sequence[Row]], answers: Sequence[Outputs], now: Round
) -> dict[tuple[str, ...], list[float]]:
    """Holds the answers to what the job says, and gives the probabilities of what was answered, by paths."""
    served = {}
    for batch, answer, other, alone in zip(batches, answers[::3], answers[1::3], answers[2::3], strict=True):
        judge_batch([(each.wrong, str(each)) for each in batch], answer, other, alone, now.found)
        whole = len(good(batch))
        bad = len(batch) - whole
        now.count("requests", 3)
        now.count("requests of bad images only", 2 * (0 < len(batch) == bad))
        now.count("images or pairs in requests", 2 * len(batch) + whole)
        now.count("images or pairs in requests, bad", 2 * bad)
        for place, each in enumerate(batch):
            served[each.paths] = numbers(answer, "probabilities", place)
    return served


def predicting(draw: random.Random, folder: Path, saved_model: Path, listed: Sequence[Row]) -> tuple[str, ...]:
    """The arguments of `trainer.predict` on images, or on a list of pairs that is written for it."""
    if len(listed[0].files) == 1:
        inputs = tuple(each.paths[0] for each in draw.sample(listed, len(listed)))  # it sorts them, as the job does
    else:
        lines = [",".join(str(Path(path).relative_to(folder)) for path in each.paths) for each in listed]
        (folder / "pairs.csv").write_text("\n".join(["left,right", *lines]) + "\n")
        inputs = (f"{folder}/pairs.csv",)
    more = ("--batch_size", str(draw.choice([1, 2, 7, 64, 64])), "--signature", draw.choice(["predict", "examples"]))
    return predict_arguments(saved_model, inputs, folder / "predictions.jsonl", *more, *draw.choice([(), ("--quiet",)]))


def judge_predictions(
    listed: Sequence[Row],
    folder: Path,
    classes: Sequence[str],
    served: Mapping[tuple[str, ...], Sequence[float]],
    found: Found,
) -> None:
    """Holds what `trainer.predict` has written to the job's verdicts, and to the answers of the signatures.

    Args:
      listed: what it was given, in the order of its answers: images, or pairs in `pairs.csv` behind a header.
      folder: where `predictions.jsonl` and its rejects are.
      classes: by id.
      served: the probabilities by class id that a signature gave of the same files, of some of the rows.
      found: where faults are told.
    """
    lines = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().split("\n") if line]
    rejects = list(oracle_dataset.rejects(folder / "predictions.rejects.jsonl"))
    if len(lines) + len(rejects) != len(listed):
        found.add("images are lost or doubled", f"{len(listed)}: {len(lines)} predicted, {len(rejects)} rejected")
    pairs = any(len(each.files) > 1 for each in listed)
    places = {(f"{folder}/pairs.csv", i) if pairs else each.paths[0]: each for i, each in enumerate(listed, start=2)}
    predicted = {(line["source"], line["line"]) if pairs else line["source"]: line for line in lines}
    refused = {(reject.source, reject.offset) if pairs else reject.source: reject for reject in rejects}
    if list(predicted) != [place for place in places if place in predicted]:
        found.add("predictions are in another order than the input", f"{list(predicted)[:5]}")
    for place, each in places.items():
        line, reject = predicted.get(place), refused.get(place)
        if (line is None) == (reject is None):
            found.add("an image is neither predicted nor rejected, or both", str(each))
        elif line is not None and each.wrong:
            found.add("predict takes what the job rejects", f"{each}: {list(each.wrong.values())}")
        elif line is not None:
            given = [line["top_5"].get(name) for name in classes]
            if None in given:
                found.add("a good image is predicted as nothing", str(each))
            elif each.paths in served and not near(given, served[each.paths]):
                found.add("predict answers otherwise than the signatures", f"{each}: {given}, {served[each.paths]}")
        elif reject is not None and not each.wrong:
            found.add("predict rejects what the job takes", f"{each}: {reject}")
        elif reject is not None and not any(same_words(reject, by_job, pairs=pairs) for by_job in each.wrong.values()):
            found.add("predict has another reason than the job", f"{each}: {reject}, {list(each.wrong.values())}")


def same_words(reject: Rejected, by_job: Rejected, *, pairs: bool) -> bool:
    """Whether a reject says what the job's says; that of a pair is about a line."""
    if pairs:
        return (reject.stage, reject.reason) == (by_job.stage, by_job.reason)
    return dataclasses.replace(reject, offset=by_job.offset) == by_job


def near(these: Sequence[float], those: Sequence[float]) -> bool:
    """Whether probabilities are the same but for rounding."""
    return all(math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR / 10) for a, b in zip(these, those, strict=True))
