"""The attack finds wrong answers and predictions of a model, and images that were lost or exchanged."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tools.attack import asking, fuzz_images, image_bytes, read_back, serve, serve_images
from tools.attack.ground import every_kind
from tools.attack.oracle_rows import Judge
from tools.attack.oracle_served_images import Row, judge_batch, judge_predictions
from tools.attack.tally import Tally


class TestServing:
    ANSWER: ClassVar[dict[str, Any]] = {
        "value": {"bits": ["00", "01"], "nan": [False, True]},
        "class": {"text": [["bm8="], [""]]},
        "class_id": {"ids": [[1], [-1]]},
        "error": {"text": [[""], ["bl96OiBtaXNzaW5n"]]},
    }

    def test_an_answer_to_a_bad_row_is_a_fault_and_so_is_none_to_a_good_one(self):
        good, bad = serve.Row({}, frozenset(), False), serve.Row({"n_z": 1.0}, frozenset({"n_z"}), False)
        assert serve.judge_answer(good, self.ANSWER, 0) == []
        assert serve.judge_answer(bad, self.ANSWER, 1) == []
        assert {title for title, _ in serve.judge_answer(bad, self.ANSWER, 0)} == {
            "no error for a bad row",
            "an answer is made up",
            "a class is made up",
            "an id is made up",
        }
        assert {title for title, _ in serve.judge_answer(good, self.ANSWER, 1)} == {
            "a good row is not answered",
            "a good row has an error",
        }

    def test_suspicious_rows_are_distinguished_from_valid_ones(self):
        draw, judging = random.Random(1), Judge(every_kind())
        assert not any(serve.draw_row(draw, judging, i, odd=False).wrong for i in range(200))
        wrong = set().union(*(serve.draw_row(draw, judging, i, odd=True).wrong for i in range(2000)))
        assert wrong >= {"n_none", "n_log", "v", "c_values", "c_hash", "b", "b_missing", "o", "t", "id"}


def image_file(path: str, content: bytes = b"") -> fuzz_images.File:
    return fuzz_images.File(path, content, "whole", None)


GOOD, ALSO_GOOD, BAD = image_file("a.png"), image_file("b.png"), image_file("c.png")
REJECT = read_back.Rejected("c.png", 2, "ingest", "truncated_image", None, b"c.png")


def answered(*rows: tuple[float, ...] | str) -> dict[str, Any]:
    """An answer to rows, as `asking` writes it: probabilities, or the error."""
    nan = (float("nan"),) * 2
    errors = [row if isinstance(row, str) else "" for row in rows]
    numbers = np.array([nan if isinstance(row, str) else row for row in rows], np.float32).reshape(-1, 2)
    ids = [-1 if error else int(np.argmax(row)) for row, error in zip(numbers, errors, strict=True)]
    names = np.array([("cats", "dogs")[i].encode() if i >= 0 else b"" for i in ids], object)
    outputs = {"probabilities": numbers, "class": names, "class_id": np.array(ids, np.int64)}
    told = {**outputs, "error": np.array([error.encode() for error in errors], object)}
    return {name: asking.written(value) for name, value in told.items()}


class TestServedImages:
    ROWS = (Row({"image": GOOD}), Row({"image": BAD}))
    TAKEN = answered((0.25, 0.75), "image: undecodable_image")
    GOOD_ONLY = answered((0.25, 0.75))

    def faults(self, rows, answer, other, good) -> set[str]:
        found: dict[str, list[str]] = {}
        judge_batch(rows, {"c.png": REJECT}, answer, other, good, found=found)
        return set(found)

    def test_what_must_be_passes(self):
        assert self.faults(self.ROWS, self.TAKEN, self.TAKEN, self.GOOD_ONLY) == set()
        assert self.faults((), answered(), answered(), answered()) == set()

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (
                answered((0.25, 0.75), (0.5, 0.5)),
                {"no error for a bad image", "an answer is made up", "a class is made up", "an id is made up"},
            ),
            (answered((0.25, 0.75), "left: undecodable_image"), {"an error names another input"}),
            (answered((0.25, 0.75)), {"answers are lost or made up"}),
            (answered((0.25, np.nextafter(np.float32(0.75), 1)), "image: empty_file"), {"a neighbour's bits change"}),
            (
                answered("image: empty_file", "image: empty_file"),
                {"a good image has an error", "a good image is not answered", "a neighbour's bits change"},
            ),
            (
                {name: value for name, value in answered((0.25, 0.75), "image: empty_file").items() if name != "class"},
                {"outputs differ"},
            ),
        ],
    )
    def test_a_wrong_answer_is_a_fault(self, answer, expected):
        good = self.GOOD_ONLY if "class" in answer else {n: v for n, v in self.GOOD_ONLY.items() if n != "error"}
        assert self.faults(self.ROWS, answer, answer, good) == expected

    def test_signatures_that_differ_are_a_fault(self):
        other = answered((0.25, 0.75), "image: empty_file")
        assert self.faults(self.ROWS, self.TAKEN, other, self.GOOD_ONLY) == {"the signatures differ"}

    def test_of_a_pair_the_bad_side_is_named(self):
        rows = (Row({"left": GOOD, "right": BAD}),)
        good = answered()
        right, left = answered("right: not_an_image"), answered("left: not_an_image")
        assert self.faults(rows, right, right, good) == set()
        assert self.faults(rows, left, left, good) == {"an error names another input"}

    def predictions(self, folder: Path, lines: list[dict[str, Any]], rejects: list[dict[str, Any]]) -> set[str]:
        """The faults in predictions on a good image, another one, and a bad one."""
        for name, entries in (("predictions.jsonl", lines), ("predictions.rejects.jsonl", rejects)):
            (folder / name).write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
        found: dict[str, list[str]] = {}
        listed = [Row({"image": file}) for file in (GOOD, ALSO_GOOD, BAD)]
        served: dict[tuple[str, ...], list[float]] = {("a.png",): [0.25, 0.75]}
        judge_predictions(listed, folder, ["cats", "dogs"], {"c.png": REJECT}, served, found=found)
        return set(found)

    LINES: ClassVar[list[dict[str, Any]]] = [
        {"source": "a.png", "top_5": {"dogs": 0.75000001, "cats": 0.25}},
        {"source": "b.png", "top_5": {"cats": 0.9, "dogs": 0.1}},
    ]
    REJECTED: ClassVar[dict[str, Any]] = {
        "source": "c.png",
        "offset": 0,
        "stage": "ingest",
        "reason": "truncated_image",
        "column": None,
        "raw": "c.png",
    }

    def test_predictions_and_rejects_that_must_be_pass(self, tmp_path):
        assert self.predictions(tmp_path, self.LINES, [self.REJECTED]) == set()

    @pytest.mark.parametrize(
        ("lines", "rejects", "expected"),
        [
            (
                LINES[:1],
                [REJECTED],
                {"images are lost or doubled", "an image is neither predicted nor rejected, or both"},
            ),
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
    def test_wrong_predictions_are_a_fault(self, tmp_path, lines, rejects, expected):
        assert self.predictions(tmp_path, lines, rejects) == expected

    def test_batches_are_of_every_size_and_go_without_their_bad_rows_too(self):
        draw, bad = random.Random(1), 0
        files = [image_file(f"{i}.png", b"\x89PNG" if i % 3 else b"BM") for i in range(12)]
        rejected = {f"{i}.png": REJECT for i in range(6)}
        for _ in range(20):
            batches = serve_images.draw_batches(draw, files, rejected, ("left", "right"))
            assert sorted(len(batch.rows) for batch in batches) == sorted(serve_images.SIZES)
            for batch in batches:
                wrong = [bool(row.wrong(rejected)) for row in batch.rows]
                assert batch.good == tuple(row for row, w in zip(batch.rows, wrong, strict=True) if not w)
                bad += len(wrong) > 2 and all(wrong)
        assert bad > 5

    def test_an_example_holds_what_the_inputs_hold(self):
        from tensorflow.core.example.example_pb2 import Example

        rows = (Row({"left": image_file("a", b"\xff1"), "right": image_file("b", b"2")}),)
        plain, examples = (serve_images.request(s, rows, ("left", "right")) for s in serve_images.SIGNATURES)
        assert plain["inputs"] == {"left": ["/zE="], "right": ["Mg=="]}
        features = Example.FromString(base64.b64decode(examples["inputs"]["examples"][0])).features.feature
        assert {name: feature.bytes_list.value[:] for name, feature in features.items()} == {
            "left": [b"\xff1"],
            "right": [b"2"],
        }


class TestImages:
    def test_a_file_that_was_lost_or_exchanged_is_a_fault(self, tmp_path):
        red, files = image_bytes.drawn(random.Random(1), "PNG"), []
        for i in range(2):
            path = tmp_path / f"{i}.png"
            path.write_bytes(red)
            files.append(fuzz_images.File(str(path), red, "whole", True))
        run = tmp_path / "out"
        run.mkdir()
        manifest = {"run": "run", "read": 2, "splits": {}, "compression": "none"}
        (run / "manifest.json").write_text(json.dumps(manifest))
        found: dict[str, list[str]] = {}
        fuzz_images.judge(files, run, found, Tally(tmp_path))
        assert set(found) == {"files are lost or doubled", "a file is neither or both"}
        black = {"image/encoded": [bytes(24 * 24 * 3)], "image/format": [b"RAW"]}
        off = fuzz_images.distance(red, black)
        assert off is not None
        assert off > fuzz_images.NEAR

    def test_every_damage_matches_its_description(self):
        draw = random.Random(1)
        for fmt in image_bytes.FORMATS:
            for _ in range(60):
                content, done, good = image_bytes.hurt(draw, image_bytes.drawn(draw, fmt), fmt)
                if good is not None and done != "huge header":
                    assert (fuzz_images.pixels(content) is not None) == good, (fmt, done)
