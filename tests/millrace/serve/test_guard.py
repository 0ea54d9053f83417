"""Who is answered: tokens, names, other servers' pages, TLS, and addresses that others can reach.

The command's mistakes are each a line that says what to do, before TensorFlow is started.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import subprocess
import sys

import pytest

from millrace.serve import command
from millrace.serve.connections import Guard
from millrace.serve.options import TOKEN_VARIABLE, ServeOptions
from millrace.serve.server import Server
from schemas.errors import MillraceError, UsageError
from tests.support import loopback_service
from tests.support.commands import ROOT, assert_light
from tests.support.exports import write_export
from tests.support.model_server import Client, serving

TOKEN, OTHER = "0123456789abcdef0123", "fedcba98765432100123"


def test_a_token_is_asked_for_everywhere_but_by_probes(export, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n{OTHER}\n")
    with serving(export, token_file=str(file)) as server, Client(server) as client:
        for header in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": "Bearer "}):
            for method, path in (
                ("POST", f"{client.model}:predict"),
                ("POST", "/predict"),
                ("POST", "/admin/roll_back"),
                ("GET", client.model),
                ("GET", "/metrics"),
            ):
                status, answer = client.ask(method, path, b"[]" if method == "POST" else None, **header)
                assert (status, "Authorization: Bearer" in answer["error"]) == (401, True)
        for token in (TOKEN, OTHER):
            assert client.predict({"instances": [1]}, Authorization=f"Bearer {token}")[0] == 200
        assert client.get("/healthz")[0] == client.get("/readyz")[0] == 200


def test_the_token_may_be_in_the_environment(export, monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with serving(export) as server, Client(server) as client:
        assert client.predict({"instances": [1]})[0] == 401
        assert client.predict({"instances": [1]}, Authorization=f"bearer {TOKEN}")[0] == 200


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"host": "::"}, "there is no token"),
        ({"token_file": "/nowhere"}, "--token_file /nowhere: no such file"),
        ({"certificate": "a.pem"}, "--certificate and --key: give both"),
        ({"certificate": "/nowhere", "key": "/nowhere"}, "--certificate /nowhere"),
        ({"host": "no such host", "insecure": True}, "--host no such host"),
    ],
)
def test_options_that_are_refused(export, options, said):
    with pytest.raises(UsageError) as raised:
        Server(ServeOptions(**{"model_dir": str(export), "port": 0, **options}))
    assert said in str(raised.value)


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), ("short", "token 1 has 5 characters")])
def test_tokens_that_are_refused(export, tmp_path, text, said):
    (tmp_path / "token").write_text(text)
    with pytest.raises(UsageError) as raised:
        Server(ServeOptions(model_dir=str(export), port=0, token_file=str(tmp_path / "token")))
    assert said in str(raised.value)
    assert text not in str(raised.value) or not text


def test_a_port_that_is_taken(export, default):
    with pytest.raises(MillraceError, match="Address already in use; stop what listens"):
        Server(ServeOptions(model_dir=str(export), port=default.port))


def test_insecure(export):
    with serving(export, host="0.0.0.0", insecure=True) as server, Client(server) as client:
        assert client.predict({"instances": [1]})[0] == 200


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("localhost:80", True),
        ("LOCALHOST", True),
        ("127.0.0.1:8501", True),
        ("[::1]:8501", True),
        ("10.1.2.3", True),
        ("models.example:443", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("a" * 10000, False),
        ("[::1.evil.example", False),
        ("\xff", False),
    ],
)
def test_names(host, own):
    guard = Guard((), ["Models.example"])
    headers = {b"host": host.encode("latin-1")}
    if own:
        guard.check_host(headers)
        guard.check_host({**headers, b"origin": b"http://" + headers[b"host"]})
    else:
        with pytest.raises(MillraceError, match="--allowed_hosts"):
            guard.check_host(headers)
    with pytest.raises(MillraceError):
        guard.check_host({**headers, b"origin": b"http://evil.example"})
    Guard((), ["*"]).check_host(headers)


def test_a_page_of_another_server_is_not_answered(client):
    assert client.predict({"instances": [1]}, Host="evil.example")[0] == 421
    assert client.predict({"instances": [1]}, Origin="http://evil.example")[0] == 403
    assert client.get("/metrics", Host="evil.example")[0] == 421
    assert client.post("/admin/roll_back", None, Origin="null")[0] == 403


def test_tls(export, tmp_path):
    made = loopback_service.make_certificate(tmp_path, ["localhost"])
    with serving(export, certificate=str(made.certificate), key=str(made.key)) as server:
        trusted = ssl.create_default_context(cafile=str(made.authority))
        connection = http.client.HTTPSConnection("localhost", server.port, context=trusted)
        connection.request("POST", f"/v1/models/{server.name}:predict", b'{"instances":[1]}')
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b'{"predictions":[{"error":"","value":2.0}]}')
        connection.close()
        with Client(server) as plain, pytest.raises((http.client.HTTPException, OSError)):
            plain.get("/healthz")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "the following arguments are required: --model_dir"),
        (["--model_dir", "nowhere"], "nowhere: no such folder; expected a model directory, an export, or a folder"),
        (["--model_dir", "nowhere", "--port", "99999"], "--port 99999: must be between 0 and 65,535"),
        (
            ["--model_dir", "nowhere", "--port", "0", "--host", "0.0.0.0"],
            "--host 0.0.0.0: other machines can reach this address, and there is no token",
        ),
        (["--model_dir", "nowhere", "--max_rows", "0"], "--max_rows 0: must be more than 0"),
        (["--model_dir", "nowhere", "--token", "secret"], "unrecognized arguments: --token"),
    ],
)
def test_wrong_usage(argv, said):
    assert_light("millrace.serve.command", argv, code=2, message=said)


@pytest.mark.parametrize(
    ("model_dir", "said"),
    [
        ("gs://bucket/model", "no Google Cloud credentials were found"),
        ("s3://bucket/model", "no AWS credentials were found"),
    ],
)
def test_without_credentials_it_says_so_and_nothing_else(model_dir, said, tmp_path):
    nobody = "127.0.0.1:1"  # no cloud gives this machine an account
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "GOOGLE_", "GCE_", "GCLOUD_"))
    }
    env |= {"HOME": str(tmp_path), "GCE_METADATA_HOST": nobody, "GCE_METADATA_IP": nobody, "PYTHONPATH": str(ROOT)}
    env |= {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{nobody}",
        "CLOUDSDK_CONFIG": str(tmp_path),
        "NO_GCE_CHECK": "true",
    }
    command = [sys.executable, "-m", "millrace", "serve", "--model_dir", model_dir]
    done = subprocess.run(command, cwd=tmp_path, env=env, check=False, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {model_dir}/saved_model.pb: {said}")


def test_a_bad_export(tmp_path, capsys):
    made = write_export(tmp_path, 1)
    (made / "saved_model.pb").write_bytes(b"")
    assert command.main(["--model_dir", str(tmp_path), "--port", "0", "--json"]) == 1
    told = capsys.readouterr()
    assert "no export in it can be served" in json.loads(told.out)["error"]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ version 1 is not served: ", told.err)
