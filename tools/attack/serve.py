"""Random rows to served models: what the job rejects they must not answer, and its neighbours keep their bits."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

from tools.attack.answers import answered, asked, differ, judge_row, text
from tools.attack.asking import WAYS
from tools.attack.csv_bytes import INVALID, STRINGS, tidy_row
from tools.attack.oracle_rows import HUGE, Judge
from tools.attack.plans import Item, Plan
from tools.attack.rounds import Round

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
            sent[name] = text(cell)
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


def play(now: Round) -> None:
    """Batches of good rows, and the same ones with odd rows among them."""
    draw = now.draw
    plan, saved_model = now.ground("linear", "dnn").served
    judge = Judge(plan)
    batches: list[list[Row]] = []
    for number in range(BATCHES):
        good = [draw_row(draw, judge, number * ROWS + i, odd=False) for i in range(ROWS)]
        odd = [
            draw_row(draw, judge, number * ROWS + i, odd=True) if draw.random() < 0.6 else g for i, g in enumerate(good)
        ]
        batches += [good, odd]
    inputs = [{n: [row.sent[n] for row in batch] for n in batch[0].sent} for batch in batches]
    requests = [{"signature": "serving_default", "inputs": sent} for sent in inputs]
    (answer,) = now.run(asked(now.folder, saved_model, draw.choice(WAYS), requests))
    if answer.status:
        now.found.add("a request fails as a whole", answer.output[-1500:])
        return
    answers = answered(now.folder)
    for good, odd, before, after in zip(batches[::2], batches[1::2], answers[::2], answers[1::2], strict=True):
        for i, row in enumerate(odd):
            if not row.unsure:
                sent = {name: row.sent[name] for name in sorted(row.wrong)} or row.sent
                judge_row(after, i, row.wrong, str(sent)[:300], now.found)
            if row is good[i] and differ(before, i, after, i):
                now.found.add("a neighbour's bits change", str(row.sent)[:300])
        now.count("rows", len(good) + len(odd))
        now.count("rows that the job would reject", sum(bool(row.wrong) for row in odd))
