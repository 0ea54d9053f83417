"""One line of a schema's features, before it is text: what is declared of which columns, and why."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from schemas.spec.forms import NAME


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What is declared of one column, or of several that follow each other.

    Attributes:
        first: the position of the first column.
        last: that of the last.
        kind: as in a schema.
        settings: the other keys of the feature, but for its name and its columns.
        evidence: what the data shows, in a few words.
        by_name: the columns are declared as a range of numbered names.
    """

    first: int
    last: int
    kind: str
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    evidence: str = ""
    by_name: bool = False

    @property
    def width(self) -> int:
        return self.last - self.first + 1


def feature_name(name: str | None, declared: Declaration) -> str:
    """A name that a schema takes, from the header's, or from the columns' positions."""
    if name is None:
        places = f"{declared.first}" if declared.width == 1 else f"{declared.first}_to_{declared.last}"
        return f"column{'' if declared.width == 1 else 's'}_{places}"
    if NAME.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").lower()
    return plain if NAME.fullmatch(plain) else f"column_{plain or declared.first}"


def unique(name: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken; the name is then taken."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}_{number}", number + 1
    taken.add(found)
    return found


def percent(part: float, whole: float) -> str:
    """A share as a percentage of two digits or so: 0.04 %, 5.7 %, 77 %."""
    share = 100 * part / whole if whole else 0.0
    digits = 0 if share >= 10 or share == 0 else 1 if share >= 1 else 2
    text = f"{share:.{digits}f}"
    return f"{'less than 0.01' if share and float(text) == 0 else text} %"


def number(value: float) -> str:
    """A number in a few digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == round(value) else f"{value:.4g}"


def counted(count: int, what: str) -> str:
    """A count with its noun: 1 record, 2,000 records."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def shown(value: bytes, length: int = 30) -> str:
    """A value for a comment: on one line, cut where it is long."""
    text = value.decode("utf-8", "replace")
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= length else f"{text[: length - 3]}..."
