"""What an export takes and gives, as its requests and answers see it: the same of all versions that one server has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from schemas.spec.features import CategoryLabel
from schemas.spec.loader import AnySchema
from schemas.spec.raw_columns import RawColumn, serving_columns
from schemas.spec.table import Schema

RAW, WITHOUT_KEY, EXAMPLES = "serving_default", "without_key:serving_default", "examples:serving_default"


@dataclasses.dataclass(frozen=True)
class Interface:
    """The inputs of an export.

    Attributes:
      schema: of the data that the model was trained on.
      columns: the inputs, with the key last where there is one.
      key: the key's name; None if there is none.
      classes: their names by id; empty for a regression.
    """

    schema: AnySchema
    columns: tuple[RawColumn, ...]
    key: str | None
    classes: tuple[str, ...]

    @property
    def images(self) -> bool:
        """Whether the inputs are files of images."""
        return not isinstance(self.schema, Schema)

    @property
    def classifies(self) -> bool:
        """Whether the model answers with classes."""
        return self.images or (isinstance(self.schema, Schema) and isinstance(self.schema.label, CategoryLabel))

    def inputs(self, signature: str) -> Mapping[str, RawColumn]:
        """The inputs of a signature that takes them by name."""
        return {c.name: c for c in self.columns if signature == RAW or c.name != self.key}


def interface_of(schema: AnySchema, classes: tuple[str, ...]) -> Interface:
    """The interface of the exports of a schema."""
    if isinstance(schema, Schema):
        key = None if schema.key is None else schema.key.name
        return Interface(schema, serving_columns(schema), key, classes)
    return Interface(schema, tuple(RawColumn(name, "string") for name in schema.image_names), None, classes)
