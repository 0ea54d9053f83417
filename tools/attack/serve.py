"""Random rows to served models: what the job rejects they must not answer, and its neighbours keep their bits."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

from tools.attack.asking import WAYS
from tools.attack.children import Children
from tools.attack.csv_bytes import INVALID, STRINGS, tidy_row
from tools.attack.ground import Failed, ground
from tools.attack.oracle_rows import HUGE, Judge
from tools.attack.plans import Item, Plan
from tools.attack.tally import Tally

KIND = "serve"
BATCHES, ROWS = 12, 24
NUMBERS = (math.nan, math.inf, -math.inf, -1.0, -5.0, -0.99999999, 0.0, -0.0, 1e-45, 1e20, 3.4e38, 16777217.0)
VECTORS = ([0.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.5, 0.0], [2.0, 0.0, 0.0], [1.0, math.nan, 0.0], [1.0, 0.0, -1.0])


@dataclasses.dataclass(frozen=True)
class Row:
    """What is sent, by input, and the inputs that are wrong; `unsure`: it may be answered or not."""

    sent: dict[str, Any]
    wrong: frozenset[str]
    unsure: bool


def served_items(plan: Plan) -> list[Item]:
    """What a request holds."""
    return [f for f in plan.features if f["kind"] not in ("weight", "ignore", "cross")]


def draw_row(draw: random.Random, judge: Judge, number: int, *, odd: bool) -> Row:
    """A row as a client sends it; with one odd value or two where it is to be odd."""
    plan = judge.plan
    cells = tidy_row(draw, plan, number)
    items = served_items(plan)
    hurt = draw.sample(items, draw.choice([1, 1, 2])) if odd else []
    sent: dict[str, Any] = {}
    wrong: set[str] = set()
    unsure = False
    for item in items:
        name, columns = item["name"], plan.reads[item["name"]]
        if item["kind"] in ("numeric", "one_hot"):
            values = [float(cells[c]) for c in columns]
            if item in hurt:
                values = odd_numbers(draw, item, values)
            bad, doubt = judge_numbers(item, values)
            sent[name] = values if "columns" in item else values[0]
        else:
            cell = cells[columns[0]].encode()
            if item in hurt:
                cell = draw.choice([*(s.encode() for s in STRINGS), *INVALID])
            _, why, may = judge.item(item, [cell], columns, latin=False)
            bad, doubt = bool(why), bool(may)
            sent[name] = base64.b64encode(cell).decode()
        if bad:
            wrong.add(name)
        unsure = unsure or doubt
    return Row(sent, frozenset(wrong), unsure and not wrong)


def odd_numbers(draw: random.Random, item: Item, values: list[float]) -> list[float]:
    """One of the numbers changed, or a group of columns that is no one-hot."""
    if item["kind"] == "one_hot":
        return draw.choice(VECTORS)
    place = draw.randrange(len(values))
    return [draw.choice(NUMBERS) if i == place else v for i, v in enumerate(values)]


def judge_numbers(item: Item, values: list[float]) -> tuple[bool, bool]:
    """Whether the job would reject these numbers, written in a file; and whether it may."""
    if any(math.isinf(v) for v in values):
        return True, False
    if item["kind"] == "one_hot":
        return sorted(values) != [0.0, 0.0, 1.0], False
    absent = any(math.isnan(v) for v in values)
    if absent and "missing" not in item:
        return True, False
    if item["transform"] == "log" and any(v <= -0.99999999 for v in values):
        return True, False
    return False, any(abs(v) > HUGE for v in values)


def round_(draw: random.Random, children: Children, folder: Path, tally: Tally, *, seed: str) -> None:
    """Batches of good rows, and the same ones with odd rows among them."""
    kind = draw.choice(["linear", "dnn"])
    base = ground(kind, children, folder.parent / "ground")
    if base.plan is None or base.saved_model is None:
        raise Failed("a training has exported nothing")
    judge = Judge(base.plan)
    batches: list[list[Row]] = []
    for number in range(BATCHES):
        good = [draw_row(draw, judge, number * ROWS + i, odd=False) for i in range(ROWS)]
        odd = [
            draw_row(draw, judge, number * ROWS + i, odd=True) if draw.random() < 0.6 else g for i, g in enumerate(good)
        ]
        batches += [good, odd]
    asked, answered = folder / "asked.json", folder / "answered.json"
    inputs = [{n: [row.sent[n] for row in batch] for n in batch[0].sent} for batch in batches]
    asked.write_text(json.dumps([{"signature": "serving_default", "inputs": sent} for sent in inputs]))
    way = draw.choice(WAYS)
    answer = children.one("tools.attack.asking", str(base.saved_model), way, str(asked), str(answered))
    told = {"seed": seed, "model": kind, "way": way, "output": answer.output}
    if answer.status:
        tally.fault(KIND, "a request fails as a whole", answer.output[-1500:], keep=folder, **told)
        return
    answers = json.loads(answered.read_text())
    found: dict[str, list[str]] = {}
    for good, odd, before, after in zip(batches[::2], batches[1::2], answers[::2], answers[1::2], strict=True):
        for i, row in enumerate(odd):
            for title, detail in judge_answer(row, after, i):
                found.setdefault(title, []).append(detail)
            if row is good[i] and any(at(before, n, i) != at(after, n, i) for n in before):
                found.setdefault("a neighbour's bits change", []).append(str(row.sent)[:300])
        tally.count(KIND, "rows", len(good) + len(odd))
        tally.count(KIND, "rows that the job would reject", sum(bool(row.wrong) for row in odd))
    for title, details in found.items():
        tally.fault(KIND, title, f"{kind}: {len(details)} times: {'; '.join(details[:3])}", keep=folder, **told)


def judge_answer(row: Row, answer: dict[str, Any], place: int) -> list[tuple[str, str]]:
    """What is wrong with the answer to one row."""
    if row.unsure:
        return []
    error = error_of(answer, place)
    if not row.wrong:
        nothing = not_answered(answer, place)
        faults = [("a good row is not answered", f"{nothing}: {str(row.sent)[:300]}")] if nothing else []
        return faults + ([("a good row has an error", f"{error}: {str(row.sent)[:300]}")] if error else [])
    sent = {name: row.sent[name] for name in sorted(row.wrong)}
    faults = []
    if not error:
        faults.append(("no error for a bad row", str(sent)))
    elif not any(name in error for name in row.wrong):
        faults.append(("an error names another column", f"{error}: {sent}"))
    return faults + [(title, f"{what} for {sent}") for title, what in made_up(answer, place)]


def error_of(answer: dict[str, Any], place: int) -> str | None:
    """Why one row is not answered, '' where it is; None where the model has no such output."""
    return base64.b64decode(at(answer, "error", place)[0]).decode("utf-8", "replace") if "error" in answer else None


def not_answered(answer: dict[str, Any], place: int) -> list[str]:
    """The outputs that hold no number for one row."""
    return [name for name, value in answer.items() if "nan" in value and value["nan"][place]]


def made_up(answer: dict[str, Any], place: int) -> list[tuple[str, str]]:
    """What one row is answered that must not be answered."""
    faults = []
    for name, value in answer.items():
        if name in ("key", "error"):
            continue
        if "nan" in value and not value["nan"][place]:
            faults.append(("an answer is made up", name))
        elif "text" in value and any(base64.b64decode(text) for text in value["text"][place]):
            faults.append(("a class is made up", f"{name} is {value['text'][place][:2]}"))
        elif "ids" in value and any(i != -1 for i in value["ids"][place]):
            faults.append(("an id is made up", f"{name} is {value['ids'][place][:2]}"))
    return faults


def at(answer: dict[str, Any], name: str, place: int) -> Any:
    """One output of one row."""
    value = answer[name]
    return next(value[form] for form in ("bits", "text", "ids") if form in value)[place]
