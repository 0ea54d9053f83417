"""TensorFlow without the lines that it prints whatever its log level.

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
    with tempfile.TemporaryFile() as caught:
        try:
            with _standard_error_to(caught.fileno()):
                yield
        finally:
            caught.seek(0)
            for line in caught.read().decode(errors="replace").splitlines(keepends=True):
                if not _CHATTER.match(line):
                    sys.stderr.write(line)


@contextlib.contextmanager
def standard_error_closed() -> Iterator[None]:
    """What this process writes to file descriptor 2 goes nowhere; exceptions come through as they are."""
    with open(os.devnull, "wb") as nowhere, _standard_error_to(nowhere.fileno()):
        yield


@contextlib.contextmanager
def _standard_error_to(descriptor: int) -> Iterator[None]:
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
