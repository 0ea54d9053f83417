"""What served models may answer to images, given which files the job rejects."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.attack import read_back
from tools.attack.fuzz_images import File
from tools.attack.read_back import Rejected
from tools.attack.serve import at, error_of, made_up, not_answered

NEAR = 1e-4  # relative and, a tenth of it, absolute: what probabilities may differ in batches of other sizes

Found = dict[str, list[str]]  # details of faults, by title


@dataclasses.dataclass(frozen=True)
class Row:
    """What one answer is about: a file for each input."""

    files: Mapping[str, File]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files' paths, in the order of the inputs."""
        return tuple(file.path for file in self.files.values())

    def wrong(self, rejected: Mapping[str, Rejected]) -> dict[str, Rejected]:
        """The inputs whose files the job rejects, and its rejects."""
        return {name: rejected[file.path] for name, file in self.files.items() if file.path in rejected}

    def __str__(self) -> str:
        return " and ".join(f"{name} {file.path} ({file.done})" for name, file in self.files.items())


def judge_batch(
    rows: Sequence[Row],
    rejected: Mapping[str, Rejected],
    answer: dict[str, Any],
    other: dict[str, Any],
    good: dict[str, Any],
    *,
    found: Found,
) -> None:
    """Holds the answers to a batch to the job's verdicts.

    Args:
      rows: the batch.
      rejected: what the job rejects, by path.
      answer: the outputs of one signature.
      other: those of another one, for the same rows.
      good: those for the rows of good files alone, in their order: nothing else reaches the model.
      found: where faults are told.
    """
    alone = {place: i for i, place in enumerate(p for p, row in enumerate(rows) if not row.wrong(rejected))}
    for outputs, size in ((answer, len(rows)), (other, len(rows)), (good, len(alone))):
        if any(len(at_all(value)) != size for value in outputs.values()):
            tell(found, "answers are lost or made up", f"{size} rows, {_sizes(outputs)}")
            return
    if not answer.keys() == other.keys() == good.keys():
        tell(found, "outputs differ", f"{sorted(answer)}, {sorted(other)} and {sorted(good)}")
        return
    for place, row in enumerate(rows):
        where = f"{place} of {len(rows)}, {row}"
        wrong, error = row.wrong(rejected), error_of(answer, place)
        if any(at(answer, name, place) != at(other, name, place) for name in answer):
            tell(found, "the signatures differ", where)
        if wrong:
            reasons = ", ".join(reject.reason for reject in wrong.values())
            if not error:
                tell(found, "no error for a bad image", f"{where}: {reasons}")
            elif error.partition(": ")[0] not in wrong:
                tell(found, "an error names another input", f"{where}: {error}")
            for title, what in made_up(answer, place):
                tell(found, title, f"{where}: {what}")
            continue
        if error:
            tell(found, "a good image has an error", f"{where}: {error}")
        if not_answered(answer, place):
            tell(found, "a good image is not answered", where)
        if any(at(answer, name, place) != at(good, name, alone[place]) for name in answer):
            tell(found, "a neighbour's bits change", where)


def judge_predictions(
    listed: Sequence[Row],
    folder: Path,
    classes: Sequence[str],
    rejected: Mapping[str, Rejected],
    served: Mapping[tuple[str, ...], Sequence[float]],
    *,
    found: Found,
) -> None:
    """Holds what `trainer.predict` has written to the job's verdicts, and to the answers of the signatures.

    Args:
      listed: what it was given, in the order of its answers: images, or pairs in `pairs.csv` behind a header.
      folder: where `predictions.jsonl` and its rejects are.
      classes: by id.
      rejected: what the job rejects, by path.
      served: the probabilities by class id that a signature gave of the same files, of some of the rows.
      found: where faults are told.
    """
    lines = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().split("\n") if line]
    rejects = list(read_back.rejects([folder / "predictions.rejects.jsonl"]))
    if len(lines) + len(rejects) != len(listed):
        tell(found, "images are lost or doubled", f"{len(listed)}: {len(lines)} predicted, {len(rejects)} rejected")
    pairs = any(len(row.files) > 1 for row in listed)
    places = {(f"{folder}/pairs.csv", i) if pairs else row.paths[0]: row for i, row in enumerate(listed, start=2)}
    predicted = {(line["source"], line["line"]) if pairs else line["source"]: line for line in lines}
    refused = {(reject.source, reject.offset) if pairs else reject.source: reject for reject in rejects}
    if list(predicted) != [place for place in places if place in predicted]:
        tell(found, "predictions are in another order than the input", f"{list(predicted)[:5]}")
    for place, row in places.items():
        line, reject, wrong = predicted.get(place), refused.get(place), row.wrong(rejected)
        if (line is None) == (reject is None):
            tell(found, "an image is neither predicted nor rejected, or both", str(row))
        elif line is not None and wrong:
            tell(found, "predict takes what the job rejects", f"{row}: {list(wrong.values())}")
        elif line is not None:
            given = [line["top_5"].get(name) for name in classes]
            if None in given:
                tell(found, "a good image is predicted as nothing", str(row))
            elif row.paths in served and not near(given, served[row.paths]):
                tell(found, "predict answers otherwise than the signatures", f"{row}: {given}, {served[row.paths]}")
        elif reject is not None and not wrong:
            tell(found, "predict rejects what the job takes", f"{row}: {reject}")
        elif reject is not None and not any(same_words(reject, by_job, pairs=pairs) for by_job in wrong.values()):
            tell(found, "predict has another reason than the job", f"{row}: {reject}, {list(wrong.values())}")


def same_words(reject: Rejected, by_job: Rejected, *, pairs: bool) -> bool:
    """Whether a reject says what the job's says; that of a pair is about a line."""
    if pairs:
        return (reject.stage, reject.reason) == (by_job.stage, by_job.reason)
    return dataclasses.replace(reject, offset=by_job.offset) == by_job


def near(these: Sequence[float], those: Sequence[float]) -> bool:
    """Whether probabilities are the same but for rounding."""
    return all(math.isclose(a, b, rel_tol=NEAR, abs_tol=NEAR / 10) for a, b in zip(these, those, strict=True))


def numbers(answer: dict[str, Any], name: str, place: int) -> list[float]:
    """The floats of one output of one row."""
    import numpy as np

    return np.frombuffer(bytes.fromhex(at(answer, name, place)), np.float32).tolist()


def at_all(value: dict[str, Any]) -> list[Any]:
    """One output of all rows."""
    return next(value[form] for form in ("bits", "text", "ids") if form in value)


def tell(found: Found, title: str, detail: str) -> None:
    """Notes a fault."""
    found.setdefault(title, []).append(detail)


def _sizes(outputs: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {len(at_all(value))}" for name, value in outputs.items())
