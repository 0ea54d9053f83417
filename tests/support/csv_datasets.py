"""Schemas and rows of small CSV datasets."""

from __future__ import annotations

PEOPLE = """\
name: people
format: csv
csv: {header: present, missing: ["?", ""]}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: z_score, missing: mean, indicator: true}
  - {name: scores, columns: [s0, s2], kind: numeric, transform: {scale: [0, 10]}, missing: 0.0}
  - {name: hours, kind: numeric, transform: log}
  - {name: work, kind: category, missing: "<unknown>"}
  - {name: city, kind: category, values: [Oslo, Rome], missing: "<unknown>"}
  - {name: pet, columns: [pet0, pet2], kind: one_hot}
  - {name: member, kind: bool, missing: false}
  - {name: title, kind: text, length: 3}
  - {name: words, kind: text}
  - {name: w, kind: weight}
  - {name: work_x_city, kind: cross, of: [work, city], buckets: 20}
label: {name: income, kind: category, values: ["<=50K", ">50K"]}
split: {by: row, train: 0.8, eval: 0.1, test: 0.1}
"""

PEOPLE_HEADER = "id,age,s0,s1,s2,hours,work,city,pet0,pet1,pet2,member,title,words,w,income"


def people_row(i: int) -> str:
    """A valid row whose label depends on the age and the pet; some values are missing."""
    age, pet = 20 + 37 * i % 50, i % 3
    scores = ",".join("?" if i % 13 == k else str((i + k) % 10) for k in range(3))
    work = ["Private", " Private", "State-gov", "?", "", "Self "][i % 6]
    label = ">50K" if age + 10 * pet > 55 else "<=50K"
    return (
        f"k{i},{'?' if i % 7 == 0 else age},{scores},{i % 60},{work},{['Oslo', 'Rome', '?', 'Paris'][i % 4]},"
        f"{['1,0,0', '0,1,0', '0,0,1'][pet]},{['yes', 'No', '?'][i % 3]},The {'big ' * (i % 4)}cat,"
        f"{' '.join('abcde'[: i % 6])},{1 + i % 2},{label}"
    )


AGES = """\
name: ages
format: csv
csv: {header: present}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric, transform: none}
label: {name: y, kind: category, values: ["no", "yes"]}
split: {by: [id], train: 0.6, eval: 0.2, test: 0.2}
"""

LATE = """\
name: late
format: csv
csv: {header: present}
features:
  - {name: id, kind: key}
  - {name: age, kind: numeric}
  - {name: hours, kind: numeric}
  - {name: work, kind: category}
label: {name: late, kind: category, values: ["no", "yes"]}
split: {by: row, train: 0.6, eval: 0.2, test: 0.2}
"""

NUMBERS = """\
name: numbers
format: csv
csv: {header: present}
features:
  - {name: x, kind: numeric, transform: none}
label: {name: y, kind: numeric}
split: {by: row, train: 0.9, eval: 0.1, test: 0}
"""

WAGES = """\
name: wages
format: csv
csv: {header: present}
features:
  - {name: age, kind: numeric}
  - {name: work, kind: category}
label: {name: wage, kind: numeric}
"""


REMARKS = """\
name: remarks
format: csv
csv: {header: present}
features:
  - {name: remark, kind: text, ngrams: [1, 2]}
  - {name: stars, kind: numeric}
label: {name: liked, kind: category, values: ["no", "yes"]}
split: {by: file, train: train.csv, eval: eval.csv}
"""


def remark_row(i: int) -> str:
    """A short text that says by a pair of words whether its writer was pleased; each ninth is empty."""
    liked, middle = i % 2, ["flight", "sëat", "crew 航班"][i % 3]
    remark = (
        f"{'not ' * (i // 3 % 2)}{['good', 'bad'][(liked + 1 + i // 3) % 2]} {middle}{'!' * (i % 4)} {'x' * (i % 5)}"
    )
    return f"{'' if i % 9 == 0 else remark.strip()},{i % 5},{['no', 'yes'][liked]}"
