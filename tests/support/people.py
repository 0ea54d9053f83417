"""Rows with every kind of feature, and schemas of them."""

from __future__ import annotations

SCHEMA = """\
name: people
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: z_score, missing: mean, indicator: true}
  - {name: height, kind: numeric, transform: min_max, missing: median}
  - {name: pay, kind: numeric, transform: log, missing: 0.0}
  - {name: size, kind: numeric, transform: {bucketize: 4}}
  - {name: steps, kind: numeric, transform: {bucketize: [1, 5]}}
  - {name: point, columns: [p0, p2], kind: numeric, transform: {scale: [0, 10]}}
  - {name: city, kind: category, missing: nowhere}
  - {name: grade, kind: category, values: [a, b], oov_buckets: 2}
  - {name: street, kind: category, hash_buckets: 50}
  - {name: member, kind: bool, missing: false}
  - {name: pet, columns: [pet0, pet2], kind: one_hot}
  - {name: words, kind: text, length: 3}
  - {name: bag, kind: text}
  - {name: city_x_grade, kind: cross, of: [city, grade], buckets: 20}
  - {name: note, kind: ignore}
  - {name: w, kind: weight}
label: {name: y, kind: category, values: [no, yes], aliases: {"yes!": yes}}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""

HEADER = "id,age,height,pay,size,steps,p0,p1,p2,city,grade,street,member,pet0,pet1,pet2,words,bag,note,w,y"


def people_row(i: int) -> str:
    """A valid row, with missing values here and there."""
    pet = ["1,0,0", "0,1,0", "0,0,1"][i % 3]
    return (
        f"k{i},{'?' if i % 7 == 0 else 20 + i % 50},{'' if i % 11 == 0 else 150 + i % 40},{'?' if i % 5 == 0 else i},"
        f"{i % 100},"
        f"{i % 8},{i % 10},{i % 9},{i % 8}, {'?' if i % 6 == 0 else 'abc'[i % 3]},{'abz'[i % 3]},street {i % 20},"
        f'{["yes", "No", "TRUE", "?"][i % 4]},{pet},The cat {i % 3},"a, {"b " * (i % 3)}",x,{i % 3},'
        f"{['yes', 'no', 'yes!'][i % 3]}"
    )


# Nothing is measured, and almost nothing is traced: for tests of records and files.
_LEAN = """\
name: people
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: none, missing: 0.0}
  - {name: size, kind: numeric, transform: none}
  - {name: point, columns: [p0, p2], kind: numeric, transform: none}
%s
label: {name: y, kind: category, values: [no, yes], aliases: {"yes!": yes}}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""
_IGNORED = [name for name in HEADER.split(",") if name not in ("id", "age", "size", "p0", "p1", "p2", "y")]
LEAN_SCHEMA = _LEAN % "\n".join(f"  - {{name: {name}, kind: ignore}}" for name in _IGNORED)
# The same with a mean and a standard deviation, for which the train split is read first.
MEASURED_SCHEMA = LEAN_SCHEMA.replace("transform: none, missing: 0.0", "transform: z_score, missing: mean")


def people_csv(rows: int) -> str:
    return "\n".join([HEADER, *map(people_row, range(rows))]) + "\n"
