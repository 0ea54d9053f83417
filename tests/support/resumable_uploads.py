"""What Google's server does with an upload in parts, and fake-gcs-server does not.

A part that was received is not appended again when it is sent again, as after a lost answer. Of a part whose connection
was cut, the first multiple of 256 KB is kept. A client may ask how much has arrived.
"""

from __future__ import annotations

import dataclasses
import re
import threading

UNIT = 256 << 10
_PART = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


@dataclasses.dataclass
class Upload:
    """What has arrived of an upload; and the answer to its last part, once that has come."""

    received: int = 0
    answer: tuple[int, list[tuple[str, str]], bytes] | None = None


@dataclasses.dataclass(frozen=True)
class Part:
    """A part to pass on: its `Content-Range`, and its bytes."""

    content_range: str
    data: bytes


class ResumableUploads:
    """The uploads of a server, by their ids. Thread-safe; an upload is used by one client at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uploads: dict[str, Upload] = {}

    def of(self, upload_id: str) -> Upload:
        with self._lock:
            return self._uploads.setdefault(upload_id, Upload())


def is_question(content_range: str, body: bytes) -> bool:
    """Whether a client asks how much has arrived. `bytes */0` ends an upload of nothing."""
    return not body and content_range.startswith("bytes */") and content_range != "bytes */0"


def new_part(upload: Upload, content_range: str, body: bytes) -> Part | None:
    """What is new in a part that was sent; None if nothing is, or if it is no part of known place."""
    found = _PART.fullmatch(content_range)
    if found is None:
        return Part(content_range, body)
    first, last = int(found[1]), int(found[2])
    known = upload.received - first
    if known > 0 and upload.received > last:
        return None
    start = max(0, known)
    return Part(f"bytes {first + start}-{last}/{found[3]}", body[start:])


def beginning(part: Part, size: int) -> Part | None:
    """What is kept of a part if its connection is cut after `size` bytes; None if that is nothing."""
    found = _PART.fullmatch(part.content_range)
    kept = min(size, len(part.data) - 1) // UNIT * UNIT
    if found is None or kept <= 0:
        return None
    first = int(found[1])
    return Part(f"bytes {first}-{first + kept - 1}/*", part.data[:kept])


def arrived(upload: Upload, part: Part) -> None:
    """Notes that the server has taken a part."""
    found = _PART.fullmatch(part.content_range)
    if found is not None:
        upload.received = int(found[2]) + 1
