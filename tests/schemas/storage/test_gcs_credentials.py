"""Credentials that TensorFlow cannot use are refused before it goes on without any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schemas.errors import UsageError
from schemas.storage.gcs_access import check_tensorflow


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where gcloud writes the credentials that programs find by themselves."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.delenv("GOOGLE_AUTH_TOKEN_FOR_TESTING", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    return tmp_path / "application_default_credentials.json"


@pytest.mark.parametrize("kind", ["external_account", "impersonated_service_account"])
def test_credentials_that_tensorflow_does_not_know_are_a_usage_error(file, monkeypatch, kind: str) -> None:
    file.write_text(json.dumps({"type": kind}))
    with pytest.raises(UsageError, match=rf"^gs://b/data: .*{file}.*type '{kind}'; use authorized_user"):
        check_tensorflow("gs://b/data")
    check_tensorflow("/local/data")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file.with_name("other.json")))
    file.with_name("other.json").write_text('{"type": "service_account"}')
    check_tensorflow("gs://b/data")


def test_credentials_of_a_machine_or_a_broken_file_are_left_to_google(file) -> None:
    check_tensorflow("gs://b/data")
    file.write_text("{")
    check_tensorflow("gs://b/data")
    file.write_text('{"type": "authorized_user"}')
    check_tensorflow("gs://b/data")
