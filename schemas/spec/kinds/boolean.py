"""`kind: bool`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from schemas.spec.forms import CellError, Dense, Input, Token, shown
from schemas.spec.kinds.base import FeatureKind, ReadAsStrings, Single, Watched

if TYPE_CHECKING:
    import pyarrow as pa


class Bool(Single, ReadAsStrings, Watched, FeatureKind):
    """A string to 0.0 or 1.0; letter case does not count."""

    doubtful_values: ClassVar[tuple[bytes, ...]] = (b"Banana",)

    kind: Literal["bool"]
    true: tuple[Token, ...] = ("true", "t", "yes", "y", "1")
    false: tuple[Token, ...] = ("false", "f", "no", "n", "0")
    missing: bool | None = None

    @model_validator(mode="after")
    def _true_is_not_false(self) -> Bool:
        both = sorted({t.lower() for t in self.true} & {f.lower() for f in self.false})
        if both:
            raise ValueError(f"`true` and `false` both contain {both[0]!r}")
        return self

    def not_meant(self) -> Iterator[tuple[str, str]]:
        false = {token.lower().encode().strip() for token in self.false}
        for token in self.true:
            if token.lower().encode().strip() in false:
                yield "true", f"found {token!r}, which `false` contains, too, but for the white space around it"

    def inputs(self, words: int) -> tuple[Input, ...]:
        return (Dense(self.name),)

    def read_values(self, values: pa.BinaryArray) -> list[bytes | CellError]:
        """b"1" or b"0" for each value; not_a_bool for the others."""
        tokens = {t.lower().encode().strip(): b"0" for t in self.false}
        tokens |= {t.lower().encode().strip(): b"1" for t in self.true}
        expected = ", ".join((*self.true, *self.false))

        def read(value: bytes) -> bytes | CellError:
            token = tokens.get(_lower(value))
            if token is None:
                return CellError("not_a_bool", f"found {shown(value)}, expected one of {expected}")
            return token

        return [read(value) for value in values.to_pylist()]


def _lower(value: bytes) -> bytes:
    try:
        return value.decode("utf-8").lower().encode()
    except UnicodeDecodeError:
        return value
