"""The credentials that docs/cloud.md lists, with both clients: a server issues tokens, the storage asks for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from beam_jobs import preprocess
from schemas import retries, storage
from schemas.dataset import open_dataset
from schemas.errors import MillraceError
from schemas.storage import gcs
from tests.support import training
from tests.support.cloud import Cloud
from tests.support.gateway_settings import FEDERATION, IMPERSONATION, METADATA, REFRESH, SERVICE_ACCOUNT
from tests.support.loopback_service import forget
from tests.support.people import LEAN_SCHEMA, people_csv
from trainer import task

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning")

USER = {
    "type": "authorized_user",
    "client_id": "c",
    "client_secret": "s",
    "refresh_token": "r",
    "quota_project_id": "p",
}
SECOND = 61  # TensorFlow renews a token a minute before its end


@pytest.fixture(scope="module")
def key() -> str:
    made = rsa.generate_private_key(65537, 2048)
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.private_bytes(*pem).decode()


class Account:
    """Gives this process, and those that it starts, credentials of a kind."""

    def __init__(self, cloud: Cloud, folder: Path, key: str, patch: pytest.MonkeyPatch) -> None:
        self._cloud, self._folder, self._key, self._patch = cloud, folder, key, patch
        self.file = folder / "credentials.json"
        self.use(None)

    def use(self, kind: str | None) -> None:
        gateway, patch = self._cloud.gateway, self._patch
        for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_AUTH_TOKEN_FOR_TESTING", "GOOGLE_APPLICATION_CREDENTIALS"):
            patch.delenv(name, raising=False)
        patch.setenv("API_ENDPOINT_OVERRIDE", gateway)
        patch.setenv("CLOUDSDK_CONFIG", str(self._folder / "none"))
        patch.setenv("NO_GCE_CHECK", "true")
        if kind == METADATA:
            patch.delenv("NO_GCE_CHECK")
            for name in ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP"):
                patch.setenv(name, gateway.removeprefix("http://"))
        elif kind is not None:
            self.file.write_text(json.dumps(self._content(kind)))
            patch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(self.file))
        forget(gcs.client)

    def _content(self, kind: str) -> dict[str, object]:
        if kind == REFRESH:
            return {**USER}
        if kind == SERVICE_ACCOUNT:
            email = "jobs@project.iam.gserviceaccount.com"
            content = {"type": kind, "client_email": email, "private_key": self._key, "private_key_id": "1"}
            return {**content, "client_id": "1", "token_uri": f"{self._cloud.gateway}/token"}
        if kind == FEDERATION:
            (self._folder / "subject").write_text("subject token")
            return {
                "type": "external_account",
                "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": f"{self._cloud.gateway}/sts",
                "credential_source": {"file": str(self._folder / "subject")},
            }
        assert kind == IMPERSONATION
        path = "v1/projects/-/serviceAccounts/jobs@project.iam.gserviceaccount.com:generateAccessToken"
        url = f"https://iamcredentials.googleapis.com/{path}"
        return {
            "type": "impersonated_service_account",
            "service_account_impersonation_url": url,
            "source_credentials": USER,
        }


@pytest.fixture
def account(cloud, bucket, tmp_path: Path, key: str, monkeypatch) -> Iterator[Account]:
    """No credentials yet; `bucket/a` holds b"a"."""
    storage.write_bytes(f"{bucket}/a", b"a")
    cloud.log_in(checked=True)
    monkeypatch.setattr(retries, "RETRY_SECONDS", 5.0)
    yield Account(cloud, tmp_path, key, monkeypatch)
    forget(gcs.client)


@pytest.mark.parametrize("kind", [REFRESH, SERVICE_ACCOUNT, FEDERATION, IMPERSONATION])
def test_googles_client_takes_these_kinds_and_renews_their_tokens(cloud, bucket, account, kind: str) -> None:
    account.use(kind)
    for _ in range(3):
        assert storage.read_bytes(f"{bucket}/a") == b"a"
        storage.write_bytes(f"{bucket}/b", b"b")
        assert storage.listdir(bucket) == ["a", "b"]
    assert 1 <= cloud.issued.count(kind) <= 2  # tokens are used again; the library may ask for a second one
    cloud.log_in()  # forgets all tokens: the one that the client has is refused from now on
    assert storage.read_bytes(f"{bucket}/a") == b"a"
    assert kind in cloud.issued


GOOGLE = """
import sys
from schemas import storage
assert storage.read_bytes(sys.argv[1]) == b"a"
storage.write_bytes(sys.argv[1] + "2", b"b")
"""


def test_googles_client_takes_the_account_of_a_machine(cloud, bucket, account) -> None:
    account.use(METADATA)
    subprocess.run([sys.executable, "-c", GOOGLE, f"{bucket}/a"], check=True)  # a process asks once where it runs
    assert set(cloud.issued) == {METADATA}
    account.use(SERVICE_ACCOUNT)
    assert storage.read_bytes(f"{bucket}/a2") == b"b"


TENSORFLOW = """
import sys, time
import tensorflow as tf
for _ in range(2):
    with tf.io.gfile.GFile(sys.argv[1], "rb") as file:
        assert file.read() == b"a"
    with tf.io.gfile.GFile(sys.argv[1] + "2", "wb") as file:
        file.write("b")
    time.sleep(1.5)
