"""The raw values of a request as a line of CSV, in the form of the schema's own files."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import json
from collections.abc import Mapping
from typing import Any

from schemas.errors import UsageError
from schemas.formats import text
from schemas.spec.features import Feature, Label
from schemas.spec.forms import RawColumn
from schemas.spec.images import ImageSchema
from schemas.spec.loader import AnySchema
from schemas.spec.table import CsvOptions, Schema, served_features, serving_columns
from schemas.spec.words import canonical

ID = "_id"


@dataclasses.dataclass(frozen=True)
class RequestLayout:
    """The columns of the stored requests of a schema.

    Attributes:
      inputs: the columns that a request sends.
      names: the names of the cells of a stored line.
      csv: delimiter and quote.
      missing: the tokens of missing values, by input.
      key: the input that is the schema's key; None if there is none.
      images: whether the inputs are image files, whose names are stored.
    """

    inputs: tuple[RawColumn, ...]
    names: tuple[str, ...]
    csv: CsvOptions
    missing: Mapping[str, tuple[str, ...]]
    key: str | None
    images: bool

    @classmethod
    def of(cls, schema: AnySchema) -> RequestLayout:
        """Returns the layout of a schema's requests.

        Raises:
          UsageError: the schema reads a column named `_id`, which is the id of a request.
        """
        if isinstance(schema, ImageSchema):
            inputs = tuple(RawColumn(name, "string") for name in schema.image_names)
            return cls(inputs, schema.image_names, CsvOptions(header="present"), {}, None, images=True)
        names = tuple(name for feature in served_features(schema) for name in column_names(feature, schema))
        if ID in names:
            raise UsageError(f"{schema.name}: reads a column {ID!r}, the name that stored requests have for their ids")
        key = schema.key.name if schema.key is not None else None
        return cls(serving_columns(schema), names, schema.csv, schema.missing_tokens, key, images=False)

    @property
    def form(self) -> str:
        """JSON that is equal for two schemas if each reads the lines of the other."""
        return json.dumps([self.names, self.csv.delimiter, self.csv.quote, self.missing], sort_keys=True)

    def lines(self, values: Mapping[str, Any]) -> list[bytes]:
        """Writes each row as a line, which `schemas.csv` reads back to the same values.

        Args:
          values: by input; of images the names of their files.
        """
        cells = [
            text.string_cells(values[column.name], self.csv)
            if column.dtype == "string"
            else text.number_cells(values[column.name], self.missing[column.name], delimiter=self.csv.delimiter)
            for column in self.inputs
        ]
        data, starts = text.lines(cells, self.csv)
        return [data[begin:end] for begin, end in itertools.pairwise(starts.tolist())]

    def cells(self, line: bytes) -> dict[str, str]:
        """Reads a stored line: by column a character for each byte of the cell (Latin-1)."""
        (cells,) = csv.reader([line.decode("latin-1")], delimiter=self.csv.delimiter, quotechar=self.csv.quote)
        return dict(zip(self.names, cells, strict=True))


def column_names(item: Feature | Label, schema: Schema) -> list[str]:
    """Returns the columns of a feature or label: as the schema names them, else by the feature's own name."""
    header = schema.csv.columns
    unnamed = [item.name] if item.width == 1 else [f"{item.name}.{ref}" for ref in item.refs]
    names = zip(item.refs, unnamed, strict=True)
    return [ref if isinstance(ref, str) else name if header is None else header[ref] for ref, name in names]


def spelled_key(key: bytes) -> bytes:
    """Spells a key as preprocessing does, so that 7.0 is 7.

    >>> spelled_key(b" 7.0")
    b'7'
    """
    return canonical(key.strip().decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
