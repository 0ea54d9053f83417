"""TensorFlow's start without the lines that it prints whatever its log level.

They come from C++ before TensorFlow's own logging is set up, straight to file descriptor 2, and say nothing that a user
of a working job needs. What is not known to be such a line is passed on.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator

_CHATTER = re.compile(
    r"WARNING: All log messages before absl::InitializeLog\(\)"
    r"|[IE]0000 .* (port|cudart_stub|cpu_feature_guard|cuda_platform)\.cc:"
    r"|To enable the following instructions:"
)


@contextlib.contextmanager
def quiet_start() -> Iterator[None]:
    """Runs its block (an import) and drops TensorFlow's start-up lines from what it writes to standard error."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            caught.seek(0)
            for line in caught.read().decode(errors="replace").splitlines(keepends=True):
                if not _CHATTER.match(line):
                    sys.stderr.write(line)