"""


@pytest.mark.parametrize("kind", [REFRESH, SERVICE_ACCOUNT, METADATA])
def test_tensorflows_client_takes_these_kinds_and_renews_their_tokens(cloud, bucket, account, kind: str) -> None:
    account.use(kind)
    cloud.log_in(expires_in=SECOND)
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([sys.executable, "-c", TENSORFLOW, f"{bucket}/a"], check=True, env=quiet)
    assert set(cloud.issued) == {kind}
    assert len(cloud.issued) > 1
    account.use(SERVICE_ACCOUNT)
    assert storage.read_bytes(f"{bucket}/a2") == b"b"


@pytest.fixture
def dataset(bucket, tmp_path: Path, account) -> str:
    """A dataset in the bucket, written by a job whose token ends within it."""
    account.use(SERVICE_ACCOUNT)
    (tmp_path / "schema.yaml").write_text(LEAN_SCHEMA)
    storage.write_bytes(f"{bucket}/raw.csv", people_csv(300).encode())
    argv = ["--schema", f"{tmp_path}/schema.yaml", "--input", f"{bucket}/raw.csv", "--output", f"{bucket}/out"]
    assert preprocess.main([*argv, "--quiet"]) == 0
    return f"{bucket}/out"


@pytest.mark.parametrize("kind", [FEDERATION, IMPERSONATION])
def test_what_tensorflow_does_not_take_trains_by_a_local_cache(account, dataset, tmp_path: Path, capsys, kind) -> None:
    account.use(kind)
    opened = open_dataset(dataset)
    model, cache = tmp_path / "model", ["--cache_dir", str(tmp_path / "cache"), "--quiet"]
    assert training.run(opened, model, "--quiet", steps=20) == 2
    error = capsys.readouterr().err
    assert f"cannot use the credentials in {account.file}" in error
    assert "--cache_dir" in error
    assert training.run(opened, model, *cache, steps=20) == 0
    assert (model / "export" / "best" / "best.json").exists()
    capsys.readouterr()
    assert training.run(opened, f"{dataset}-model", *cache, steps=20) == 2  # TensorFlow would write the checkpoints
    assert f"{dataset}-model: TensorFlow reads or writes it" in capsys.readouterr().err
    argv = ["--data_dir", dataset, "--model_dir", str(tmp_path / "other"), *cache]
    (tmp_path / "small").mkdir()
    assert task.main([*argv[:-2], str(tmp_path / "small"), "--quiet", "--cache_gb", "0.00001"]) == 2
    assert "Give --cache_gb" in capsys.readouterr().err


def test_a_token_without_the_right_to_write_is_one_line(cloud, bucket, account) -> None:
    account.use(SERVICE_ACCOUNT)
    cloud.log_in(read_only=True)
    assert storage.read_bytes(f"{bucket}/a") == b"a"
    with pytest.raises(MillraceError) as raised:
        storage.write_bytes(f"{bucket}/b", b"b")
    assert str(raised.value).startswith(f"{bucket}/b: permission denied: ")
    assert "jobs@project.iam.gserviceaccount.com" in str(raised.value)
    assert "roles/storage.objectUser" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", [REFRESH, SERVICE_ACCOUNT, FEDERATION, IMPERSONATION])
def test_credentials_that_are_refused_are_one_line_with_their_file_and_what_to_do(cloud, bucket, account, kind) -> None:
    account.use(kind)
    cloud.log_in(refused=True)
    with pytest.raises(MillraceError) as raised:
        storage.read_bytes(f"{bucket}/a")
    assert f"credentials in {account.file} were refused: " in str(raised.value)
    assert "gcloud auth application-default login" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "ya29" not in str(raised.value)
