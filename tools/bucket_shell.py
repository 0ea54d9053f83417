"""A shell in which gs:// is a server of this machine: `python -m tools.bucket_shell`, after `make cloud-tools`.

The server keeps everything in memory. When the shell ends, or this command is interrupted, the server ends, too, and
nothing is left of what was in the bucket or in TMPDIR.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import FrameType

from tests.support import cloud

BUCKET = "gs://demo"


def main() -> int:
    """Opens the shell. Returns its exit code; 2 if the server is not built; 130 if interrupted."""
    if not cloud.BINARY.is_file():
        print(f"error: {cloud.BINARY}: missing; run make cloud-tools", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="millrace-demo-") as folder, cloud.running_gcs(Path(folder)) as running:
            cloud.make_bucket(running.gateway, BUCKET.removeprefix("gs://"))
            print(
                f"In this shell gs:// is a server of this machine. {BUCKET} is gone when you leave with exit.",
                flush=True,
            )
            environment = {**os.environ, **running.environment, "TMPDIR": folder}
            return subprocess.call(["bash"], env=environment)  # noqa: S607 - the user's
    except KeyboardInterrupt:
        return 130


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
