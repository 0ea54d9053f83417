"""A record that was not written, and why."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator

from schemas.storage.json_files import as_written, parse_object


@dataclasses.dataclass(frozen=True)
class Reject:
    """One rejected record: where it stands, which stage refused it, why, and its raw bytes."""

    source: str
    offset: int
    stage: str
    reason: str
    column: str | None
    detail: str
    raw: bytes

    def to_json(self) -> str:
        """Returns one JSON line without the line end; the raw bytes as text, or as base64 where they are not UTF-8."""
        row = dataclasses.asdict(self)
        try:
            row["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            row["raw_base64"] = base64.b64encode(row.pop("raw")).decode()
        return json.dumps(row, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> Reject:
        """Reads what `to_json` wrote. Raises ValueError, LookupError, TypeError or AttributeError on anything else."""
        row = parse_object(line)
        raw = base64.b64decode(row.pop("raw_base64")) if "raw_base64" in row else row.pop("raw").encode()
        if not isinstance(row["source"], str) or type(row["offset"]) is not int:
            raise ValueError("its source is no path, or its offset no number")
        return cls(raw=raw, **row)


def read_rejects(data: bytes, path: str = "a file of rejects") -> Iterator[Reject]:
    """Reads the rejects of a file of lines that `to_json` wrote.

    Raises:
      MillraceError: a line is none.
    """
    for number, line in enumerate(data.split(b"\n"), 1):  # a raw record may hold other signs that end lines for Python
        if line:
            with as_written(f"{path}:{number}", "a reject"):
                reject = Reject.from_json(line)
            yield reject
