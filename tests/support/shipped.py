"""The schemas that ship."""

from __future__ import annotations

from pathlib import Path

import schemas
from schemas.spec.loader import load_schema
from schemas.spec.table import Schema

FOLDER = Path(schemas.__file__).parent


def csv_schema(name: str) -> Schema:
    """The schema of a CSV dataset that ships, by its name."""
    schema = load_schema(str(FOLDER / f"{name}.yaml"))
    assert isinstance(schema, Schema)
    return schema
