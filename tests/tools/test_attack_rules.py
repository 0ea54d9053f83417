"""What the attack expects of records and rows, and how it draws and keeps them."""

from __future__ import annotations

import json
import random

import pytest

from tools.attack.__main__ import KINDS, main
from tools.attack.csv_bytes import csv_file, draw_shape
from tools.attack.oracle_records import Dialect, Record, fields, readable, records
from tools.attack.oracle_rows import Judge, number
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
