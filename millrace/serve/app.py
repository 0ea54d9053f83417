"""The HTTP application of a server: it checks tokens, answers each address, and writes errors as JSON."""

from __future__ import annotations

import hmac
import logging
import os
import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from millrace.serve.batcher import Answer, Batcher
from millrace.serve.bodies import answer_body, error_body, parse
from millrace.serve.metrics import Metrics
from millrace.serve.model import RefusedRequest, ServedVersion, bad_request, not_in_service
from millrace.serve.options import TOKEN_VARIABLE, ServeOptions
from millrace.serve.requests import plain_rows, predict_rows
from millrace.serve.versions import Refusal, Versions
from schemas import storage
from schemas.errors import UsageError
from schemas.exports.model import ERROR, RAW, WITHOUT_KEY

log = logging.getLogger(__name__)
SHORTEST = 16  # characters of a token
_ID = re.compile(r"[!-~]{1,128}")
_JSON = "application/json"
# Also told to those who give no token, so without the model's name.
_NOTHING = (
    "there is nothing here; predictions: POST /predict, or POST /v1/models/NAME:predict; others: millrace serve --help"
)


def read_tokens(token_file: str | None) -> tuple[bytes, ...]:
    """Reads the tokens: the words of a file, or of the environment variable; none if there is neither.

    Raises:
      UsageError: the file cannot be read or is empty, or a token is too short.
    """
    if token_file is not None:
        if not storage.exists(token_file):
            raise UsageError(f"--token_file {token_file}: no such file")
        where, lines = f"--token_file {token_file}", storage.read_bytes(token_file).split()
    elif TOKEN_VARIABLE in os.environ:
        where, lines = f"the environment variable {TOKEN_VARIABLE}", os.environ[TOKEN_VARIABLE].encode().split()
    else:
        return ()
    if not lines:
        raise UsageError(f"{where}: is empty; expected a token, such as `openssl rand -hex 32` prints")
    for number, token in enumerate(lines, start=1):
        if len(token) < SHORTEST:
            raise UsageError(f"{where}: token {number} has {len(token)} characters; expected at least {SHORTEST}")
    return tuple(lines)


