"""Lists the kinds of features and labels that a schema file can declare. A new kind is one line here.

`schemas.spec.kinds` defines the kinds.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from schemas.spec.kinds.base import ComparedItem, Item, ReadAsNumbers, ReadAsStrings
from schemas.spec.kinds.numbers import SMALLEST_NORMAL, Bucketize, Numeric, NumericLabel, OneHot, Scale
from schemas.spec.kinds.words import Bool, Category, CategoryLabel, Cross, Ignore, Key, Text, Weight

Feature = Annotated[
    Numeric | Category | OneHot | Bool | Cross | Text | Ignore | Weight | Key, Field(discriminator="kind")
]

Label = Annotated[CategoryLabel | NumericLabel, Field(discriminator="kind")]

__all__ = [
    "SMALLEST_NORMAL",
    "Bool",
    "Bucketize",
    "Category",
    "CategoryLabel",
    "ComparedItem",
    "Cross",
    "Feature",
    "Ignore",
    "Item",
    "Key",
    "Label",
    "Numeric",
    "NumericLabel",
    "OneHot",
    "ReadAsNumbers",
    "ReadAsStrings",
    "Scale",
    "Text",
    "Weight",
]
