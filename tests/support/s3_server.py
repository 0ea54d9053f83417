"""Runs versitygw, a server of Amazon S3's API, in its own process on loopback; its objects are files.

`make cloud-tools` builds it. Unlike others it honours If-Match of puts and deletes, atomically.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

from tests.support import server_process


@dataclasses.dataclass(frozen=True)
class S3:
    """A running server.

    Attributes:
      environment: variables that make boto3 use this server and no other, and no credentials of this machine.
      folder: its buckets are folders in it.
      port: the server's, on loopback.
    """

    environment: dict[str, str]
    folder: Path
    port: int
    _numbers: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    def new_bucket(self) -> str:
        """Makes an empty bucket; returns its address."""
        from schemas.storage import s3

        name = f"bucket-{next(self._numbers)}"
        s3.client().create_bucket(Bucket=name)
        return f"s3://{name}"


@contextlib.contextmanager
def running(folder: Path) -> Iterator[S3]:
    """Starts an empty server, whose files and log are in `folder`."""
    port, objects, described = server_process.free_port(), folder / "buckets", folder / "described"
    objects.mkdir()
    described.mkdir()
    keys = {"AWS_ACCESS_KEY_ID": "loopback", "AWS_SECRET_ACCESS_KEY": "of-no-use-elsewhere"}
    environment = {
        **keys,
        "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    program = server_process.built(server_process.BUILT / "versitygw")
    command = [program, "--quiet", "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(described), str(objects)]
    root = {"ROOT_ACCESS_KEY": keys["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": keys["AWS_SECRET_ACCESS_KEY"]}
    with server_process.running(command, port=port, log=folder / "versitygw.log", env={**os.environ, **root}):
        yield S3(environment, objects, port)