class Application:
    """Answers HTTP requests.

    Args:
      name: the model's name in addresses.
      tokens: a request must have one of them; empty: everybody may ask.
      options: the limits of requests.
      versions: the version in service, and those that were refused.
      batcher: has the model answer.
      metrics: counts requests.

    Attributes:
      reading: bytes that have arrived of bodies that are not whole yet.
      stopping: no more requests are taken on a connection than the one that is there.
    """

    def __init__(
        self,
        name: str,
        tokens: Sequence[bytes],
        options: ServeOptions,
        *,
        versions: Versions,
        batcher: Batcher,
        metrics: Metrics,
    ) -> None:
        self._name, self._tokens, self._options = name, tokens, options
        self._versions, self.batcher, self.metrics = versions, batcher, metrics
        self.reading = 0
        self.stopping = False

    def asgi(self) -> Starlette:
        """Returns the ASGI application."""
        model, version = "/v1/models/{name}", "/versions/{version}"
        routes = [
            Route("/predict", _Predictions(self, plain=True)),
            *(Route(f"{path}:predict", _Predictions(self, plain=False)) for path in (model, model + version)),
            Route("/healthz", self._alive),
            Route("/readyz", self._ready),
            Route("/metrics", self._metrics),
            Route("/admin/reload", self._reload, methods=["POST"]),
            *(Route(f"{path}/metadata", self._metadata) for path in (model, model + version)),
            *(Route(path, self._status) for path in (model, model + version)),
        ]
        return Starlette(routes=routes, exception_handlers={RefusedRequest: self._failed, HTTPException: self._failed})

    async def predict(self, scope: Scope, receive: Receive, *, plain: bool) -> Response:
        """Answers a prediction.

        Raises:
          RefusedRequest: the request is wrong, or is not taken now.
          HTTPException: it is no POST.
          ClientDisconnect: its client has left.
        """
        headers, target = dict(scope["headers"]), scope["path_params"]
        self._check_token(headers)
        if scope["method"] != "POST":
            message = "predictions are asked for by POST, with rows as JSON in the body"
            raise HTTPException(405, f"{scope['method']}: {message}", {"allow": "POST"})
        name, version = target.get("name", self._name), target.get("version")
        interface = self._loaded(name, version).interface
        body = parse(await self._body(headers, receive))
        rows = (plain_rows if plain else predict_rows)(body, interface, self._options.max_rows)
        name, ids, from_client = _ids(headers.get(b"x-request-id"), body, rows.count)
        del body  # what waits is counted as arrays
        answer = await self.batcher.submit(rows, ids, version, from_client=from_client)
        _check_version(version, answer, ids)
        if ERROR in answer.outputs:
            self.metrics.row_errors.inc(sum(map(bool, answer.outputs[ERROR].tolist())))
        own = {"x-model-version": ", ".join(dict.fromkeys(filter(None, answer.versions))), "x-request-id": name}
        return Response(answer_body(rows, answer, ids), 200, own, _JSON)

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
        """Reads the body of a request.

        Raises:
          RefusedRequest: it has no length, is too large, or too much of other bodies waits.
          ClientDisconnect: the client has left.
        """
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise RefusedRequest(415, "Content-Encoding: compressed bodies are not taken")
        if b"transfer-encoding" in headers:
            raise RefusedRequest(411, "Transfer-Encoding: not taken; send the body with its length, as Content-Length")
        length, most = int(headers.get(b"content-length", b"0")), int(self._options.max_body_mb * 2**20)
        if length > most:
            raise RefusedRequest(413, f"the body has {length:,} bytes; at most {most:,} are taken")
        parts: list[bytes] = []
        received = 0
        try:
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part, more = message.get("body", b""), message.get("more_body", False)
                # The limit is for bodies that wait beside each other: a body that is alone is taken in any size.
                if self.reading > received and self.reading + len(part) > self._options.queue_mb << 20:
                    raise RefusedRequest(
                        429, "too many bytes of requests are waiting; send it again later", retry_after=1
                    )
                self.reading += len(part)
                received += len(part)
                parts.append(part)
            return b"".join(parts)
        finally:
            self.reading -= received

    def _check_token(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuses a request without a token."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        matches = [hmac.compare_digest(token.strip(), own) for own in self._tokens]
        if self._tokens and (scheme.lower() != b"bearer" or not any(matches)):
            raise RefusedRequest(401, "expected the header `Authorization: Bearer TOKEN`, with the server's token")

    def _loaded(self, name: str, version: str | None) -> ServedVersion:
        """Returns the version in service, if a request names it or no version.

        Raises:
          RefusedRequest: there is none.
        """
        if name != self._name:
            served = f"the model served here is {self._name}"
            raise RefusedRequest(404, f"Servable not found for request: Latest({name[:100]}); {served}")
        current = self._versions.current
        if version not in (None, current.version):
            raise not_in_service(str(version), current.version)
        return current

    async def _alive(self, request: Request) -> Response:
        return _json({"status": "alive"})

    async def _ready(self, request: Request) -> Response:
        if self.stopping:
            return _json({"status": "stopping"}, 503)
        return _json({"status": "ready", "version": self._versions.current.version})

    async def _metrics(self, request: Request) -> Response:
        self._check_token(dict(request.scope["headers"]))
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _status(self, request: Request) -> Response:
        self._check_token(dict(request.scope["headers"]))
        version = request.path_params.get("version")
        if version not in self._versions.refused:
            self._loaded(request.path_params["name"], version)
        statuses = [status for status in _statuses(self._versions) if version in (None, status["version"])]
        return _json({"model_version_status": statuses})

    async def _metadata(self, request: Request) -> Response:
        """Answers with the signatures, in TensorFlow Serving's form, and with Millrace's notes beside them."""
        self._check_token(dict(request.scope["headers"]))
        loaded = self._loaded(request.path_params["name"], request.path_params.get("version"))
        signatures = {
            name: json_format.MessageToDict(loaded.model.signatures[name], preserving_proto_field_name=True)
            for name in ([RAW] if loaded.interface.key is None else [RAW, WITHOUT_KEY])
        }
        own = {
            "classes": loaded.interface.classes,
            "global_step": loaded.notes.global_step,
            "dataset_run": loaded.notes.dataset_run,
            "compared_records": loaded.compared,
        }
        return _json(
            {
                "model_spec": {"name": self._name, "signature_name": "", "version": loaded.version},
                "metadata": {"signature_def": {"signature_def": signatures}},
                "millrace": own,
            }
        )

    async def _reload(self, request: Request) -> Response:
        self._check_token(dict(request.scope["headers"]))
        self._versions.refused.clear()
        await self._versions.refresh()
        return _json({"version": self._versions.current.version, "model_version_status": _statuses(self._versions)})

    async def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            detail = _NOTHING if error.status_code == 404 else error.detail
            message = f"{request.method} {request.url.path[:200]}: {detail}"
            error = HTTPException(error.status_code, message, error.headers)
        return _error_response(error)


class _Predictions:
    """Answers predictions as an ASGI application, without a `Request`, which would take longer than to read a row."""

    def __init__(self, application: Application, *, plain: bool) -> None:
        self._application, self._plain = application, plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = time.monotonic()
        try:
            response = await self._application.predict(scope, receive, plain=self._plain)
        except ClientDisconnect:
            return
        except Exception as error:
            response = _error_response(error)
        if self._application.stopping:
            response.headers["connection"] = "close"
        await response(scope, receive, send)
        kind = "plain" if self._plain else "predict"
        self._application.metrics.count_request(kind, response.status_code, time.monotonic() - begun)


def _error_response(error: Exception) -> Response:
    """Returns the answer to a request that failed."""
    headers: dict[str, str] = {}
    match error:
        case RefusedRequest():
            status, message = error.status, str(error)
            if error.retry_after is not None:
                headers["retry-after"] = str(error.retry_after)
            if status == 401:
                headers["www-authenticate"] = "Bearer"
        case HTTPException():
            status, message, headers = error.status_code, error.detail, dict(error.headers or {})
        case RecursionError():  # where a value is taken apart; the parser of bodies takes a thousand levels
            status, message = 400, "the body is nested too deeply"
        case _:  # a fault of this server: the log tells its kind, and no value of the request
            log.error("a request failed: %s in %s", type(error).__name__, _place(error))
            status, message = 500, "the server failed; its log says why"
    return Response(error_body(message), status, headers, _JSON)


def _place(error: Exception) -> str:
    """Where an error was raised, without what it says: that may hold values of a request."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _ids(header: bytes | None, body: Any, rows: int) -> tuple[str, list[str], bool]:
    """Returns the request's id, the ids of its rows, and whether the client chose them, in the header or the body.

    Raises:
      RefusedRequest: an id is not a short text, there are not as many as rows, or one is there twice.
    """
    fields = body if type(body) is dict else {}
    name, ids = fields.get("id", header and header.decode("latin-1")), fields.get("ids")
    if name is not None and not _is_id(name):
        raise bad_request('X-Request-Id, or "id": expected 1 to 128 visible ASCII characters')
    from_client = name is not None or ids is not None
    name = name or f"{random.getrandbits(96):024x}"  # not os.urandom, for which the GIL changes hands
    if ids is None:
        return name, [name] if rows == 1 else [f"{name}/{i}" for i in range(rows)], from_client
    if type(ids) is not list or len(ids) != rows or not all(map(_is_id, ids)) or len(set(ids)) != rows:
        raise bad_request(f'"ids": expected {rows} different ids, one a row, each 1 to 128 visible ASCII characters')
    return name, ids, from_client


def _is_id(value: Any) -> bool:
    return type(value) is str and _ID.fullmatch(value) is not None


def _check_version(requested_version: str | None, answer: Answer, ids: Sequence[str]) -> None:
    """Refuses a request of one version whose ids another one has answered before."""
    for row_id, version in zip(ids, answer.versions, strict=True):
        if requested_version is not None and version not in (requested_version, ""):
            raise RefusedRequest(
                409,
                f"the id {row_id!r} was answered by version {version} before, and the request asks for version "
                f"{requested_version}; ask for no version, or give another id",
            )


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_INDENT_2), status, media_type=_JSON)


def _statuses(versions: Versions) -> list[dict[str, Any]]:
    """Every version's status, in TensorFlow Serving's form, newest first."""
    statuses = [_status(versions.current.version, "AVAILABLE", None)]
    statuses += [_status(version, "END", refusal) for version, refusal in versions.refused.items()]
    return sorted(statuses, key=lambda status: -int(status["version"]))


def _status(version: str, state: str, refusal: Refusal | None) -> dict[str, Any]:
    code, message = ("OK", "") if refusal is None else ("FAILED_PRECONDITION", refusal.reason)
    return {"version": version, "state": state, "status": {"error_code": code, "error_message": message}}
