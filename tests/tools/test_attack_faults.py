"""The attack finds what is lost, doubled, changed or made up in what a real job wrote and a model answered.

How it reads records and fields is held against the CSV reader, by `tests/schemas/csv/test_any_bytes.py`.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.attack import answers, oracle_dataset
from tools.attack.drawn_csv import Plan, csv_file, draw_plan, draw_shape
from tools.attack.fuzz_csv import Inputs
from tools.attack.ground import Children, Ground, ground
from tools.attack.oracle_dataset import Found, check_dataset
from tools.attack.oracle_rows import Judge, Record


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    with Children(tmp_path_factory.mktemp("tmp")) as running:
        yield running


@pytest.fixture(scope="module")
def whole(children, tmp_path_factory) -> Ground:
    """A dataset of every kind of feature, with four rejects."""
    return ground("csv", children, tmp_path_factory.mktemp("ground"))


@pytest.fixture(scope="module")
def account(whole):
    """What the oracle is given: expected records, the manifest, stored records, rejects."""
    assert whole.plan is not None
    path = Path(whole.inputs[0])
    inputs = Inputs(whole.plan, whole.schema, ((path, tuple(path.read_text().split("\n", 1)[0].split(","))),))
    told = oracle_dataset.manifest(whole.data)
    rejects = oracle_dataset.rejects(*oracle_dataset.reject_files(whole.data))
    return inputs.expected(), told, list(oracle_dataset.stored(whole.data, told)), list(rejects)


@pytest.mark.slow
class TestKnownFaults:
    """One thing is changed in what a real job wrote, and the oracle has to say so."""

    def titles(self, whole, account, **changed) -> set[str]:
        names, found = ("expected", "told", "stored", "rejected"), Found()
        given = {**dict(zip(names, account, strict=True)), **changed}
        check_dataset(whole.plan, given["expected"], given["told"], given["stored"], given["rejected"], found)
        return set(found.counts)

    def test_what_the_job_wrote_is_as_expected(self, whole, account):
        assert self.titles(whole, account) == set()

    def test_a_record_that_was_dropped_or_doubled(self, whole, account):
        number = "the shards hold another number of records"
        assert self.titles(whole, account, stored=account[2][1:]) == {"a record is lost", number}
        doubled = [*account[2], account[2][0]]
        assert self.titles(whole, account, stored=doubled) == {"a record is doubled or lost", number}

    @pytest.mark.parametrize(
        ("feature", "value"),
        [
            *(("n_none", [12345.0]), ("n_z", [9.9]), ("n_log", [float("-inf")]), ("n_minmax_missing", [1.0])),
            *(("n_given", [3]), ("c_values", [7]), ("b", [0.5]), ("o", [3]), ("t", [0, 0, 0]), ("w", [3.0])),
            *(("y", [-1]), ("id", [b"another"])),
        ],
    )
    def test_a_record_that_was_altered(self, whole, account, feature, value):
        first, *others = account[2]
        altered = dataclasses.replace(first, values={**first.values, feature: value})
        assert self.titles(whole, account, stored=[altered, *others])

    def test_a_reject_that_was_forgotten_moved_or_changed(self, whole, account):
        first, *others = account[3]
        assert self.titles(whole, account, rejected=others)
        for change in ({"offset": first.offset + 1}, {"raw": first.raw + b"x"}, {"reason": "not_a_number"}):
            assert self.titles(whole, account, rejected=[dataclasses.replace(first, **change), *others])

    def test_a_bad_record_that_was_written(self, whole, account):
        expected = [
            dataclasses.replace(e, may_write=False, may_reject=True) if e.values.get("id") == b"k0000007" else e
            for e in account[0]
        ]
        assert self.titles(whole, account, expected=expected)


PLAN = Plan(
    csv={"header": "none", "columns": ["id", "n", "c", "b", "y"], "missing": ["", "?"], "encoding": "utf-8"},
    features=(
        {"name": "id", "kind": "key"},
        {"name": "n", "kind": "numeric", "transform": "log"},
        {"name": "c", "kind": "category", "values": ["a", "b"]},
        {"name": "b", "kind": "bool"},
    ),
    label={"name": "y", "kind": "numeric"},
    split={"by": ["id"], "train": 1.0, "eval": 0.0, "test": 0.0},
    columns=("id", "n", "c", "b", "y"),
    reads={name: (name,) for name in ("id", "n", "c", "b", "y")},
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"k,1,a,yes,2", (True, False, set())),
        (b"k,-1,a,yes,2", (False, True, {None})),
        (b"k,1,a\x00,yes,2", (True, False, set())),
        (b"k,1\x00,a,yes,2", (False, True, {"not_a_number"})),
        (b"k,?,a,yes,1e400", (False, True, {"missing_value", "out_of_range"})),
        (b"k,1,,maybe,", (False, True, {"missing_value", "not_a_bool", "missing_label"})),
        (b"k,1,\xff,1,2", (False, True, {"not_utf8"})),
        (b"k,1,a", (False, True, {"too_few_columns"})),
        (b"k,1," + b"a" * (17 << 20), (False, True, {"record_too_long"})),
    ],
)
def test_a_record_is_written_or_rejected_for_what_is_true_of_it(line, expected):
    judged = Judge(PLAN).record("f", Record(0, line), PLAN.columns, latin=False)
    assert (judged.may_write, judged.may_reject, {reason for _, reason, _ in judged.why}) == expected


def test_drawn_schemas_are_taken_and_drawn_files_read():
    from schemas.spec.loader import parse_schema

    kinds = set()
    for seed in range(60):
        draw = random.Random(seed)
        plan = draw_plan(draw)
        parse_schema(plan.schema().encode(), "drawn.yaml")
        data, order = csv_file(draw, plan, draw_shape(draw, plan, rows=30), first=0)
        assert len(Judge(plan).file("f", data, order)) > 10 or plan.csv.get("quoted_newlines")
        kinds |= {item["kind"] for item in plan.items}
    assert kinds == {"key", "numeric", "category", "bool", "one_hot", "text", "weight", "ignore", "cross"}


def answered(*rows: tuple[float, ...] | str) -> dict[str, Any]:
    """An answer to rows, as `answers.main` writes it: probabilities, or the error."""
    nan = (float("nan"),) * 2
    errors = [row if isinstance(row, str) else "" for row in rows]
    numbers = np.array([nan if isinstance(row, str) else row for row in rows], np.float32).reshape(-1, 2)
    ids = [-1 if error else int(np.argmax(row)) for row, error in zip(numbers, errors, strict=True)]
    names = np.array([("cats", "dogs")[i].encode() if i >= 0 else b"" for i in ids], object)
    outputs = {"probabilities": numbers, "class": names, "class_id": np.array(ids, np.int64)}
    told = {**outputs, "error": np.array([error.encode() for error in errors], object)}
    return {name: answers.written(value) for name, value in told.items()}


TAKEN = answered((0.25, 0.75), "image: undecodable_image")


@pytest.mark.parametrize(
    ("answer", "other", "expected"),
    [
        (TAKEN, None, set()),
        (
            answered((0.25, 0.75), (0.5, 0.5)),
            None,
            {"no error for what the job rejects", "an answer is made up", "a class is made up", "an id is made up"},
        ),
        (answered((0.25, 0.75), "left: undecodable_image"), None, {"an error names another input"}),
        (answered((0.25, 0.75)), None, {"answers are lost or made up"}),
        (answered((0.25, np.nextafter(np.float32(0.75), 1)), "image: x"), None, {"a neighbour's bits change"}),
        (
            answered("image: empty_file", "image: empty_file"),
            None,
            {"what is good has an error", "what is good is not answered", "a neighbour's bits change"},
        ),
        (TAKEN, {name: value for name, value in TAKEN.items() if name != "class"}, {"outputs differ"}),
        (TAKEN, answered((0.25, 0.75), "image: empty_file"), {"the signatures differ"}),
    ],
)
def test_a_wrong_answer_is_a_fault(answer, other, expected):
    found = Found()
    answers.judge_batch([((), "good"), (("image",), "bad")], answer, other or answer, answered((0.25, 0.75)), found)
    assert set(found.counts) == expected
