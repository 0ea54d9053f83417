"""Thresholds of drift in a schema."""

from __future__ import annotations

import pytest

from schemas.errors import UsageError
from schemas.spec.gates import Limits
from schemas.spec.loader import AnySchema, parse_schema

TEXT = """\
name: parcels
format: csv
csv: {header: present}
features:
  - {name: id, kind: key%(id)s}
  - {name: size, kind: numeric%(size)s}
  - {name: city, kind: category%(city)s}
label: {name: late, kind: category, values: ["no", "yes"]%(late)s}
%(table)s
"""
IMAGES = "name: x\nformat: image_folder\nimages: {resize: {exact: [8, 8]}}\n%s\n"


def parcels(**drift: str) -> AnySchema:
    places = {name: f", drift: {drift[name]}" if name in drift else "" for name in ("id", "size", "city", "late")}
    table = f"drift: {drift['table']}" if "table" in drift else ""
    return parse_schema((TEXT % (places | {"table": table})).encode(), "s.yaml")


@pytest.mark.parametrize(
    ("drift", "limits"),
    [
        ({}, {"size": None, "city": None, "late": None}),
        ({"table": "0.1"}, dict.fromkeys(("size", "city", "late"), Limits(fail=0.1))),
        ({"table": "1"}, {"size": Limits(fail=1.0)}),
        ({"table": "{warn: 0.1}", "size": "0.2"}, {"size": Limits(fail=0.2), "city": Limits(warn=0.1)}),
        ({"table": "0.1", "late": "none"}, {"late": None, "size": Limits(fail=0.1)}),
        ({"city": "{warn: 0.1, fail: 0.2}"}, {"city": Limits(warn=0.1, fail=0.2), "size": None}),
    ],
)
def test_a_feature_has_its_own_thresholds_or_the_tables(
    drift: dict[str, str], limits: dict[str, Limits | None]
) -> None:
    found = parcels(**drift)
    assert {name: found.drift_limits(name) for name in limits} == limits
    assert found.limits_drift == any(limits.values())


@pytest.mark.parametrize("drift", ["0", "-1", "1.5", "yes", "true", "[0.1]", "{wran: 0.1}", "{warn: 2}", "{fail: x}"])
def test_what_is_no_threshold(drift: str) -> None:
    with pytest.raises(UsageError, match=r"s.yaml:6: features\[1\].drift: found .*; allowed: a distance above which"):
        parcels(size=drift)
    with pytest.raises(UsageError, match=r"s.yaml:9: drift: found .*; allowed: a distance above which"):
        parcels(table=drift)
    with pytest.raises(UsageError, match=r"i.yaml:4: drift: found .*; allowed: a distance above which"):
        parse_schema((IMAGES % f"drift: {drift}").encode(), "i.yaml")


@pytest.mark.parametrize(
    ("drift", "told"),
    [
        ({"table": "{}"}, "s.yaml:9: drift: give `warn`, `fail` or both"),
        ({"late": "{warn: 0.2, fail: 0.1}"}, "s.yaml:8: label.drift: warn: 0.2 must be less than fail: 0.1"),
        ({"id": "0.1"}, r"s.yaml:5: features\[0\].drift: unknown key; allowed: name, column, kind"),
    ],
)
def test_what_makes_no_sense(drift: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parcels(**drift)


def test_thresholds_are_no_part_of_the_fingerprint() -> None:
    assert parcels(table="0.1", size="none", late="{warn: 0.1}").fingerprint == parcels().fingerprint
    plain, limited = (parse_schema((IMAGES % drift).encode(), "i.yaml") for drift in ("", "drift: 0.1"))
    assert plain.fingerprint == limited.fingerprint
    assert limited.drift_limits("image/brightness") == Limits(fail=0.1)
