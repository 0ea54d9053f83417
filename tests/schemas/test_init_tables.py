"""Schemas of tables that are made to show one thing each; every schema reads its own data."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schemas import storage
from schemas.errors import MillraceError, UsageError
from schemas.init.survey import survey
from schemas.init.tables import Inferred, infer_table
from schemas.spec.features import NumericLabel
from schemas.spec.table import Schema
from tests.support.csv_reading import table_schema

Cell = Callable[[int, random.Random], object]


def put(folder: Path, columns: dict[str, Cell], *, rows: int = 400, header: bool = True) -> str:
    """Writes a table whose cells are computed from the row's number, and a generator."""
    path, rng = folder / "table.csv", random.Random(7)
    lines = [",".join(columns)] if header else []
    lines += [",".join(str(cell(i, rng)) for cell in columns.values()) for i in range(rows)]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def written(path: str, **options: Any) -> tuple[Schema, Inferred]:
    inferred = infer_table([path], **options)
    return table_schema(inferred.text), inferred


def kinds(schema: Schema) -> dict[str, str]:
    return {feature.name: feature.kind for feature in schema.features}


def share(i: int, rng: random.Random) -> str:
    return f"{rng.random():.3f}"


def yes_no(i: int, rng: random.Random) -> str:
    return "yes" if random.Random(i).random() < 0.4 else "no"


def one_of(*values: str) -> Cell:
    return lambda i, rng: rng.choice(values)


def test_every_kind(tmp_path):
    path = put(
        tmp_path,
        {
            "order_id": lambda i, rng: f"A-{i:05d}",
            "row": lambda i, rng: i + 1,
            "customer_id": lambda i, rng: f"C{i % 61}",
            "amount": lambda i, rng: f"{rng.lognormvariate(1, 2):.2f}" if i % 9 else "n/a",
            "share": share,
            "colour": one_of("red", "blue", "No colour: none"),
            "zip": lambda i, rng: f"{rng.randrange(40) * 7:05d}",
            "member": one_of("Y", "N"),
            "flag": one_of("0.0", "1.0"),
            "when": lambda i, rng: f"2026-01-{i % 28 + 1:02d} 10:00",
            "day": lambda i, rng: 20260100 + i % 28 + 1,
            "remark": lambda i, rng: " ".join(rng.choice(["the", "quick", "brown", "fox", "jumps"]) for _ in range(9)),
            "said": lambda i, rng: "".join(rng.choice("很好不错飞机晚点") for _ in range(25)),
            "again": lambda i, rng: f"C{i % 7}",
            "and_again": lambda i, rng: f"C{i % 7}",
            "price": lambda i, rng: f'"${rng.randrange(1000, 9000):,}"',
            "width": lambda i, rng: f"{rng.randrange(1000)} cm",
            "shouted": one_of("YES", "Yes", "NO"),
            "zone": lambda i, rng: "x" if i == 3 else rng.randrange(1, 20),
            "always": lambda i, rng: "x",
            "never": lambda i, rng: "",
            "mostly_gone": lambda i, rng: "seen" if i % 10 == 0 else "",
            "sample_weight": share,
            "email": lambda i, rng: f"a{i % 50}@b.c",
            "late": yes_no,
        },
    )
    schema, inferred = written(path)
    assert kinds(schema) == {
        "order_id": "key",
        "row": "ignore",
        "customer_id": "ignore",
        "amount": "numeric",
        "share": "numeric",
        "colour": "category",
        "zip": "category",
        "member": "bool",
        "flag": "bool",
        "when": "ignore",
        "day": "ignore",
        "remark": "text",
        "said": "text",
        "again": "category",
        "and_again": "category",
        "price": "ignore",
        "width": "ignore",
        "shouted": "bool",
        "zone": "category",
        "always": "ignore",
        "never": "ignore",
        "mostly_gone": "ignore",
        "sample_weight": "ignore",
        "email": "ignore",
    }
    amount = next(f for f in schema.features if f.name == "amount")
    assert amount.model_dump(include={"transform", "missing", "indicator"}) == {
        "transform": "log",
        "missing": "median",
        "indicator": True,
    }
    texts = {
        f.name: f.model_dump(include={"ngrams", "characters", "top_k"}, exclude_none=True)
        for f in schema.features
        if f.kind == "text"
    }
    assert texts == {
        "remark": {"ngrams": (1, 2), "top_k": 20_000},
        "said": {"characters": (2, 4), "top_k": 20_000},
    }
    assert schema.csv.missing == ("n/a", "")
    assert schema.split.model_dump()["by"] == ("customer_id",)
    assert schema.label.model_dump(include={"name", "kind", "values"}) == {
        "name": "late",
        "kind": "category",
        "values": ("no", "yes"),
    }
    assert [note.partition(";")[0] for note in inferred.notes] == [
        "'day' is ignored: whole numbers from 20,260,101 to 20,260,128, which a float32 cannot tell apart",
        "'price' is ignored: numbers written as '$5,487'",
        "'width' is ignored: numbers written as '729 cm'",
    ]
    assert inferred.flags == ""
    assert "# always" not in inferred.text
    assert "is always 'x'" in inferred.text
    assert inferred.rows == 400


