"""What the attack expects of rows, images and answers, and how it draws and keeps them.

How it reads records and fields is held against the CSV reader, by `tests/schemas/csv/test_any_bytes.py`.
"""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from tools.attack import answers, fuzz_images, serve, serve_images
from tools.attack.__main__ import KINDS, main
from tools.attack.drawn_csv import Plan, csv_file, draw_plan, draw_shape
from tools.attack.ground import every_kind
from tools.attack.oracle_dataset import Rejected
from tools.attack.oracle_rows import Judge, Record
from tools.attack.rounds import KEPT, Found, Tally
from tools.attack.serve_images import Row

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


def test_a_fault_is_kept_and_more_of_its_kind_are_counted(tmp_path):
    tally = Tally(tmp_path / "faults")
    (tmp_path / "round").mkdir()
    (tmp_path / "round" / "x.csv").write_text("1")
    for _ in range(KEPT + 2):
        tally.fault("fuzz", "a record is lost", "that", keep=tmp_path / "round", seed="1:fuzz:0")
    kept = sorted((tmp_path / "faults").iterdir())
    assert len(kept) == KEPT
    assert (kept[0] / "files" / "x.csv").read_text() == "1"
    assert json.loads((kept[0] / "fault.json").read_text())["seed"] == "1:fuzz:0"
    assert f"{KEPT + 2} faults" in tally.table()


def test_wrong_options_are_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "juggle"])
    told = capsys.readouterr().err
    assert all(kind in told for kind in KINDS)


def test_odd_rows_are_wrong_and_others_are_not():
    draw, judging = random.Random(1), Judge(every_kind())
    assert not any(serve.draw_row(draw, judging, i, odd=False).wrong for i in range(200))
    wrong = set().union(*(serve.draw_row(draw, judging, i, odd=True).wrong for i in range(2000)))
    assert wrong >= {"n_none", "n_log", "v", "c_values", "c_hash", "b", "b_missing", "o", "t", "id"}


def answered(*rows: tuple[float, ...] | str) -> dict[str, Any]:
    """An answer to rows, as `asking` writes it: probabilities, or the error."""
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


LINES: list[dict[str, Any]] = [
    {"source": "a.png", "top_5": {"dogs": 0.75000001, "cats": 0.25}},
    {"source": "b.png", "top_5": {"cats": 0.9, "dogs": 0.1}},
]
REJECT = Rejected("c.png", 0, "ingest", "truncated_image", None, b"c.png")
REJECTED = {**vars(REJECT), "raw": "c.png"}


@pytest.mark.parametrize(
    ("lines", "rejects", "expected"),
    [
        (LINES, [REJECTED], set()),
        (LINES[:1], [REJECTED], {"images are lost or doubled", "an image is neither predicted nor rejected, or both"}),
        (LINES[::-1], [REJECTED], {"predictions are in another order than the input"}),
        ([*LINES, {**LINES[1], "source": "c.png"}], [], {"predict takes what the job rejects"}),
        (LINES[:1], [REJECTED, {**REJECTED, "source": "b.png"}], {"predict rejects what the job takes"}),
        (LINES, [{**REJECTED, "reason": "undecodable_image"}], {"predict has another reason than the job"}),
        (
            [{**LINES[0], "top_5": {"cats": 0.75, "dogs": 0.25}}, LINES[1]],
            [REJECTED],
            {"predict answers otherwise than the signatures"},
        ),
        (
            [LINES[0], {**LINES[1], "top_5": {"cats": None, "dogs": None}}],
            [REJECTED],
            {"a good image is predicted as nothing"},
        ),
    ],
)
def test_wrong_predictions_are_a_fault(tmp_path, lines, rejects, expected):
    for name, entries in (("predictions.jsonl", lines), ("predictions.rejects.jsonl", rejects)):
        (tmp_path / name).write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    files = [fuzz_images.File(f"{name}.png", b"", "whole", None) for name in "abc"]
    listed = [Row({"image": file}, {"image": REJECT} if file.path == "c.png" else {}) for file in files]
    found = Found()
    serve_images.judge_predictions(listed, tmp_path, ["cats", "dogs"], {("a.png",): [0.25, 0.75]}, found)
    assert set(found.counts) == expected


def test_every_damage_of_an_image_matches_its_description():
    draw = random.Random(1)
    for fmt in fuzz_images.FORMATS:
        for _ in range(60):
            content, done, good = fuzz_images.hurt(draw, fuzz_images.drawn(draw, fmt), fmt)
            if good is not None and done != "huge header":
                assert (fuzz_images.pixels(content) is not None) == good, (fmt, done)
