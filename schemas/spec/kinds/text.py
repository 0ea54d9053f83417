"""`kind: text`."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.spec.forms import Ids, Input
from schemas.spec.kinds.words import FromWords

MAX_LENGTH = 100_000  # ids of a text


class Text(FromWords):
    """A string split at white space into token ids: `length` of them, padded with 0, or a bag of any number."""

    splits_into_words: ClassVar[bool] = True

    kind: Literal["text"]
    lower: bool = True
    length: Annotated[int, Field(gt=0, le=MAX_LENGTH)] | None = None  # None: a bag of ids (variable length)

    @property
    def if_missing(self) -> None:
        return None

    @property
    def stored_length(self) -> int:
        return self.length or 1

    def inputs(self, words: int) -> tuple[Input, ...]:
        return (Ids(self.name, 1 + words + self.oov_buckets, self.length),)
