"""What is left out of other libraries' messages."""

from __future__ import annotations

import pytest

from schemas import storage
from schemas.errors import MillraceError
from schemas.storage.store import redacted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "403 GET https://storage.googleapis.com/b/o?X-Goog-Signature=deadbeef&x=1: denied",
            "403 GET https://storage.googleapis.com/b/o?<hidden> denied",
        ),
        ("POST https://h/upload/b/x/o?uploadType=resumable&upload_id=AbC", "POST https://h/upload/b/x/o?<hidden>"),
        ("ftp://user:pass@host/x", "ftp://<hidden>@host/x"),
        ("Authorization: Bearer abc.DEF-123_456", "Authorization: Bearer <hidden>"),
        ("token ya29.a0AfH6SMB_x-y was refused", "token <hidden> was refused"),
        ("key -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- end", "key <hidden> end"),
        ("gs://bucket/a?b.csv: no such object", "gs://bucket/a?b.csv: no such object"),
        ("/data/a@b.csv: 3 columns, found 4", "/data/a@b.csv: 3 columns, found 4"),
    ],
)
def test_secrets_are_left_out_and_the_rest_stays(text, expected):
    assert redacted(text) == expected


@pytest.mark.parametrize("path", ["gs://b/x", "/data/x"])  # of a copy, either side may be named
def test_the_clouds_errors_are_shown_without_the_queries_of_their_addresses(path):
    from google.api_core.exceptions import Forbidden

    def refused() -> None:
        with storage.wrap_errors(path):
            raise Forbidden("GET https://storage.googleapis.com/b/o/x?access_token=SECRET: no")

    with pytest.raises(MillraceError) as caught:
        refused()
    assert f"{path}: permission denied: GET https://storage.googleapis.com/b/o/x?<hidden>" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_errors_of_no_store_are_raised_as_they_are():
    with pytest.raises(ValueError, match="not a store's"), storage.wrap_errors("gs://b/x"):
        raise ValueError("not a store's")