def test_one_hot_groups_next_to_each_other_and_a_flag(tmp_path):
    def hot(prefix: str, count: int, modulus: int) -> dict[str, Cell]:
        def column(k: int) -> Cell:
            return lambda i, rng: int(i // modulus % count == k)

        return {f"{prefix}_{k}": column(k) for k in range(count)}

    columns = {"flag": one_of("0", "1"), **hot("kind", 3, 1), **hot("area", 4, 5), "y": yes_no}
    schema, *_ = written(put(tmp_path, {"share": share, **columns}))
    groups = [f for f in schema.features if f.kind == "one_hot"]
    assert [feature.refs for feature in groups] == [
        ("kind_0", "kind_1", "kind_2"),
        ("area_0", "area_1", "area_2", "area_3"),
    ]
    assert kinds(schema)["flag"] == "bool"
    without, *_ = written(put(tmp_path, {"share": share, **columns}, header=False))
    assert [f.refs for f in without.features if f.kind == "one_hot"] == [(2, 3, 4), (5, 6, 7, 8)]
    columns["kind_1"] = lambda i, rng: int(i % 3 == 1 or i == 17)  # two ones in a single record
    broken, *_ = written(put(tmp_path, {"share": share, **columns}))
    assert [f.name for f in broken.features if f.kind == "one_hot"] == ["area"]


def test_what_tells_the_label_is_ignored(tmp_path):
    path = put(
        tmp_path,
        {
            "share": share,
            "copy": yes_no,
            "code": lambda i, rng: "P" if yes_no(i, rng) == "yes" else "Q",
            "refund": lambda i, rng: f"{rng.random():.2f}" if yes_no(i, rng) == "yes" else "",
            "gaps": lambda i, rng: "" if rng.random() < 0.3 else {"yes": "P", "no": "Q"}[yes_no(i, rng)],
            "rescued": lambda i, rng: rng.randrange(99) if yes_no(i, rng) == "yes" and i % 2 else "",
            "hint": lambda i, rng: yes_no(i, rng) if rng.random() < 0.7 else "no",
            "y": yes_no,
        },
        rows=3000,
    )
    schema, inferred = written(path)
    ignored = [name for name, kind in kinds(schema).items() if kind == "ignore"]
    assert ignored == ["copy", "code", "refund", "gaps", "rescued"]
    assert kinds(schema)["hint"] == "bool"
    assert "by it alone is wrong 100 % less often than one without it (among the " in inferred.text
    assert len(inferred.notes) == 5
    assert all("label" in note for note in inferred.notes)


def test_a_copy_of_a_number_that_is_to_be_predicted(tmp_path):
    path = put(
        tmp_path,
        {
            "size": share,
            "cents": lambda i, rng: round(100 * (i * 37 % 991) / 7),
            "noise": share,
            "log": lambda i, rng: "" if i % 5 == 0 else f"{math.log1p(i * 37 % 991 / 7):.4f}",
            "price": lambda i, rng: f"{i * 37 % 991 / 7:.2f}",
        },
    )
    schema, inferred = written(path)
    assert isinstance(schema.label, NumericLabel)
    assert [schema.label.name, *(kinds(schema)[n] for n in ("cents", "log"))] == ["price", "ignore", "ignore"]
    assert "(among the 320 of 400 sampled records that have a value)" in inferred.text
    assert "regression" in inferred.text


def test_names_that_no_schema_takes(tmp_path):
    columns = {"Body Mass (g)": share, "2nd": share, "": share, "true": one_of("a", "b"), "7": share, "the y": yes_no}
    schema, *_ = written(put(tmp_path, columns), label="the y")
    assert [f.name for f in schema.features] == ["body_mass_g", "column_2nd", "column_2", "true", "column_7"]
    assert [f.refs for f in schema.features] == [("Body Mass (g)",), ("2nd",), (2,), ("true",), ("7",)]
    assert schema.label.refs == ("the y",)


def test_values_that_yaml_would_read_otherwise(tmp_path):
    values = ("yes", "True", "1.0", "007", "a: b", "it's", "Zoë #1", "[x]", "-")
    schema, *_ = written(put(tmp_path, {"share": share, "word": one_of(*values), "y": yes_no}))
    word = next(f for f in schema.features if f.name == "word")
    assert set(word.model_dump()["values"]) == {*values, "1"} - {"1.0"}


def test_classes_that_are_spelled_in_two_ways_are_declared_once(tmp_path):
    grades: dict[str, Cell] = {"share": share, "grade": lambda i, rng: f"{1 + i % 3}{'.0' if i // 3 % 2 else ''}"}
    schema, inferred = written(put(tmp_path, grades), label="grade")
    assert schema.label.model_dump()["values"] == ("1", "2", "3")
    assert inferred.notes == ("'grade': 199 of 400 values are spelled like '1.0' and read as '1'",)


def test_values_that_differ_in_spelling_only_are_pointed_out(tmp_path):
    columns = {
        "share": share,
        "town": lambda i, rng: ["Köln", "Ko\u0308ln", "Bonn", "Bonn\xa0", "Trier"][i % 5],
        "answer": lambda i, rng: ["TRUE", "1", "yes", "0", "no"][i % 5],
        "y": lambda i, rng: ["up", "Up", "down"][random.Random(i).randrange(3)],
    }
    _, inferred = written(put(tmp_path, columns), label="y")
    label, town, answer = inferred.notes
    assert label.startswith("'y': 'up' (")
    assert " and 'Up' (" in label
    assert town == (
        "'town': 'Bonn' (80) and 'Bonn\\xa0' (80); 'Ko\\u0308ln' (80) and 'Köln' (80) differ in spelling only, and are "
        "different values to a model; write them alike in the files"
    )
    assert answer.startswith(
        "'answer': '0' (80) and 'no' (80); '1' (80) and 'True' (80) and 'yes' (80) differ in spell"
    )


def test_na_is_a_code_among_codes_of_two_capital_letters(tmp_path):
    """As Namibia is among countries; beside numbers, and among words, it means missing."""
    columns = {
        "country": one_of("NA", "NE", "ZA", "BW"),
        "size": lambda i, rng: "NA" if i % 9 == 0 else f"{rng.random():.3f}",
        "word": one_of("NA", "Ne", "Za", "Bw"),
        "y": yes_no,
    }
    schema, inferred = written(put(tmp_path, columns))
    tokens = schema.missing_tokens
    assert tokens == {"country": ("",), "size": ("NA", ""), "word": ("NA", ""), "y": ("NA", "")}
    country = next(f for f in schema.features if f.name == "country")
    assert set(country.model_dump()["values"]) == {"BW", "NA", "NE", "ZA"}
    assert "; NA is taken for a code like the others; list it in `missing_tokens` if it means missing" in inferred.text
    alone, _ = written(put(tmp_path, {"country": columns["country"], "y": yes_no}))
    assert alone.csv.missing == ("",)
    of_label, inferred = written(put(tmp_path, {**columns, "grade": columns["country"]}), label="grade")
    assert of_label.label.tokens(of_label.csv.missing) == ("",)
    assert "# NA is taken for a code like the others" in inferred.text


def test_hundreds_of_columns(tmp_path):
    names = [f"g{i * 7919 % 10_007}x" for i in range(300)]
    path = tmp_path / "wide.csv"
    rng = random.Random(1)
    lines = [",".join([*names, "y"])]
    lines += [",".join([*(f"{rng.random():.2f}" for _ in names), str(i % 3)]) for i in range(60)]
    path.write_text("\n".join(lines) + "\n")
    schema, *_ = written(str(path))
    assert [(f.kind, f.width) for f in schema.features] == [("numeric", 300)]
    assert schema.label.name == "y"


def test_numbers_among_which_something_else_stands_for_missing(tmp_path):
    columns: dict[str, Cell] = {
        "a": lambda i, rng: "closed" if i % 20 == 0 else f"{rng.random():.3f}",
        "b": lambda i, rng: "oops" if i == 5 else f"{rng.random():.3f}",
        "c": lambda i, rng: "-999" if i % 20 == 0 else f"{rng.random():.3f}",
        "y": yes_no,
    }
    schema, inferred = written(put(tmp_path, columns))
    assert schema.csv.missing == ("closed", "")
    assert kinds(schema) == dict.fromkeys("abc", "numeric")
    assert "# 1 of 400 records (0.25 %) will be rejected as not_a_number in 'b'; first" in inferred.text
    assert "-999 occurs 20 times" in inferred.text
    assert "1 of 400 records (0.25 %) will be rejected" in inferred.notes[0]
    assert inferred.flags == ""  # ten are allowed


@pytest.mark.parametrize("rows", [400, 9_000])  # of few values, and of too many to keep
def test_numbers_that_a_float32_merges_are_no_plain_numbers(tmp_path, rows):
    columns: dict[str, Cell] = {
        "created": lambda i, rng: 1764288000 + 7 * i,
        "at": lambda i, rng: 1764288000000 + 1000 * i,
        "place": lambda i, rng: f"{52 + rng.random() / 100:.9f}",
        "daily": lambda i, rng: 1264288000 + 86400 * rng.randrange(3000),
        "share": share,
        "y": yes_no,
    }
    schema, inferred = written(put(tmp_path, columns, rows=rows))
    assert kinds(schema) == {
        "created": "ignore",
        "at": "ignore",
        "place": "numeric",
        "daily": "numeric",
        "share": "numeric",
    }
    created, at, place = inferred.notes
    assert created.startswith("'created' is ignored: whole numbers from 1,764,288,000 to ")
    assert "which a float32 cannot tell apart; of dates or times, write year, month, weekday or hour" in created
    assert at.startswith("'at' is ignored: whole numbers from 1,764,288,000,000 to ")
    assert place.startswith("'place' loses digits: of ")
    assert place.endswith("subtract a number near them from all of them, or declare kind: category")


def test_the_logarithms_of_a_label_are_told_apart(tmp_path):
    columns: dict[str, Cell] = {
        "x": share,
        "cost": lambda i, rng: 0 if i % 8 == 0 else round(rng.lognormvariate(1, 2.5), 2),
    }
    _, inferred = written(put(tmp_path, columns), label="cost")
    assert "log1p learns ln(1 + x); transform: log learns ln(x), and would reject records of 0" in inferred.text


@pytest.mark.parametrize(
    ("cell", "evidence"),
    [
        (lambda i, rng: f"{i % 997},{i % 7}", "written with a decimal comma as '0,0'"),
        (lambda i, rng: f"{1000 * i + 100:,}", "written as '1,100'"),
        (lambda i, rng: f"1.{i % 1000:03d},{i % 7}", "written with a decimal comma as '1.000,0'"),
        (lambda i, rng: f"(1,{i % 900 + 100}.34)" if i % 3 == 0 else f"{i / 7:.2f}", "written as '(1,100.34)'"),
        (lambda i, rng: f"\u2212{i % 397}.34" if i % 2 else f"{i % 397}.5", "written as '\u22121.34'"),
        (lambda i, rng: f"1\u202f{i % 900 + 100},5", "written with a decimal comma as '1 100,5'"),
    ],
)
def test_numbers_written_otherwise_are_shown_as_a_cell_has_them(tmp_path, cell, evidence):
    schema, inferred = written(put(tmp_path, {"share": share, "much": lambda i, rng: f'"{cell(i, rng)}"', "y": yes_no}))
    assert kinds(schema)["much"] == "ignore"
    assert evidence in inferred.text
    (note,) = inferred.notes
    assert f"'much' is ignored: numbers {evidence}; write them plainly" in note


def test_the_job_is_told_of_rejects_wherever_they_are_in_the_files(tmp_path):
    head, tail = tmp_path / "a.csv", tmp_path / "b.csv"
    head.write_text("share,y\n" + "".join(f"0.{i % 89:02d},{'yes' if i % 3 else 'no'}\n" for i in range(900)))
    tail.write_text("share,y\n" + "".join(f"0.{i % 89:02d},{'yes' if i % 4 else ''}\n" for i in range(100)))
    inferred = infer_table([str(head), str(tail)])
    assert inferred.notes == (
        f"25 of 1,000 records (2.5 %) will be rejected as missing_label in 'y'; first {tail} at byte 8: "
        "found '', which means missing; expected a label",
    )
    assert inferred.flags == " --max_reject_fraction 0.027"


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_the_header_of_a_file_that_was_appended_is_no_value(tmp_path, mark):
    choices = (("bell", "flat"), ("foul", "none"), ("edible", "poisonous"))
    rows = [*itertools.product(*choices)] * 18
    content = f"{mark}cap,odor,class\n" + "".join(",".join(row) + "\n" for row in rows)
    path = tmp_path / "all.csv"
    path.write_text(content * 2)
    schema, inferred = written(str(path), label="class")
    assert schema.csv.header == "present"
    assert tuple(item.model_dump()["values"] for item in schema.items) == choices
    rejected = "1 of 289 records (0.35 %) will be rejected as repeated_header"
    assert inferred.notes[0].startswith(f"{rejected}; first {path} at byte {len(content.encode()):,}: ")


@pytest.mark.parametrize("rows", [12, 300])
def test_units_below_the_header_and_a_total_below_the_table_shape_nothing(tmp_path, rows):
    lines = [f"{i % 37 / 2},{'p' if i % 3 else 'q'},{'up' if i * i % 5 > 1 else 'down'}" for i in range(rows)]
    path = tmp_path / "units.csv"
    path.write_text("\n".join(["temp,site,state", "[C],-,-", *lines, "9.5,total,"]) + "\n")
    schema, inferred = written(str(path))
    assert [(item.name, item.kind) for item in schema.items] == [
        ("temp", "numeric"),
        ("site", "category"),
        ("state", "category"),
    ]
    assert [item.model_dump()["values"] for item in schema.items[1:]] == [("p", "q"), ("down", "up")]
    assert any("rejected as not_a_number in 'temp'" in note and "found '[C]'" in note for note in inferred.notes)
    assert any("rejected as missing_label in 'state'" in note for note in inferred.notes)


@pytest.mark.parametrize(
    ("late", "declared"),
    [('0.5,"two\nlines",yes\n', "quoted_newlines: true"), (b"0.5,Zo\xeb,yes\n", "encoding: latin-1")],
)
def test_what_shows_only_late_in_a_file(tmp_path, late, declared):
    path = Path(put(tmp_path, {"share": share, "word": one_of("a", "b"), "y": yes_no}, rows=100_000))
    path.write_bytes(path.read_bytes() + (late if isinstance(late, bytes) else late.encode()) * 20)
    _, inferred = written(str(path))
    assert declared in inferred.text
    assert inferred.rows == 100_020
    assert inferred.flags == ""


def test_several_files_of_one_form(tmp_path):
    first = put(tmp_path, {"share": share, "y": yes_no})
    second = tmp_path / "second.csv"
    second.write_text(Path(first).read_text())
    assert infer_table([first, str(second)]).rows == 800
    second.write_text("share,other\n0.1,yes\n")
    with pytest.raises(UsageError, match="begins with 'share,other', but"):
        infer_table([first, str(second)])


def refused(path: str, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        infer_table([path], **options)
    return str(error.value)


def test_labels_that_cannot_be(tmp_path):
    columns: dict[str, Cell] = {"share": share, "same": lambda i, rng: "x", "gone": lambda i, rng: "", "y": yes_no}
    columns["name"] = lambda i, rng: f"Smith {i}"
    columns["town"] = lambda i, rng: f"Town {i % 150}"
    columns["row"] = lambda i, rng: 399 - i
    columns["customer_id"] = lambda i, rng: 7 * i + 1000
    columns["weight"] = lambda i, rng: f"{i % 50} kg"
    path = put(tmp_path, columns)
    assert "no such column; did you mean share?" in refused(path, label="shares")
    assert "one class, 'x', in all 400 records" in refused(path, label="same")
    assert "no value in any of the 400 records" in refused(path, label="gone")
    assert "400 classes in 400 records, 1.0 for each" in refused(path, label="name")
    assert "150 classes in 400 records, 2.7 for each, of which a model learns nothing" in refused(path, label="town")
    assert "a number of its own for each record, 0 to 399, of which" in refused(path, label="row")
    assert "a number of its own for each record, 1,000 to 3,793, of which" in refused(path, label="customer_id")
    assert "has numbers written as '0 kg'; write them plainly" in refused(path, label="weight")


def test_a_label_that_cannot_be_is_not_guessed(tmp_path):
    columns: dict[str, Cell] = {"share": share, "flag": yes_no, "town": lambda i, rng: f"Town {i % 150}"}
    assert written(put(tmp_path, columns))[0].label.name == "flag"
    assert written(put(tmp_path, {**columns, "row": lambda i, rng: i}))[0].label.name == "flag"
    columns = {"town": columns["town"], "row": lambda i, rng: i}
    assert "no column can be the label: 'town' has 150 classes in 400 records" in refused(put(tmp_path, columns))


def all_of(value: str) -> Cell:
    return lambda i, rng: value


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": all_of("NA"), "b": all_of("")}, "no column has a value in any record"),
        ({"a": all_of(""), "b": all_of("x"), "y": yes_no}, "nothing is left that a model could learn from"),
    ],
)
def test_tables_with_nothing_to_learn(tmp_path, columns, message):
    assert message in refused(put(tmp_path, columns))


