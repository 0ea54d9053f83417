"""The schemas of stored requests, kept beside them: what the columns are, and what a label is."""

from __future__ import annotations

import os

from schemas import storage
from schemas.errors import UsageError
from schemas.spec.loader import AnySchema, load_schema

PREFIX = "schema-"


def keep_schema(store: str, schema: AnySchema, schema_yaml: bytes) -> None:
    """Writes a schema, unless it is there."""
    path = _path(store, schema.fingerprint)
    if not os.path.exists(path):
        storage.write_bytes(path, schema_yaml)
        os.chmod(path, 0o600)


def read_schema(store: str, fingerprint: str) -> AnySchema:
    """Reads one.

    Raises:
      UsageError: it is not there.
    """
    path = _path(store, fingerprint)
    if not os.path.exists(path):
        raise UsageError(f"{path}: missing; put the export's assets.extra/schema.yaml there")
    return load_schema(path)


def _path(store: str, fingerprint: str) -> str:
    return os.path.join(store, f"{PREFIX}{fingerprint[:16]}.yaml")
