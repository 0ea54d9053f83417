"""The attack's own oracle: it finds what is lost, doubled, changed or made up, so that it cannot pass for nothing."""

from __future__ import annotations

import base64
import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tools.attack import asking, damage, fuzz_images, image_bytes, kill, read_back, serve, serve_images
from tools.attack.__main__ import KINDS, main
from tools.attack.children import Answer, Ask, Children
from tools.attack.csv_bytes import csv_file, draw_shape
from tools.attack.fuzz_csv import Inputs
from tools.attack.ground import Ground, every_kind, ground, job_arguments
from tools.attack.oracle_dataset import check_dataset
from tools.attack.oracle_records import Dialect, Record, fields, readable, records
from tools.attack.oracle_rows import Judge, number
from tools.attack.oracle_served_images import Row, judge_batch, judge_predictions
from tools.attack.plans import Plan, draw_plan
from tools.attack.tally import KEPT, Tally

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
    inputs = Inputs(whole.plan, whole.schema, (path,), (order_of(path),), (path.read_bytes(),))
    told = read_back.manifest(whole.data)
    lines = read_back.rejects(list((whole.data / told["run"]).glob("rejects-*.jsonl")))
    return inputs.expected(), told, list(read_back.stored(whole.data, told)), list(lines)


def order_of(path: Path) -> tuple[str, ...]:
    return tuple(path.read_text().split("\n", 1)[0].split(","))


def judge(line: bytes) -> tuple[bool, bool, set[str | None]]:
    """Whether a record may be written, may be rejected, and why."""
    expected = Judge(PLAN).record("f", Record(0, line), PLAN.columns, latin=False)
    return expected.may_write, expected.may_reject, {reason for _, reason, _ in expected.why}


class TestRecords:
    def test_lines_end_at_line_feeds_and_keep_their_offsets(self):
        found = list(records(b"\xef\xbb\xbfa,b\r\n\n\r\nc\rd\r\r\ne", 3, Dialect()))
        assert [(r.offset, r.raw) for r in found] == [(3, b"a,b"), (11, b"c\rd"), (17, b"e")]

    def test_an_old_mac_file_has_lines_that_end_at_carriage_returns(self):
        assert [r.raw for r in records(b"a\r\rb", 0, Dialect())] == [b"a", b"b"]

    def test_quoted_line_ends_belong_to_their_record(self):
        data = b'a,"x\n""y"\r\nb,c"\n"d\ne'
        found = list(records(data, 0, Dialect(quoted_newlines=True)))
        assert [(r.offset, r.raw) for r in found] == [(0, b'a,"x\n""y"'), (11, b'b,c"'), (16, b'"d\ne')]

    def test_utf16_counts_as_utf8(self):
        assert readable("\ufeffé,1".encode("utf-16-le"), "utf-8") == ("\ufeffé,1".encode(), 3, False)

    @pytest.mark.parametrize(
        ("raw", "cells", "reasons"),
        [
            (b'a,"b,""c"', [b"a", b'b,"c'], set()),
            (b'"a" ,b', [b"a ", b"b"], set()),
            (b"a\x00,\x00", [b"a\x00", b"\x00"], set()),
            (b'a,"b', [], {"unterminated_quote", "stray_quote"}),
            (b'"a"b,c', [], {"stray_quote"}),
            (b'a"b,c', [], {"unterminated_quote", "stray_quote"}),
            (b"a\rb", [], {"stray_carriage_return"}),
        ],
    )
    def test_fields(self, raw, cells, reasons):
        assert fields(raw, Dialect()) == (cells, reasons)


class TestRows:
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
            (b"first te\x00in,k,1,a,yes,2", (False, True, {"too_many_columns"})),
            (b"k,1," + b"a" * (17 << 20), (False, True, {"record_too_long"})),
        ],
    )
    def test_a_record_is_written_or_rejected_for_what_is_true_of_it(self, line, expected):
        assert judge(line) == expected

    @pytest.mark.parametrize("text", ["0x10", "1_000", "inf", "nan", "1e", "\uff11", "1 2", ".", "1d3", "\ufeff1"])
    def test_what_is_no_decimal_is_no_number(self, text):
        assert number(text.encode(), frozenset()) == "not_a_number"

    def test_numbers_are_float32(self):
        assert number(b" 16777217 ", frozenset()) == 16777216.0
        assert number(b"3.4028235e38", frozenset()) == 3.4028234663852886e38
        assert number(b"3.5e38", frozenset()) == "out_of_range"