def test_names_of_indicators_and_columns_do_not_meet(tmp_path):
    def flag(i: int, rng: random.Random) -> int:
        return int(i % 3 == 0)

    def age(i: int, rng: random.Random) -> object:
        return "" if i % 5 == 0 else 20 + i % 41

    before, _ = written(put(tmp_path, {"age_missing": flag, "age": age, "y": yes_no}))
    assert [(f.name, *f.refs) for f in before.features] == [("age_missing", "age_missing"), ("age_2", "age")]
    after, _ = written(put(tmp_path, {"age": age, "age_missing": flag, "y": yes_no}))
    assert [(f.name, *f.refs) for f in after.features] == [("age", "age"), ("age_missing_2", "age_missing")]
    label, _ = written(put(tmp_path, {"age": age, "x": share, "age_missing": yes_no}), label="age_missing")
    assert [f.name for f in label.features] == ["age_2", "x"]


def test_a_name_too_long_for_a_file_is_cut(tmp_path):
    long = "What is the highest degree, or level of school, that you have completed? " * 4
    plain = "c" * 294
    words = one_of("a", "b")
    columns: dict[str, Cell] = {f'"{long}"': words, plain: words, f"{plain}2": share, "y": yes_no}
    schema, inferred = written(put(tmp_path, columns))
    assert [len(feature.name) <= 102 for feature in schema.features] == [True] * 3
    assert [feature.refs for feature in schema.features] == [(long.strip(),), (plain,), (f"{plain}2",)]
    written_by_hand = inferred.text.replace(f"name: {schema.features[1].name}, column: ", "name: ")
    with pytest.raises(UsageError, match="has 294 characters; expected at most 200, since files are named"):
        table_schema(written_by_hand)


