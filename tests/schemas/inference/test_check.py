"""A schema compared with new files: columns, rejects, unseen values, ranges."""

from __future__ import annotations

from pathlib import Path

from schemas.init.check import Differences, as_json, check_table, render
from schemas.spec.loader import parse_schema
from schemas.spec.table import Schema

SCHEMA = """\
name: parcels
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: weight, kind: numeric}
  - {name: km, kind: numeric, transform: {scale: [0, 100]}, missing: mean}
  - {name: age, kind: numeric, transform: {bucketize: [10, 20, 30]}}
  - {name: depot, kind: category, values: [Cork, Oslo], missing: "<unknown>"}
  - {name: depot_x_age, kind: cross, of: [depot, age], buckets: 10}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: [depot], train: 0.8, eval: 0.1, test: 0.1}
"""
ROW = "1.5,20,15,Cork,no\n"


def schema() -> Schema:
    found = parse_schema(SCHEMA.encode(), "s.yaml")
    assert isinstance(found, Schema)
    return found


def checked(folder: Path, text: str) -> tuple[Differences, list[str]]:
    path = folder / "new.csv"
    path.write_text(text)
    found = check_table(schema(), [str(path)])
    return found, list(render(found, schema(), "s.yaml"))


def test_data_that_fits(tmp_path):
    found, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW * 5 + "2,?,15,?,yes\n")
    assert not found.loses
    assert lines == ["s.yaml fits: 6 of 6 records would be written"]


def test_records_that_would_be_lost_by_reason(tmp_path):
    rows = ["heavy,20,15,Cork,no\n", ",20,15,Cork,no\n", "1,2,15,Cork,maybe\n", "1,2\n", "x,20,15,Cork,no\n"]
    found, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW * 5 + "".join(rows))
    assert found.loses
    assert found.rejected == {
        ("not_a_number", "weight"): 2,
        ("missing_value", "weight"): 1,
        ("label_not_in_values", "late"): 1,
        ("too_few_columns", ""): 1,
    }
    assert lines[0].startswith("rejected: 2 records (20 %), not_a_number in 'weight'; first ")
    assert "found 'heavy', expected a decimal number" in lines[0]
    assert lines[-2] == "classes that do not occur: yes of 'late'"
    assert lines[-1] == "s.yaml would lose records: 5 of 10 records would be written"


def test_values_that_the_schema_did_not_foresee(tmp_path):
    rows = "1,250,15,Rome,no\n" * 3 + "1,-5,99,Bonn,yes\n"
    found, lines = checked(tmp_path, "weight,km,age,depot,late\n" + ROW + rows)
    assert not found.loses
    assert lines == [
        "4 numbers of 'km' beyond the schema's 0 to 100: found -5 to 250",
        "1 number of 'age' beyond the schema's 10 to 30: found 15 to 99",
        "unseen values of 'depot' in 4 records (80 %), which become the id of unknown values: 'Rome' 3, 'Bonn' 1",
        "s.yaml fits: 5 of 5 records would be written",
    ]
    told = as_json(found)
    assert told["unseen_values"] == {"depot": {"Rome": 3, "Bonn": 1}}
    assert told["ranges"]["km"] == {"low": -5.0, "high": 250.0, "outside": 4}


def test_missing_and_extra_columns_and_the_others_all_the_same(tmp_path):
    found, lines = checked(tmp_path, "weight,kilometres,age,depot,late\n" + ROW * 3 + "heavy,1,2,Cork,no\n")
    assert found.loses
    assert found.missing == {"km": "km"}
    assert found.extra == {"kilometres": "- {name: new_column_1, column: 1, kind: ignore}"}
    assert found.rejected == {("not_a_number", "weight"): 1}
    assert "a job refuses it: lacks the column 'km'; has the column 'kilometres', which no feature reads" in lines[0]
    assert "missing column 'km', which 'km' reads" in lines[1]
    assert lines[-1].startswith("s.yaml does not fit: 1 file would be refused")


def test_a_file_without_the_label(tmp_path):
    found, lines = checked(tmp_path, "weight,km,age,depot\n1.5,20,15,Cork\n")
    assert found.missing == {"late": "late"}
    assert (found.read, found.lost) == (1, 0)
    assert found.loses
    assert "lacks the column 'late'" in lines[0]


def test_another_file_altogether_and_an_empty_one(tmp_path):
    found, lines = checked(tmp_path, "a;b\n1;2\n")
    assert found.loses
    assert "a job refuses it" in lines[0]
    found, lines = checked(tmp_path, "")
    assert found.loses
    assert "the file has no record" in lines[0]


def test_files_without_a_record_do_not_fit(tmp_path):
    for text in ("", "\n\n", "weight,km,age,depot,late\n"):
        found, lines = checked(tmp_path, text)
        assert found.loses
        assert lines[-1] == "s.yaml does not fit: a job finds no record to write"


def test_a_file_that_is_no_csv_is_named_for_what_it_is(tmp_path):
    path = tmp_path / "new.csv"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    found = check_table(schema(), [str(path)])
    assert found.loses
    assert list(render(found, schema(), "s.yaml")) == [
        f"{path}: a job refuses it: is a PNG image; expected a CSV file",
        "s.yaml does not fit: 1 file would be refused",
    ]


def test_categories_whose_values_only_a_dataset_knows_are_named(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("weight,km,age,depot,late\n" + ROW * 3)
    learned = parse_schema(SCHEMA.replace("values: [Cork, Oslo], ", "").encode(), "s.yaml")
    assert isinstance(learned, Schema)
    lines = list(render(check_table(learned, [str(path)]), learned, "s.yaml"))
    assert lines[-2].startswith("not checked for unseen values: depot; the schema lists none, a dataset does: ")
    assert lines[-1] == "s.yaml fits: 3 of 3 records would be written"
