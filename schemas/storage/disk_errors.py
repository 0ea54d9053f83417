"""Errors of a disk that takes no more: it is full, over a quota, read-only or broken, or a file may not grow."""

from __future__ import annotations

import errno
import os
import re

_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_REFUSED = re.compile("|".join(re.escape(os.strerror(code)) for code in _CODES))
_ROUND = re.compile(r"^([\w.]+Error: )+| \[while running '.*'\]$")  # what libraries put before a message and behind it


def refused_by_disk(message: str) -> str | None:
    """The line of an error's message in which a disk refuses what is written; None where it tells of something else.

    Messages are compared, since libraries in C++ hand on the system's words and not its number.
    """
    line = next((line.strip() for line in message.splitlines() if _REFUSED.search(line)), None)
    return None if line is None else _ROUND.sub("", line)[:500]