@pytest.mark.parametrize("rows", [1, 12, 60, 130])
def test_small_tables_have_no_empty_split(tmp_path, rows: int):
    schema, *_ = written(put(tmp_path, {"customer_id": lambda i, rng: i % 21, "share": share, "y": yes_no}, rows=rows))
    assert "eval" in schema.split.splits or rows < 12


def test_each_split_of_a_table_of_few_distinct_rows_has_all_classes(tmp_path):
    columns: dict[str, Cell] = {
        "created": lambda i, rng: 1764288000 + 7 * i,
        "kind": one_of("p", "q"),
        "late": one_of("yes", "no"),
    }
    schema, _ = written(put(tmp_path, columns, rows=1000))
    assert schema.split.model_dump() == {"by": ("created",), "train": 0.8, "eval": 0.1, "test": 0.1}


def test_files_in_a_bucket(tmp_path, bucket):
    local = put(tmp_path, {"share": share, "y": yes_no})
    storage.write_bytes(f"{bucket}/t.csv", Path(local).read_bytes())
    remote, here = infer_table([f"{bucket}/t.csv"], name="t"), infer_table([local], name="t")
    texts = [table.text.partition("\nname: ")[2] for table in (remote, here)]  # after the lines that name the file
    assert texts[0] == texts[1] != ""


