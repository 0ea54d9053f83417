"""How systems and libraries report a full disk, and the message made from that."""

from __future__ import annotations

import errno
import os

import pytest

from schemas.storage.local import refused_by_disk

FULL = os.strerror(errno.ENOSPC)


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (f"out/shard-1: {FULL}", f"out/shard-1: {FULL}"),
        (f"[Errno 28] {FULL}: 'out/shard-1'", f"[Errno 28] {FULL}: 'out/shard-1'"),
        (f"out/saved_model.pb; {FULL} [while running 'Write/Copy']", f"out/saved_model.pb; {FULL}"),
        (f"tensorflow.errors_impl.ResourceExhaustedError: out/x.pb; {FULL}", f"out/x.pb; {FULL}"),
        (f"RuntimeError: OSError: [Errno 28] {FULL} [while running 'A']", f"[Errno 28] {FULL}"),
        (f"a frame\n  another\nout/shard-1: {FULL}\nbehind it", f"out/shard-1: {FULL}"),
        (f"{os.strerror(errno.EFBIG)}", "File too large"),
        ("out/shard-1: Permission denied", None),
        ("", None),
    ],
)
def test_the_line_that_names_the_cause_is_shown(message, told):
    assert refused_by_disk(message) == told
