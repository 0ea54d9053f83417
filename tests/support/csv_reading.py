"""Reading complete CSV files in tests: the rows and rejects of every range, as plain Python values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from schemas.csv.file import open_csv, split_ranges
from schemas.csv.reader import read_range
from schemas.rejects import Reject
from schemas.spec.table import OFFSET, Schema

TEXTS = ("a", "b", "c")


def schema_of(
    features: Sequence[Mapping[str, object]] | None = None,
    *,
    label: Mapping[str, object] | None = None,
    split: Mapping[str, object] | None = None,
    **csv: object,
) -> Schema:
    """A schema; by default, three text columns a, b, c, where c is the label and no value means missing."""
    values: dict[str, Any] = {
        "name": "some",
        "format": "csv",
        "csv": {"missing": (), **csv},
        "features": tuple(features)
        if features is not None
        else ({"name": "a", "kind": "text"}, {"name": "b", "kind": "text"}),
        "label": label or {"name": "c", "kind": "category"},
    }
    if split is not None:
        values["split"] = split
    return Schema.model_validate_json(json.dumps(values))


@dataclasses.dataclass(frozen=True)
class Reading:
    """The result of reading one file. A row has its values by column name; a vector of one value is that value."""

    rows: list[dict[str, Any]]
    rejects: list[Reject]
    read: int

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows]

    @property
    def reasons(self) -> list[tuple[int, str, str | None]]:
        """(offset, reason, column) of each reject."""
        return [(r.offset, r.reason, r.column) for r in self.rejects]


def read_all(
    path: Path,
    schema: Schema,
    *,
    range_bytes: int = 1 << 20,
    label: Literal["required", "optional"] = "required",
    **options: Any,
) -> Reading:
    """Reads every range of a file, in order."""
    file = open_csv(str(path), schema, label=label)
    rows: list[dict[str, Any]] = []
    rejects: list[Reject] = []
    read = 0
    for part in split_ranges(file, range_bytes=range_bytes):
        for decoded in read_range(part, schema, **options):
            assert decoded.read == decoded.batch.num_rows + len(decoded.rejects)
            rows.extend({name: _plain(value) for name, value in row.items()} for row in decoded.batch.to_pylist())
            rejects.extend(decoded.rejects)
            read += decoded.read
    assert [row[OFFSET] for row in rows] == sorted({row[OFFSET] for row in rows})
    return Reading(rows, rejects, read)


def read_bytes(folder: Path, data: bytes, schema: Schema, **options: Any) -> Reading:
    """Writes `data` to a file in `folder`, and reads it."""
    path = folder / "data.csv"
    path.write_bytes(data)
    return read_all(path, schema, **options)


def _plain(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value
