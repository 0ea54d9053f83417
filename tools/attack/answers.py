"""Asks an exported model, and judges what it may answer, given what the job rejects."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tools.attack.ground import Ask
from tools.attack.oracle_dataset import Found

Model = Callable[[str, dict[str, Any]], dict[str, Any]]  # a signature and its inputs -> its outputs
WAYS = ("plain", "served")  # by plain TensorFlow, or in a session as a server does


def main(argv: Sequence[str]) -> int:
    """Takes the export's folder, one of WAYS, the file of requests, and the file to write.

    A request is `{"signature": name, "inputs": {name: values}}`. Strings travel as base64.
    """
    export, way, asked, answered = argv
    answers = []
    with {"plain": plain, "served": served}[way](export) as model:
        for request in json.loads(Path(asked).read_text()):
            outputs = model(request["signature"], {name: _array(v) for name, v in request["inputs"].items()})
            answers.append({name: written(value) for name, value in outputs.items()})
    Path(answered).write_text(json.dumps(answers))
    return 0


@contextlib.contextmanager
def plain(export: str) -> Iterator[Model]:
    """The model in plain TensorFlow, without a line of this project."""
    import tensorflow as tf

    signatures = tf.saved_model.load(export).signatures

    def ask(signature: str, inputs: dict[str, Any]) -> dict[str, Any]:
        outputs = signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    yield ask


@contextlib.contextmanager
def served(export: str) -> Iterator[Model]:
    """The model as this project's users open it."""
    from schemas.exports.model import ServedModel

    with ServedModel(export) as model:
        yield lambda signature, inputs: model.predict(inputs, signature=signature)


def _array(values: list[Any]) -> np.ndarray:
    """Strings (also where there are none: no batch of numbers is empty), or numbers."""
    if all(isinstance(value, str) for value in values):
        return np.array([base64.b64decode(value) for value in values], object)
    return np.array(values, np.float32)


def written(array: np.ndarray) -> Any:
    """Numbers as the hexadecimal of their bits where they are floats, so that bits can be compared."""
    if array.dtype.kind == "f":
        return {"bits": [row.tobytes().hex() for row in array], "nan": [bool(np.isnan(row).all()) for row in array]}
    if array.dtype.kind == "O":
        return {"text": [[base64.b64encode(value).decode() for value in np.ravel(row).tolist()] for row in array]}
    return {"ids": [np.ravel(row).tolist() for row in array]}


Outputs = dict[str, Any]  # as `main` writes them


def asked(folder: Path, saved_model: Path, way: str, requests: Sequence[dict[str, Any]]) -> Ask:
    """Has a model asked; see `main`."""
    (folder / "asked.json").write_text(json.dumps(requests))
    return Ask("tools.attack.answers", (str(saved_model), way, f"{folder}/asked.json", f"{folder}/answered.json"))


def answered(folder: Path) -> list[Outputs]:
    """What it answered."""
    return list(json.loads((folder / "answered.json").read_text()))


def text(content: bytes) -> str:
    """Bytes as they travel."""
    return base64.b64encode(content).decode()


def judge_row(answer: Outputs, place: int, wrong: Collection[str], where: str, found: Found) -> None:
    """Holds the answer to one row to what is known of it.

    Args:
      answer: the outputs of the batch.
      place: the row's.
      wrong: the inputs for which the job would reject it.
      where: what tells of the row.
      found: where faults are told.
    """
    error, nothing = error_of(answer, place), not_answered(answer, place)
    if wrong:
        if not error:
            found.add("no error for what the job rejects", where)
        elif not error.startswith(tuple(wrong)):
            found.add("an error names another input", f"{where}: {error}")
        for title, what in made_up(answer, place):
            found.add(title, f"{where}: {what}")
        return
    if error:
        found.add("what is good has an error", f"{where}: {error}")
    if nothing:
        found.add("what is good is not answered", f"{where}: {nothing}")


def judge_batch(
    rows: Sequence[tuple[Collection[str], str]], answer: Outputs, other: Outputs, good: Outputs, found: Found
) -> None:
    """Holds the answers to a batch to the job's verdicts.

    Args:
      rows: of each its wrong inputs, and what tells of it.
      answer: the outputs of one signature.
      other: those of another one, for the same rows.
      good: those for the good rows alone, in their order: nothing else reaches the model.
      found: where faults are told.
    """
    alone = {place: i for i, place in enumerate(p for p, (wrong, _) in enumerate(rows) if not wrong)}
    for outputs, size in ((answer, len(rows)), (other, len(rows)), (good, len(alone))):
        sizes = {name: len(_all(value)) for name, value in outputs.items()}
        if any(found_size != size for found_size in sizes.values()):
            found.add("answers are lost or made up", f"{size} rows, {sizes}")
            return
    if not answer.keys() == other.keys() == good.keys():
        found.add("outputs differ", f"{sorted(answer)}, {sorted(other)} and {sorted(good)}")
        return
    for place, (wrong, what) in enumerate(rows):
        where = f"{place} of {len(rows)}, {what}"
        if differ(answer, place, other, place):
            found.add("the signatures differ", where)
        judge_row(answer, place, wrong, where, found)
        if not wrong and differ(answer, place, good, alone[place]):
            found.add("a neighbour's bits change", where)


def differ(one: Outputs, place: int, other: Outputs, there: int) -> bool:
    """Whether two answers to one row do."""
    return any(at(one, name, place) != at(other, name, there) for name in one)


def error_of(answer: Outputs, place: int) -> str | None:
    """Why one row is not answered, '' where it is; None where the model has no such output."""
    return base64.b64decode(at(answer, "error", place)[0]).decode("utf-8", "replace") if "error" in answer else None


def not_answered(answer: Outputs, place: int) -> list[str]:
    """The outputs that hold no number for one row."""
    return [name for name, value in answer.items() if "nan" in value and value["nan"][place]]


def made_up(answer: Outputs, place: int) -> Iterator[tuple[str, str]]:
    """What one row is answered that must not be answered."""
    for name, value in answer.items():
        if name in ("key", "error"):
            continue
        if "nan" in value and not value["nan"][place]:
            yield "an answer is made up", name
        elif "text" in value and any(base64.b64decode(text) for text in value["text"][place]):
            yield "a class is made up", f"{name} is {value['text'][place][:2]}"
        elif "ids" in value and any(i != -1 for i in value["ids"][place]):
            yield "an id is made up", f"{name} is {value['ids'][place][:2]}"


def at(answer: Outputs, name: str, place: int) -> Any:
    """One output of one row."""
    return _all(answer[name])[place]


def numbers(answer: Outputs, name: str, place: int) -> list[float]:
    """The floats of one output of one row."""
    import numpy as np

    return np.frombuffer(bytes.fromhex(at(answer, name, place)), np.float32).tolist()


def _all(value: dict[str, Any]) -> list[Any]:
    return next(value[form] for form in ("bits", "text", "ids") if form in value)
