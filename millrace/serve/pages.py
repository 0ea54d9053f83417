"""Everything but predictions: health, metrics, the model's status and metadata, and what an operator asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from millrace.serve.app import App, State, error_body
from millrace.serve.model import Interface, Loaded, Refused
from millrace.serve.versions import Refusal, Versions, Watcher
from schemas.errors import MillraceError

# Also told to those who give no token, so without the model's name.
_NOTHING = (
    "there is nothing here; predictions: POST /predict, or POST /v1/models/NAME:predict; others: millrace serve --help"
)
_TYPES = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE"}  # others have their own names
Handler = Callable[[Any], Awaitable[Any]]


def make_pages(state: State, watcher: Watcher) -> App:
    """The Starlette application."""
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import Response
    from starlette.routing import Route

    def json(data: Any, status: int = 200) -> Any:
        import orjson

        return Response(orjson.dumps(data, option=orjson.OPT_INDENT_2), status, media_type="application/json")

    def guarded(handler: Handler) -> Handler:
        async def checked(request: Any) -> Any:
            headers = dict(request.scope["headers"])
            state.guard.check_host(headers)
            state.guard.check_token(headers)
            return await handler(request)

        return checked

    async def alive(request: Any) -> Any:
        return json({"status": "alive"})

    async def ready(request: Any) -> Any:
        if state.stopping:
            return json({"status": "stopping"}, 503)
        return json({"status": "ready", "version": state.versions.current.version})

    async def metrics(request: Any) -> Any:
        return Response(state.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def asked(request: Any) -> str | None:
        if request.path_params["name"] != state.name:
            found = f"Could not find any versions of model {request.path_params['name'][:100]}"
            raise Refused(404, f"{found}; the model served here is {state.name}")
        version: str | None = request.path_params.get("version") or request.path_params.get("label")
        return version

    async def status(request: Any) -> Any:
        version = asked(request)
        if version is None:
            return json(status_of(state.versions))
        named = state.versions.named(version)
        if named is None and version not in state.versions.refused:
            raise Refused(404, f"Could not find version {version} of model {state.name}")
        number = version if named is None else named.version
        every = status_of(state.versions)["model_version_status"]
        return json({"model_version_status": [each for each in every if each["version"] == number]})

    async def metadata(request: Any) -> Any:
        version = asked(request)
        named = state.versions.named(version)
        if named is None:
            raise Refused(404, f"Servable not found for request: Specific({state.name}, {version})")
        return json(metadata_of(state.name, named))

    async def roll_back(request: Any) -> Any:
        try:
            return json({"version": state.versions.roll_back()})
        except MillraceError as error:
            raise Refused(409, str(error)) from None

    async def reload(request: Any) -> Any:
        state.versions.forget_refusals()
        await watcher.refresh()
        return json({"version": state.versions.current.version, **status_of(state.versions)})

    async def refused(request: Any, error: Any) -> Any:
        if isinstance(error, Refused):
            return Response(error_body(str(error)), error.status, media_type="application/json")
        what = f"{request.method} {request.url.path[:200]}"
        said = f"{what}: {_NOTHING if error.status_code == 404 else error.detail}"
        return Response(error_body(said), error.status_code, error.headers, "application/json")

    model = "/v1/models/{name}"
    routes = [
        Route("/healthz", alive),
        Route("/readyz", ready),
        Route("/metrics", guarded(metrics)),
        Route("/admin/roll_back", guarded(roll_back), methods=["POST"]),
        Route("/admin/reload", guarded(reload), methods=["POST"]),
    ]
    for middle in ("", "/versions/{version}", "/labels/{label}"):
        routes += [Route(f"{model}{middle}/metadata", guarded(metadata)), Route(f"{model}{middle}", guarded(status))]
    handlers: Any = {Refused: refused, HTTPException: refused}
    return Starlette(routes=routes, exception_handlers=handlers)


def status_of(versions: Versions) -> dict[str, Any]:
    """Every version's status, in TensorFlow Serving's form."""
    loaded = [versions.current, *([versions.previous] if versions.previous else [])]
    found = [_status(each.version, "AVAILABLE") for each in loaded]
    found += [_status(version, "END", refusal) for version, refusal in versions.refused.items()]
    return {"model_version_status": sorted(found, key=lambda each: -int(each["version"]))}


def _status(version: str, state: str, refusal: Refusal | None = None) -> dict[str, Any]:
    code = "OK" if refusal is None else "FAILED_PRECONDITION"
    message = "" if refusal is None else refusal.reason
    return {"version": version, "state": state, "status": {"error_code": code, "error_message": message}}


def metadata_of(name: str, loaded: Loaded) -> dict[str, Any]:
    """A version's signatures, in TensorFlow Serving's form; and beside them what Millrace notes of it."""
    interface = loaded.interface
    signatures = {signature: _signature(interface, signature) for signature in interface.by_signature}
    notes = loaded.notes
    return {
        "model_spec": {"name": name, "signature_name": "", "version": loaded.version},
        "metadata": {"signature_def": {"signature_def": signatures}},
        "millrace": {
            "classes": list(interface.classes),
            "global_step": notes.global_step,
            "dataset_run": notes.dataset_run,
            "compared_records": loaded.compared,
        },
    }


def _signature(interface: Interface, signature: str) -> dict[str, Any]:
    inputs = {
        name: _tensor(column.dtype, tuple(column.shape), f"raw/{name}:0")
        for name, column in interface.by_signature[signature].items()
    }
    outputs = {name: _tensor(output.dtype, output.shape, "") for name, output in interface.outputs.items()}
    return {"inputs": inputs, "outputs": outputs, "method_name": "tensorflow/serving/predict"}


def _tensor(dtype: str, shape: tuple[int | None, ...] | None, name: str) -> dict[str, Any]:
    sizes = [{"size": str(-1 if size is None else size), "name": ""} for size in (None, *(shape or ()))]
    return {
        "dtype": _TYPES.get(dtype, f"DT_{dtype.upper()}"),
        "tensor_shape": {"dim": sizes, "unknown_rank": shape is None},
        "name": name,
    }
