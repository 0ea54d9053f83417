"""The application: predictions, which are answered without a framework, and everything else, which Starlette routes."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from trainer.serving.answers import predict_answer
from trainer.serving.batcher import Batcher
from trainer.serving.errors import Refused
from trainer.serving.json_body import parse
from trainer.serving.loaded import Loaded
from trainer.serving.requests import predict_rows

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_PREDICT = re.compile(r"/v1/models/(?P<name>[^/:]+)(/versions/(?P<version>[0-9]+))?:predict")


class Application:
    """An ASGI application. `name`: of the model, in addresses."""

    def __init__(self, name: str, current: Callable[[], Loaded], batcher: Batcher, *, max_bytes: int) -> None:
        self._name = name
        self._current = current
        self._batcher = batcher
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            found = _PREDICT.fullmatch(scope["path"])
            if found is None or found["name"] != self._name or scope["method"] != "POST":
                raise Refused(404, f"{scope['method']} {scope['path'][:200]}: there is nothing here")
            headers = dict(scope["headers"])
            body = await self._body(headers, receive)
            interface = self._current().interface
            rows = predict_rows(parse(body, not_finite=True), interface)
            asked = headers.get(b"x-request-id", b"").decode("latin-1") or secrets.token_hex(8)
            ids = [asked] if rows.count == 1 else [f"{asked}/{i}" for i in range(rows.count)]
            answer = await self._batcher.submit(rows.arrays, rows.count, ids)
            data = predict_answer(answer.outputs, columnar=rows.columnar)
            extra = [(b"x-model-version", answer.version.encode()), (b"x-request-id", asked.encode("latin-1"))]
            await _answer(send, 200, data, extra)
        except Refused as refused:
            import orjson

            await _answer(send, refused.status, orjson.dumps({"error": str(refused)}), _extra(refused))

    async def _body(self, headers: MutableMapping[bytes, bytes], receive: Receive) -> bytes:
        length = headers.get(b"content-length", b"0")
        if int(length) > self._max_bytes:
            raise Refused(413, f"a body of {int(length):,} bytes; at most {self._max_bytes:,} are taken", close=True)
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "the client left", close=True)
            part = message.get("body", b"")
            size += len(part)
            if size > self._max_bytes:
                raise Refused(413, f"a body of more than {self._max_bytes:,} bytes", close=True)
            parts.append(part)
            if not message.get("more_body", False):
                return parts[0] if len(parts) == 1 else b"".join(parts)


def _extra(refused: Refused) -> list[tuple[bytes, bytes]]:
    after = [] if refused.retry_after is None else [(b"retry-after", b"%d" % refused.retry_after)]
    return [*after, *([(b"connection", b"close")] if refused.close else [])]


async def _answer(send: Send, status: int, data: bytes, extra: list[tuple[bytes, bytes]]) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(data)), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