CELLS = st.sampled_from(
    ["", "0", "1", "2", "1.0", "-3.5", "1e400", "nan", "NA", "?", "None", "-", "yes", "no", "True", "007", "é"]
    + ["a b c d e f g", '"x, y"', '"two\nlines"', '""""', '"', "x\ty", "2026-01-31", "20260131", "#", ": ", "["]
    + ["\U0001f600", "$1,000", "null", "+5", "a'b"]
)
TEXT = st.one_of(CELLS, st.text(max_size=6), st.integers().map(str), st.floats().map(str))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    width=st.integers(1, 6),
    cells=st.lists(TEXT, min_size=1, max_size=60),
    repeats=st.integers(1, 8),
    delimiter=st.sampled_from(",;\t"),
)
@example(width=1, cells=[*[""] * 25, "-3.5", "1e400", "0\0\x80\x80\U00010000\U00010000"], repeats=2, delimiter=",")
def test_tables_of_odd_cells(tmp_path, width, cells, repeats, delimiter):
    rows = [delimiter.join(cells[i : i + width]) for i in range(0, len(cells), width)]
    path = tmp_path / "t.csv"
    path.write_bytes("\n".join(rows * repeats).encode("utf-8", "surrogatepass"))
    with contextlib.suppress(UsageError):
        inferred = infer_table([str(path)])
        assert inferred.text.startswith("# Written by")


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_any_bytes(tmp_path, data):
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    with contextlib.suppress(MillraceError):
        assert survey([str(path)], sample=False).rows >= 1
