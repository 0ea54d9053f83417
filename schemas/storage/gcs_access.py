"""Refuses buckets that a job could not use well: with credentials that TensorFlow does not support, or far away.

TensorFlow's client of gs:// supports fewer kinds of credentials than Google's Python libraries. It reads the same file
as they do, or else asks the metadata server of the machine. If it does not support the credentials, it only logs a line
and continues without any; requests are then refused without naming the cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from schemas.errors import MillraceError, UsageError
from schemas.storage.gcs import PREFIX, client
from schemas.storage.gcs_errors import credentials_file
from schemas.storage.json_files import parse_json
from schemas.storage.paths import check_characters, is_local, wrap_errors

USABLE = ("authorized_user", "service_account")
_CACHE = "To train on data in a bucket, give --cache_dir and a local --model_dir"


def check_tensorflow(path: str) -> None:
    """Refuses a path that TensorFlow would have to read or write itself if it cannot.

    Args:
      path: a path; local paths need no credentials.

    Raises:
      UsageError: TensorFlow takes the path for a pattern, or does not support the kind of credentials, such as workload
        identity federation.
    """
    check_characters(path)
    if is_local(path) or "GOOGLE_AUTH_TOKEN_FOR_TESTING" in os.environ:
        return
    file = credentials_file()
    try:
        with open(file, "rb") as opened:
            kind = parse_json(opened.read()).get("type")
    except (OSError, ValueError, AttributeError):  # no file, or an invalid one, which Google's library reports
        return
    if kind not in USABLE:
        raise UsageError(
            f"{path}: TensorFlow reads or writes it, and cannot use the credentials in {file}, which are of type "
            f"{kind!r}; use {' or '.join(USABLE)}, a machine with a service account, or a local folder. {_CACHE}"
        )


def is_elsewhere(location: str, region: str) -> bool:
    """Returns whether a machine in a region reads a bucket from another region or continent.

    One in a pair of regions is not.

    >>> is_elsewhere("US-CENTRAL1", "us-east1"), is_elsewhere("EU", "europe-west4"), is_elsewhere("NAM4", "us-east1")
    (True, False, False)
    """
    location, region = location.lower(), region.lower()
    if location in ("us", "eu", "asia"):
        return not region.startswith(location[:2])
    return "-" in location and location != region


def check_regions(paths: Iterable[tuple[str, str]], region: str) -> None:
    """Refuses buckets that a job in a region would read from elsewhere, which is slow and billed by the byte.

    Args:
      paths: options with a gs:// path of each.
      region: of the job.

    Raises:
      UsageError: a bucket is elsewhere, or there is none.
    """
    checked: set[str] = set()
    for option, path in paths:
        bucket = path[len(PREFIX) :].partition("/")[0]
        location = "" if bucket in checked else location_of(path)
        checked.add(bucket)
        if is_elsewhere(location, region):
            raise UsageError(
                f"{option} {path}: the bucket is in {location.lower()}, and the job would run in {region}; use a "
                "bucket in the job's region, run the job in the bucket's, or give --any_region"
            )


def location_of(path: str) -> str:
    """Returns the location of the bucket of a gs:// path, as Google names it; empty if these credentials may not see
    it.

    Raises:
      UsageError: there is no such bucket.
      MillraceError: the server cannot be asked.
    """
    bucket = path[len(PREFIX) :].partition("/")[0]
    try:
        with wrap_errors(f"{PREFIX}{bucket}"):
            return str(client().get_bucket(bucket).location or "")
    except MillraceError as error:
        kind = type(error.__cause__).__name__
        if kind == "Forbidden":  # roles/storage.objectUser does not include storage.buckets.get
            return ""
        if kind == "NotFound":
            raise UsageError(f"{PREFIX}{bucket}: no such bucket") from error
        raise