@pytest.mark.slow
class TestKnownFaults:
    """One thing is changed in what a real job wrote, and the oracle has to say so."""

    def titles(self, whole, account, **changed) -> set[str]:
        names = ("expected", "told", "stored", "rejected")
        given = {**dict(zip(names, account, strict=True)), **changed}
        return set(check_dataset(whole.plan, *(given[name] for name in names)).counts)

    def test_what_the_job_wrote_is_as_expected(self, whole, account):
        assert self.titles(whole, account) == set()

    def test_a_record_that_was_dropped(self, whole, account):
        found = self.titles(whole, account, stored=account[2][1:])
        assert found == {"a record is lost", "the shards hold another number of records"}

    def test_a_record_that_was_doubled(self, whole, account):
        found = self.titles(whole, account, stored=[*account[2], account[2][0]])
        assert found == {"a record is doubled or lost", "the shards hold another number of records"}

    @pytest.mark.parametrize(
        ("feature", "value"),
        [
            ("n_none", [12345.0]),
            ("n_z", [9.9]),
            ("n_log", [float("-inf")]),
            ("n_minmax_missing", [1.0]),
            ("n_given", [3]),
            ("c_values", [7]),
            ("b", [0.5]),
            ("o", [3]),
            ("t", [0, 0, 0]),
            ("w", [3.0]),
            ("y", [-1]),
            ("id", [b"another"]),
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


@pytest.mark.slow
class TestDamages:
    @pytest.mark.parametrize("what", sorted({d.__name__ for d in damage.DAMAGES}))
    def test_each_of_them_changes_the_data_set(self, whole, tmp_path, what):
        for seed in range(6):
            data = tmp_path / str(seed) / "data"
            shutil.copytree(whole.data, data)
            done = getattr(damage, what)(random.Random(seed), data, read_back.manifest(data))
            assert done.what
            assert state(data) != state(whole.data)

    def test_what_verify_passes_over_is_a_fault(self, whole, children, tmp_path, monkeypatch):
        monkeypatch.setattr(damage, "DAMAGES", (lambda draw, data, told: damage.Done("nothing", refused=True),))
        monkeypatch.setattr(random.Random, "choice", lambda self, items: items[0])
        monkeypatch.setattr(damage, "ground", lambda *_: whole)
        monkeypatch.setattr(damage, "DAMAGES_A_ROUND", 1)
        tally = Tally(tmp_path / "faults")
        (tmp_path / "round").mkdir()
        damage.round_(random.Random(1), children, tmp_path / "round", tally, seed="x")
        assert tally.faults.total() == 2


def state(folder: Path) -> dict[str, object]:
    """Every file and link below a folder."""
    paths = [folder, *folder.rglob("*")]
    return {
        str(p.relative_to(folder)): p.readlink() if p.is_symlink() else p.is_file() and p.read_bytes() for p in paths
    }


class TestKills:
    @pytest.mark.slow
    def test_a_child_dies_where_it_is_told_to(self, whole, children, tmp_path):
        argv = job_arguments(whole.schema, whole.inputs, tmp_path / "out")
        unhurt, killed = children.run(
            Ask("beam_jobs.preprocess", argv, watched=str(tmp_path / "out")),
            Ask(
                "beam_jobs.preprocess",
                job_arguments(whole.schema, whole.inputs, tmp_path / "other"),
                watched=str(tmp_path / "other"),
                struck_at=3,
            ),
        )
        assert (unhurt.status, killed.status) == (0, -9)
        assert unhurt.steps > 10
        assert killed.steps == 2
        assert kill.phase(None, None, tmp_path / "other", killed) in (
            "at work",
            "committing",
            "before or after the lease",
        )

    def test_every_scene_comes_once_in_as_many_rounds_as_there_are(self):
        rounds = [
            [kill.scene(f"7:kill:{turn * len(kill.SCENES) + i}") for i in range(len(kill.SCENES))] for turn in range(9)
        ]
        assert all(set(scenes) == set(kill.SCENES) for scenes in rounds)
        assert len({tuple(scenes) for scenes in rounds}) > 1
        assert kill.stop_jobs in {play for play, _ in kill.SCENES}

    @pytest.mark.parametrize("name", ["staging", ".x.jsonl.12ab.partial", "temp-170", "checkpoint.tmp12", "lease.json"])
    def test_what_counts_as_left_over(self, name):
        assert kill.LEFT.search(name)
        assert not kill.LEFT.search("predictions.jsonl")

    @pytest.mark.parametrize(
        ("status", "output", "crashed"),
        [(0, "", False), (1, "error: x", False), (1, "Traceback (most recent call last):", True), (-11, "", True)],
    )
    def test_what_counts_as_a_crash(self, status, output, crashed):
        assert Answer(status, 1.0, output, 0).crashed == crashed


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

    def test_odd_rows_are_told_from_good_ones(self):
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
    GOOD_ONLY = answered((0.25, 0.75), (0.5, 0.5))

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
        good = answered((0.5, 0.5))
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

    def test_batches_are_of_every_size_and_have_a_twin_of_good_files_only(self):
        draw, bad = random.Random(1), 0
        files = [image_file(f"{i}.png", b"\x89PNG" if i % 3 else b"BM") for i in range(12)]
        rejected = {f"{i}.png": REJECT for i in range(6)}
        for _ in range(20):
            batches = serve_images.draw_batches(draw, files, rejected, ("left", "right"))
            assert sorted(len(batch.rows) for batch in batches) == sorted(serve_images.SIZES)
            for batch in batches:
                wrong = [bool(row.wrong(rejected)) for row in batch.rows]
                assert not any(row.wrong(rejected) for row in batch.good)
                assert all(w or row.paths == g.paths for w, row, g in zip(wrong, batch.rows, batch.good, strict=True))
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

    def test_what_befalls_files_is_what_it_says(self):
        draw = random.Random(1)
        for fmt in image_bytes.FORMATS:
            for _ in range(60):
                content, done, good = image_bytes.hurt(draw, image_bytes.drawn(draw, fmt), fmt)
                if good is not None and done != "huge header":
                    assert (fuzz_images.pixels(content) is not None) == good, (fmt, done)


class TestRounds:
    def test_drawn_schemas_are_taken_and_drawn_files_read(self):
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

    def test_the_same_seed_draws_the_same(self):
        drawn = [csv_file(d := random.Random(7), p := draw_plan(d), draw_shape(d, p, rows=9), first=0) for _ in "ab"]
        assert drawn[0] == drawn[1]

    def test_a_fault_is_kept_and_more_of_its_kind_are_counted(self, tmp_path):
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

    def test_wrong_options_are_refused(self, capsys):
        with pytest.raises(SystemExit) as refused:
            main(["--only", "juggle"])
        assert refused.value.code == 2
        told = capsys.readouterr().err
        assert all(kind in told for kind in KINDS)
