"""The log of a job, and of all trials of a study, read from Cloud Logging as it grows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from schemas.errors import MillraceError
from schemas.storage.redact import redacted

ADDRESS = "https://logging.googleapis.com"
SCOPES = ("https://www.googleapis.com/auth/logging.read", "https://www.googleapis.com/auth/cloud-platform")
_TRIAL = "ml.googleapis.com/trial_id"  # the label of a trial's lines
_PAGE = 1000
_SECONDS = 30.0  # until an answer must have come


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a replica, such as workerpool0-0 or trial 3 workerpool0-0, or of the service."""

    replica: str
    text: str


class VertexLog:
    """The lines of a job, each once.

    Args:
      project: the job's project.
      job_id: the last part of its resource name.
      endpoint: another address than Cloud Logging's; None: Cloud Logging's.
      credentials: None: those of the environment.
    """

    def __init__(self, project: str, job_id: str, *, endpoint: str | None = None, credentials: Any = None) -> None:
        self._project = project
        self._filter = f'resource.type="ml_job" resource.labels.job_id="{job_id}"'
        self._url = f"{endpoint or ADDRESS}/v2/entries:list"
        self._credentials = credentials
        self._session: Any = None
        self._since = ""  # the time of the latest line
        self._seen: set[str] = set()  # the ids of the lines of that time

    def new_lines(self) -> Iterator[Line]:
        """What has come since the last call, the oldest first.

        Raises:
          MillraceError: the log cannot be read.
        """
        asked: dict[str, Any] = {"resourceNames": [f"projects/{self._project}"], "orderBy": "timestamp asc"}
        since = f' timestamp>="{self._since}"' if self._since else ""
        asked |= {"filter": self._filter + since, "pageSize": _PAGE}
        while True:
            answer = self._ask(asked)
            for entry in answer.get("entries", ()):
                yield from self._line(entry)
            if not answer.get("nextPageToken"):
                return
            asked["pageToken"] = answer["nextPageToken"]

    def _line(self, entry: dict[str, Any]) -> Iterator[Line]:
        time, own = entry.get("timestamp", ""), entry.get("insertId", "")
        if time == self._since and own in self._seen:
            return
        if time > self._since:
            self._since, self._seen = time, set()
        self._seen.add(own)
        payload = entry.get("jsonPayload", {})
        text = entry.get("textPayload") or payload.get("message") or ""
        replica = entry.get("resource", {}).get("labels", {}).get("task_name", "")
        trial = entry.get("labels", {}).get(_TRIAL)
        replica = replica if trial is None else f"trial {trial} {replica}"
        yield from (Line(replica, line) for line in str(text).splitlines())

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        try:
            if self._session is None:
                import google.auth
                from google.auth.transport.requests import AuthorizedSession

                credentials = self._credentials or google.auth.default(scopes=SCOPES)[0]
                self._session = AuthorizedSession(credentials)
            answer = self._session.post(self._url, json=asked, timeout=_SECONDS)
            answer.raise_for_status()
            return dict(answer.json())
        except Exception as error:
            said = " ".join(redacted(str(error)).split())[:300]
            raise MillraceError(f"the log cannot be read ({type(error).__name__}: {said})") from error
