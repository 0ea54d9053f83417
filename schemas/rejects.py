"""Describes a rejected record, and reads and writes rejects as JSON lines."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Iterator

from schemas.storage.json_files import as_written, parse_object


@dataclasses.dataclass(frozen=True)
class Reject:
    """A rejected record.

    Attributes:
      source: the file of the record.
      offset: where the record begins in the file, in bytes.
      stage: the stage of the job that refused the record.
      reason: why, as a short code.
      column: the column that the reason is about; None if it is about the whole record.
      detail: why, in words.
      raw: the bytes of the record.
    """

    source: str
    offset: int
    stage: str
    reason: str
    column: str | None
    detail: str
    raw: bytes

    def to_json(self) -> str:
        """Returns the reject as one line of JSON, without a line end.

        The raw bytes are the text `raw`, or `raw_base64` if they are not UTF-8.
        """
        row = dataclasses.asdict(self)
        try:
            row["raw"] = self.raw.decode()
        except UnicodeDecodeError:
            row["raw_base64"] = base64.b64encode(row.pop("raw")).decode()
        return json.dumps(row, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> Reject:
        """Parses a line that `to_json` wrote.

        Raises:
          ValueError, LookupError, TypeError or AttributeError: the line is something else.
        """
        row = parse_object(line)
        raw = base64.b64decode(row.pop("raw_base64")) if "raw_base64" in row else row.pop("raw").encode()
        if not isinstance(row["source"], str) or type(row["offset"]) is not int:
            raise ValueError("its source is no path, or its offset no number")
        return cls(raw=raw, **row)


def read_rejects(data: bytes, path: str = "a file of rejects") -> Iterator[Reject]:
    """Yields the rejects of a file of JSON lines.

    Args:
      data: the content of the file.
      path: the file, for messages.

    Raises:
      MillraceError: a line is not a reject.
    """
    # Not `splitlines`: a raw record may contain other characters at which that method splits.
    for number, line in enumerate(data.split(b"\n"), 1):
        if line:
            with as_written(f"{path}:{number}", "a reject"):
                reject = Reject.from_json(line)
            yield reject
