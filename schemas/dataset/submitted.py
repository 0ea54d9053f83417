"""`job.json` in a run: a job that was submitted to a cluster, with all that its commit needs to know later.

It is written once, before the lease is handed over to the remote job, and never changed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Any, Literal

from pydantic import ValidationError

from schemas.dataset import layout
from schemas.dataset.holders import RemoteHolder
from schemas.errors import MillraceError
from schemas.spec.forms import Strict, first_mistake
from schemas.storage import folders
from schemas.storage.folders import Seen


class Replaced(Strict):
    """The manifest that was there when the job began, and that its own replaces."""

    sha256: str | None  # of its bytes; None: there was no manifest
    generation: int | str = 0  # of the object, in a bucket; or its ETag

    @classmethod
    def of(cls, seen: Seen) -> Replaced:
        """The manifest as it was seen."""
        return cls(sha256=None if seen.data is None else digest(seen.data), generation=seen.generation)

    def is_still(self, manifest: bytes | None) -> bool:
        """Whether this is the same manifest. A fence may have put the same bytes under another generation."""
        return self.sha256 == (None if manifest is None else digest(manifest))


class JobReference(Strict):
    """By what the runner is asked about the job.

    `id` is '' for a job that the service begins after its launcher has ended, from a Flex Template; it is then found by
    its `name`.
    """

    runner: Literal["DataflowRunner", "PortableRunner"]
    id: str
    name: str | None = None
    url: str | None = None
    project: str | None = None
    region: str | None = None
    endpoint: str | None = None
    no_auth: bool = False
    impersonate: str | None = None

    @property
    def place(self) -> str:
        """Where a person finds the job: its page, or its job service."""
        return self.url or self.endpoint or f"project {self.project}, region {self.region}"

    def __str__(self) -> str:
        return f"job {self.id or self.name} of {self.runner}" + (f" ({self.url})" if self.url else "")


class Submitted(Strict):
    """A job that was submitted."""

    format_version: Literal[1] = 1
    run: str
    job: JobReference
    submitted: float  # in seconds since 1970
    options: dict[str, Any]  # those of the job, `beam_jobs.core.options.JobOptions`, without Beam's
    replaces: Replaced
    input_files: int
    input_parts: int  # the files in staging that list them
    classes: tuple[str, ...] = ()
    transform_from: str | None = None  # the run whose transform is applied
    preprocessing_fn: str | None = None  # module:function, if it is not derived from the schema

    @property
    def holder(self) -> RemoteHolder:
        """The job as the holder of the lease."""
        since = dt.datetime.fromtimestamp(self.submitted, dt.timezone.utc).isoformat(timespec="seconds")
        return RemoteHolder(run=self.run, job=str(self.job), since=since)

    def to_json(self) -> bytes:
        """The file's bytes."""
        return self.model_dump_json(indent=1).encode() + b"\n"


def digest(manifest: bytes) -> str:
    """What a manifest is recognized by."""
    return hashlib.sha256(manifest).hexdigest()


def read_submitted(data_dir: str, run: str) -> Submitted | None:
    """Reads the job.json of a run; None if it has none.

    Raises:
      MillraceError: it cannot be read.
    """
    path = layout.join(data_dir, run, layout.JOB)
    data = folders.look(path).data
    if data is None:
        return None
    try:
        found = Submitted.model_validate_json(data)
        if found.run != run:
            raise MillraceError(f"{path}: is of run {found.run[:80]!r}; expected {run}. Restore the file.")
        return found
    except ValidationError as error:
        raise MillraceError(
            f"{path}: {first_mistake(error)}. Expected what this release writes when it submits a job; use the "
            "release that submitted it, or end it with `millrace job cancel`."
        ) from error


def may_be_committed(data_dir: str, run: str, manifest: bytes | None) -> bool:
    """Whether a run is that of a submitted job that can still be committed: the manifest is the one it replaces.

    A job.json that cannot be read counts as one, so that nothing is removed.
    """
    try:
        found = read_submitted(data_dir, run)
    except MillraceError:
        return True
    return found is not None and found.replaces.is_still(manifest)
