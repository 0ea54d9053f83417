"""Why a cell cannot be taken."""

from __future__ import annotations

import dataclasses

_ABSENT = {
    "missing_value": "which means missing, and the schema gives no `missing:` for it",
    "missing_label": "which means missing; expected a label",
}


@dataclasses.dataclass(frozen=True)
class CellError:
    """A reason code, and what was found and expected."""

    reason: str
    detail: str


def shown(value: bytes) -> str:
    """A value for a message: in quotes, cut where it is long."""
    head = value[:60]
    try:
        text = repr(head.decode("utf-8"))
    except UnicodeDecodeError:
        text = repr(head)[1:]
    return text + ("..." if len(value) > 60 else "")


def absent_value(value: bytes, reason: str) -> CellError:
    """The error that a value means missing: missing_value or missing_label."""
    return CellError(reason, f"found {shown(value)}, {_ABSENT[reason]}")
