"""What two schemas declare otherwise, in the words of an error."""

from __future__ import annotations

import pytest

from schemas.spec.differences import difference
from tests.support.csv_reading import table_schema

SCHEMA = """\
name: t
format: csv
features:
  - {name: age, kind: numeric}
  - {name: town, kind: category, values: [Oslo, Rom]}
label: {name: y, kind: category, values: ["no", "yes"]}
"""


@pytest.mark.parametrize(
    ("text", "changed", "expected"),
    [
        ("name: t", "name: t", ""),
        ('"yes"]}', '"yes", maybe]}', 'label: values: ["no", "yes"] in the model, ["no", "yes", "maybe"] in the data'),
        ("age, kind: numeric", "age, kind: numeric, transform: log", '"z_score" in the model, "log" in the data'),
        ("{name: age, kind", "{name: size, kind", "features: age: only in the model; features: size: only in the data"),
        ("Rom]", "Bonn]", 'features: town: values: ["Oslo", "Rom"] in the model, ["Oslo", "Bonn"] in the data'),
    ],
)  # fmt: skip
def test_a_difference_is_named(text: str, changed: str, expected: str) -> None:
    other = SCHEMA.replace(text, changed)
    message = difference(table_schema(SCHEMA), table_schema(other), called=("the model", "the data"))
    assert message == expected or (expected and message.endswith(expected))
