"""Schema files as text, with the part that a test is about; and those that ship."""

from __future__ import annotations

from pathlib import Path

import schemas
from schemas.spec.loader import parse_schema
from schemas.spec.table import Schema

FEATURE = "- {name: x, kind: numeric}"


def text(*features: str, label: str = "{name: y, kind: category}", more: str = "") -> str:
    """A schema file: features from line 4 on, then the label, then `more`."""
    lines = [
        "name: d",
        "format: csv",
        "features:",
        *(f"  {f}" for f in features or (FEATURE,)),
        f"label: {label}",
        more,
    ]
    return "\n".join(lines)


FOLDER = Path(schemas.__file__).parent


def csv_schema(name: str) -> Schema:
    """The schema of a CSV dataset that ships, by its name."""
    return table_schema((FOLDER / f"{name}.yaml").read_text())


def table_schema(content: str, *, for_job: bool = False) -> Schema:
    """The schema of rows that a text declares."""
    schema = parse_schema(content.encode(), "schema.yaml", for_job=for_job)
    assert isinstance(schema, Schema)
    return schema
