"""Recognizes errors of a disk that refuses writes: it is full, over a quota, read-only or broken, or limits files."""

from __future__ import annotations

import errno
import os
import re

_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_REFUSED = re.compile("|".join(re.escape(os.strerror(code)) for code in _CODES))
_ROUND = re.compile(
    r"^([\w.]+Error: |\{\{function_node \S+\}\} )+| \[while running '.*'\]$"
)  # what libraries add before and after a message


def refused_by_disk(message: str) -> str | None:
    """The line of an error's message that says that the disk refuses a write; None for any other error.

    Messages are compared, because C++ libraries pass on the system's message and not its error number.
    """
    line = next((line.strip() for line in message.splitlines() if _REFUSED.search(line)), None)
    return None if line is None else _ROUND.sub("", line)[:500]
