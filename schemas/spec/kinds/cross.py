"""`kind: cross`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from schemas.spec.forms import Ids, Input
from schemas.spec.kinds.base import FeatureKind
from schemas.spec.strict import ColumnRef, Name


class Cross(FeatureKind):
    """The combination of the ids of other features, hashed into buckets."""

    kind: Literal["cross"]
    of: Annotated[tuple[Name, ...], Field(min_length=2)]
    buckets: Annotated[int, Field(ge=2)]

    @property
    def refs(self) -> tuple[ColumnRef, ...]:
        return ()

    @property
    def width(self) -> int:
        return 0

    @property
    def raw(self) -> None:
        return None

    @property
    def measures(self) -> bool:
        return False

    def inputs(self, words: int) -> tuple[Input, ...]:
        return (Ids(self.name, self.buckets, crossed=True),)

    def not_meant(self) -> Iterator[tuple[str, str]]:
        for name in sorted({name for name in self.of if self.of.count(name) > 1}):
            yield "of", f"{name!r} is crossed with itself; name each feature only once"
