"""A server of exports in a bucket: newer ones take over, and what is not whole or was changed does not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.serve.server import Server
from schemas import storage
from schemas.errors import MillraceError
from schemas.storage import folders
from tests.support.cloud import Cloud
from tests.support.exports import Flaw, write_export
from tests.support.gateway_settings import Fault
from tests.support.model_server import Client, serving
from tests.support.processes import until

NOTES = "assets.extra/millrace.json"
POLL = 0.2  # seconds


@pytest.fixture
def folder(bucket: str) -> str:
    """A folder that is served, in an empty bucket."""
    return f"{bucket}/serving"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of temporary files, which is empty again at the end."""
    made = tmp_path / "temporary"
    made.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(made))
    yield made
    assert list(made.iterdir()) == []


def answers(client: Client, version: int) -> bool:
    status, answer = client.predict({"instances": [1]})
    assert status == 200  # whatever there is in the bucket
    assert answer["predictions"][0]["value"] == 1 + float(client.headers["x-model-version"])
    return client.headers["x-model-version"] == str(version)


def refusal(server: Server, version: int) -> str:
    version_refusal = server.versions.refused.get(str(version))
    return "" if version_refusal is None else version_refusal.reason


def test_newer_exports_take_over_and_bad_ones_do_not(folder, tmp_path, temporary, caplog) -> None:
    made = {number: write_export(tmp_path, number) for number in (1, 2, 3, 4)}
    folders.copy(str(made[1]), f"{folder}/1")
    with serving(folder, poll_secs=POLL) as server, Client(server) as client:
        assert server.versions.current.compared == 3
        folders.copy(str(made[2]), f"{folder}/2")
        until(lambda: answers(client, 2))

        names = list(folders.walk(str(made[3])))
        for name in [name for name in names if name != NOTES]:  # half of it: the notes come last
            folders.upload(f"{made[3]}/{name}", f"{folder}/3/{name}")
        until(lambda: f"no {NOTES}" in refusal(server, 3))
        storage.delete(f"{folder}/3/saved_model.pb")
        folders.upload(f"{made[3]}/{NOTES}", f"{folder}/3/{NOTES}")
        until(lambda: "no saved_model.pb" in refusal(server, 3))
        assert answers(client, 2)
        folders.upload(f"{made[3]}/saved_model.pb", f"{folder}/3/saved_model.pb")
        until(lambda: answers(client, 3))
        assert server.versions.refused == {}

        graph = (made[4] / "saved_model.pb").read_bytes()
        (made[4] / "saved_model.pb").write_bytes(graph[:-1] + bytes([graph[-1] ^ 1]))
        folders.copy(str(made[4]), f"{folder}/4")
        until(lambda: f"{folder}/4/saved_model.pb: was changed" in refusal(server, 4))
        assert answers(client, 3)
        assert f"{folder}/4/saved_model.pb: was changed" in str(client.get(client.model)[1])
        storage.write_bytes(f"{folder}/4/saved_model.pb", graph)  # another generation of the same name
        until(lambda: answers(client, 4))

        folders.copy(str(write_export(tmp_path, 5, Flaw(writes=True))), f"{folder}/5")
        folders.copy(str(write_export(tmp_path, 6, Flaw(off=1))), f"{folder}/6")
        until(lambda: "holds the op WriteFile" in refusal(server, 5) and "was trained" not in refusal(server, 6))
        until(lambda: f"{folder}/6: answers its warm-up requests otherwise" in refusal(server, 6))
        assert answers(client, 4)
    assert str(temporary) not in caplog.text  # errors name the bucket


def test_a_store_that_does_not_answer_says_nothing_about_an_export(
    cloud: Cloud, bucket, tmp_path, temporary, caplog
) -> None:
    """It is tried again, though none of its files has changed; and told once."""
    folders.copy(str(write_export(tmp_path, 1)), f"{bucket}/1")
    with serving(bucket, poll_secs=POLL) as server, Client(server) as client:
        cloud.inject(Fault(r"GET .*variables.*alt=media|GET .*saved_model.pb.*alt=media", times=10**9, status=403))
        folders.copy(str(write_export(tmp_path, 2)), f"{bucket}/2")
        until(lambda: "permission denied" in refusal(server, 2))
        refused = cloud.injected
        until(lambda: cloud.injected > refused + 1)
        assert answers(client, 1)
        assert caplog.text.count("version 2 is not served") <= 2  # once for each file
        assert str(temporary) not in caplog.text
        cloud.inject()
        until(lambda: answers(client, 2))
        cloud.inject(Fault("GET ", times=3, status=403))  # also of listings
        until(lambda: cloud.injected == 3)
        folders.copy(str(write_export(tmp_path, 3)), f"{bucket}/3")
        until(lambda: answers(client, 3))


def test_an_object_whose_name_leads_out_of_the_copy(bucket, tmp_path, temporary) -> None:
    folders.copy(str(write_export(tmp_path, 1)), f"{bucket}/1")
    storage.write_bytes(f"{bucket}/1/../../outside", b"planted")
    with pytest.raises(MillraceError, match="not a valid name of a local file"), serving(bucket):
        pass
    assert not (temporary.parent / "outside").exists()
